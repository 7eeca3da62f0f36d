// CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF (spec blob 6).
// Check: "123456789" → 0xE3069283.
//
// Threads: pure functions; a running Crc32cStream belongs to one thread. Errors: none.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/types.h"

namespace farlift::digest {

Crc32c crc32c(std::span<const std::byte> bytes) noexcept;
// The CRC of a followed by b, from crc(a) = `before` and the bytes of b.
Crc32c crc32c_extend(Crc32c before, std::span<const std::byte> bytes) noexcept;
// The CRC of a followed by b, from crc(a), crc(b) and the length of b; O(log length).
Crc32c crc32c_combine(Crc32c a, Crc32c b, Length length_b) noexcept;

}  // namespace farlift::digest
