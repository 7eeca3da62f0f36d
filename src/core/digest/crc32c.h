// CRC-32C (Castagnoli): reflected polynomial 0x82F63B78, initial value and final XOR 0xFFFFFFFF
// (spec blob 6).
// Check: "123456789" → 0xE3069283.
//
// Threads: pure functions; a running Crc32cStream belongs to one thread. Errors: none.
#pragma once

#include "core/base/types.h"

#include <cstddef>
#include <span>

namespace farlift::digest {

Crc32c crc32c(std::span<const std::byte> bytes) noexcept;
// The CRC of a followed by b, from crc(a) = `before` and the bytes of b.
Crc32c crc32c_extend(Crc32c before, std::span<const std::byte> bytes) noexcept;
// The CRC of a followed by b, from crc(a), crc(b) and the length of b; O(log length).
Crc32c crc32c_combine(Crc32c a, Crc32c b, Length length_b) noexcept;
// Copies `from` to the front of `to` and returns the CRC of the bytes as they stand in `to`, block
// by block while each is in cache. `to` must be at least as long and must not overlap `from`;
// `from` may change meanwhile, the CRC is that of the copy.
Crc32c crc32c_copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept;

// The CRC of bytes that come in pieces, in order.
class Crc32cStream {
 public:
  void update(std::span<const std::byte> bytes) noexcept {
    crc_ = crc32c_extend(crc_, bytes);
    length_ += Length(bytes.size());
  }
  // Appends bytes whose CRC is known already.
  void append(Crc32c crc, Length length) noexcept {
    crc_ = crc32c_combine(crc_, crc, length);
    length_ += length;
  }
  Crc32c value() const noexcept { return crc_; }
  Length length() const noexcept { return length_; }

 private:
  Crc32c crc_;
  Length length_;
};

}  // namespace farlift::digest
