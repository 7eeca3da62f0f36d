// One range of bytes, as the field Range asks for it (RFC 9110 14).
//
// Threads: pure function. Errors: out_of_range: nothing of it lies within `size` (416).
#pragma once

#include "core/base/result.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace farlift::net::http {

struct ByteRange {
  std::uint64_t from = 0;
  std::uint64_t length = 0;  // > 0
};

// nullopt: there is none, or it is to be ignored: malformed, of another unit, or several ranges.
Result<std::optional<ByteRange>> parse_range(std::string_view field, std::uint64_t size);

}  // namespace farlift::net::http
