#include "core/net/resp/slot.h"

#include "core/base/assert.h"

#include <array>

namespace farlift::resp {
namespace {

constexpr std::array<std::uint16_t, 256> make_table() {
  std::array<std::uint16_t, 256> table{};
  for (unsigned i = 0; i < 256; ++i) {
    unsigned crc = i << 8;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 0x8000U) != 0 ? (crc << 1) ^ 0x1021U : crc << 1;
    table[i] = static_cast<std::uint16_t>(crc & 0xffffU);
  }
  return table;
}

constexpr std::array<std::uint16_t, 256> kTable = make_table();

}  // namespace

std::uint16_t crc16(std::string_view bytes) noexcept {
  unsigned crc = 0;
  for (const char c : bytes) {
    const unsigned index = ((crc >> 8) ^ static_cast<unsigned char>(c)) & 0xffU;
    crc = ((crc << 8) & 0xffffU) ^ kTable[index];
  }
  return static_cast<std::uint16_t>(crc);
}

std::string_view hash_tag(std::string_view key) noexcept {
  const std::size_t open = key.find('{');
  if (open == std::string_view::npos) return key;
  const std::size_t close = key.find('}', open + 1);
  if (close == std::string_view::npos || close == open + 1) return key;
  return key.substr(open + 1, close - open - 1);
}

std::uint16_t key_slot(std::string_view key) noexcept {
  return static_cast<std::uint16_t>(crc16(hash_tag(key)) % kSlotCount);
}

Result<std::uint16_t> common_slot(std::span<const std::string_view> keys) {
  ASSERT(!keys.empty());
  const std::uint16_t slot = key_slot(keys.front());
  for (const std::string_view key : keys.subspan(1)) {
    if (key_slot(key) != slot)
      return Error::make(Errc::invalid_argument, "CROSSSLOT: keys in different slots");
  }
  return slot;
}

}  // namespace farlift::resp
