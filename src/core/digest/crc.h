// CRC-32 (of zip and gzip: polynomial 0xEDB88320) and CRC-64/NVME (0x9A6C9329AC4BC9B5), both
// reflected, with initial value and final XOR all ones; and how two of them, or of CRC-32C, join.
// Check: "123456789" → 0xCBF43926 and 0xAE8B14860A799888 (spec s3 12).
//
// Threads: pure functions. Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace farlift::digest {

std::uint32_t crc32_extend(std::uint32_t before, std::span<const std::byte> bytes) noexcept;
std::uint32_t crc32_combine(std::uint32_t a, std::uint32_t b, std::uint64_t length_b) noexcept;

std::uint64_t crc64nvme_extend(std::uint64_t before, std::span<const std::byte> bytes) noexcept;
std::uint64_t crc64nvme_combine(std::uint64_t a, std::uint64_t b, std::uint64_t length_b) noexcept;

}  // namespace farlift::digest
