#include "core/digest/crc32c.h"

#include "core/base/assert.h"
#include "core/digest/crc32c_arithmetic.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <cstring>

namespace farlift::digest {
namespace {

// The raw state: the CRC register without the initial and the final XOR. ISA-L takes an int and a
// pointer to non-const, and does not write.
std::uint32_t run(std::uint32_t state, std::span<const std::byte> bytes) noexcept {
  constexpr std::size_t kCallMax = std::size_t{1} << 30;
  while (!bytes.empty()) {
    const auto now = bytes.first(std::min(bytes.size(), kCallMax));
    auto* at = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(now.data()));
    state = crc32_iscsi(at, static_cast<int>(now.size()), state);
    bytes = bytes.subspan(now.size());
  }
  return state;
}

// Half of a first-level cache would be enough for the checksum alone; this size also keeps memcpy
// efficient.
constexpr std::size_t kCopyBlock = 32u << 10;

}  // namespace

Crc32c crc32c(std::span<const std::byte> bytes) noexcept { return crc32c_extend(Crc32c(0), bytes); }

Crc32c crc32c_extend(Crc32c before, std::span<const std::byte> bytes) noexcept {
  if (bytes.empty()) return before;
  return Crc32c(~run(~before.raw(), bytes));
}

Crc32c crc32c_combine(Crc32c a, Crc32c b, Length length_b) noexcept {
  // Appending n bytes multiplies what a stands for by x^(8n); initial and final XOR cancel out.
  return Crc32c(internal::times(internal::power_of_x(length_b.raw(), 3), a.raw()) ^ b.raw());
}

Crc32c crc32c_copy(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
  ASSERT(to.size() >= from.size());
  Crc32c crc;
  for (std::size_t at = 0; at < from.size(); at += kCopyBlock) {
    const std::size_t now = std::min(kCopyBlock, from.size() - at);
    std::memcpy(to.data() + at, from.data() + at, now);
    crc = crc32c_extend(crc, to.subspan(at, now));
  }
  return crc;
}

}  // namespace farlift::digest
