// Which of the 16384 slots of a cluster a key lives in: CRC-16 of the key, or of its hash tag
// (between the first '{' and the next '}', when not empty).
//
// Threads:    pure functions.
// Errors:     common_slot() is invalid_argument for keys of different slots ("CROSSSLOT").
#pragma once

#include "core/base/result.h"

#include <cstdint>
#include <span>
#include <string_view>

namespace farlift::resp {

inline constexpr std::uint32_t kSlotCount = 16384;

std::uint16_t crc16(std::string_view bytes) noexcept;  // XMODEM: polynomial 0x1021, from 0
std::string_view hash_tag(std::string_view key) noexcept;
std::uint16_t key_slot(std::string_view key) noexcept;
Result<std::uint16_t> common_slot(std::span<const std::string_view> keys);  // at least one

}  // namespace farlift::resp
