// Operands of the six commands: words in, checked numbers out, in the order of checks of spec blob
// 2 rule 7 as far as it needs nothing but the words (arity, syntax, number ranges, object size).
//
// Invariants: every Region has length > 0 and addr + length does not wrap 64 bits; 1 to kRegionsMax
//             regions; views point into the words given. Nothing outside the words is read.
// Threads:    pure functions. Errors: a Refusal with the exact text, or `arity`, for which the
//             server words the reply.
#pragma once

#include "core/base/types.h"

#include <tl/expected.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace farlift::blob::wire {

using Words = std::span<const std::string_view>;  // without the command's name

struct Refusal {
  const char* text = nullptr;  // nullptr: wrong number of arguments
  bool arity() const noexcept { return text == nullptr; }
};

template <class T>
using Parsed = tl::expected<T, Refusal>;

struct Region {
  RKey key;
  RemoteAddr addr;
  Length length;
};

struct RdmaGetOperands {
  std::string_view key;
  std::vector<Region> regions;
};

struct RdmaSetOperands {
  std::string_view key;
  Length length;
  std::optional<Crc32c> crc;
  std::vector<Region> regions;
};

struct TcpSetOperands {
  std::string_view key;
  std::string_view value;
};

enum class InfoField : std::uint8_t { all, len, crc, tier };

struct InfoOperands {
  std::string_view key;
  InfoField field = InfoField::all;
};

// What the fabric services of an instance take in HELLO (spec blob 3.1).
struct AddressForms {
  bool socket = false;  // 16 or 28 bytes
  bool efa = false;     // 32 bytes
};

Parsed<std::vector<std::byte>> parse_hello(Words words);
// nullopt when the length is one of `forms`.
std::optional<Refusal> check_address_length(std::size_t bytes, AddressForms forms);
Parsed<RdmaGetOperands> parse_rdma_get(Words words);
Parsed<RdmaSetOperands> parse_rdma_set(Words words, Length object_max);
Parsed<std::string_view> parse_tcp_get(Words words);
Parsed<TcpSetOperands> parse_tcp_set(Words words, Length object_max);
Parsed<InfoOperands> parse_info(Words words);

// Sum of the lengths, saturating at 2^64 - 1.
Length coverage(std::span<const Region> regions) noexcept;

}  // namespace farlift::blob::wire
