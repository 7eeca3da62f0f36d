// The parts of a descriptor that the scripts in Valkey compare (spec kv 6), as byte strings.
//
// Invariants: what is shorter than its field gives what Lua's string.sub gives, a shorter string.
// Threads:    pure functions. Errors: none.
#pragma once

#include "kvcache/wire/layout.h"
#include "kvcache/wire/sink.h"
#include "kvcache/wire/types.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace farlift::kv {

inline constexpr std::size_t kLocationOffset = 8;  // string.sub(d, 9, 40)
inline constexpr std::size_t kVersionOffset = 48;  // string.sub(d, 49, 56)
inline constexpr std::size_t kVersionBytes = 8;

Bytes location_slice(ByteView descriptor);
Bytes version_slice(ByteView descriptor);
Bytes version_operand(Version version);  // little-endian; empty for none()

inline Bytes to_bytes(std::string_view text) {
  const ByteView bytes = bytes_of(text);
  return {bytes.begin(), bytes.end()};
}

}  // namespace farlift::kv
