// Arithmetic modulo the CRC-32C polynomial, for crc32c_combine(). Private to this folder.
//
// Threads: pure functions. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farlift::digest::internal {

// Polynomials over GF(2) modulo the CRC-32C polynomial, reflected: bit 31 is the coefficient of
// x^0.
inline constexpr std::uint32_t kPolynomial = 0x82F63B78;

constexpr std::uint32_t times(std::uint32_t a, std::uint32_t b) noexcept {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

inline constexpr std::size_t kPowers = 67;  // 2^64 bytes are 2^67 bits

// x^(2^i).
constexpr std::array<std::uint32_t, kPowers> make_powers() noexcept {
  std::array<std::uint32_t, kPowers> powers{};
  powers[0] = 1u << 30;  // x^1
  for (std::size_t i = 1; i < kPowers; ++i) powers[i] = times(powers[i - 1], powers[i - 1]);
  return powers;
}
inline constexpr std::array<std::uint32_t, kPowers> kPowersOfX = make_powers();

// x^(n * 2^scale).
constexpr std::uint32_t power_of_x(std::uint64_t n, std::size_t scale = 0) noexcept {
  std::uint32_t power = 1u << 31;  // x^0
  for (std::size_t i = scale; n != 0; n >>= 1, ++i) {
    if ((n & 1) != 0) power = times(kPowersOfX[i], power);
  }
  return power;
}

}  // namespace farlift::digest::internal
