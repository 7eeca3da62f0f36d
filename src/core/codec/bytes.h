// Reader and Writer: fixed-width integers and byte runs at the front of a span, little or big
// endian.
//
//   Reader r(bytes);
//   TRY_ASSIGN(const std::uint32_t magic, r.u32_le());
//   TRY_ASSIGN(const auto name, r.take(16));
//
// Invariants: never touches a byte outside the span; a failed call consumes and writes nothing.
// Threads:    plain values over memory the caller keeps. Errors: out_of_range when too few bytes
//             are left.
#pragma once

#include "core/base/result.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace farlift::codec {

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) noexcept : rest_(bytes) {}

  Result<std::uint8_t> u8() noexcept;
  Result<std::uint16_t> u16_le() noexcept;
  Result<std::uint32_t> u32_le() noexcept;
  Result<std::uint64_t> u64_le() noexcept;
  Result<std::uint16_t> u16_be() noexcept;
  Result<std::uint32_t> u32_be() noexcept;
  Result<std::uint64_t> u64_be() noexcept;
  // The next `count` bytes, as a view.
  Result<std::span<const std::byte>> take(std::size_t count) noexcept;
  Status skip(std::size_t count) noexcept;

  std::span<const std::byte> rest() const noexcept { return rest_; }
  std::size_t left() const noexcept { return rest_.size(); }
  bool at_end() const noexcept { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

class Writer {
 public:
  explicit Writer(std::span<std::byte> bytes) noexcept : all_(bytes) {}

  Status u8(std::uint8_t value) noexcept;
  Status u16_le(std::uint16_t value) noexcept;
  Status u32_le(std::uint32_t value) noexcept;
  Status u64_le(std::uint64_t value) noexcept;
  Status u16_be(std::uint16_t value) noexcept;
  Status u32_be(std::uint32_t value) noexcept;
  Status u64_be(std::uint64_t value) noexcept;
  Status put(std::span<const std::byte> bytes) noexcept;
  Status zeros(std::size_t count) noexcept;

  std::span<const std::byte> written() const noexcept { return all_.first(used_); }
  std::size_t left() const noexcept { return all_.size() - used_; }

 private:
  std::span<std::byte> all_;
  std::size_t used_ = 0;
};

}  // namespace farlift::codec
