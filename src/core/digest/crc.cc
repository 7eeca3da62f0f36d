#include "core/digest/crc.h"

#include <isa-l/crc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace farlift::digest {
namespace {

// Polynomials over GF(2) modulo P, reflected: the highest bit is the coefficient of x^0.
template <class Word, Word kPolynomial>
struct Field {
  static constexpr Word kOne = Word{1} << (8 * sizeof(Word) - 1);

  static constexpr Word times(Word a, Word b) noexcept {
    Word product = 0;
    for (Word bit = kOne; bit != 0; bit >>= 1) {
      if ((a & bit) != 0) product ^= b;
      b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
    }
    return product;
  }
  // x^(8n): what appending n bytes multiplies by.
  static constexpr Word power(std::uint64_t n) noexcept {
    Word square = kOne >> 8;
    Word out = kOne;
    for (; n != 0; n >>= 1) {
      if ((n & 1) != 0) out = times(square, out);
      square = times(square, square);
    }
    return out;
  }
};

using Zip = Field<std::uint32_t, 0xEDB88320>;
using Nvme = Field<std::uint64_t, 0x9A6C9329AC4BC9B5>;

// tables[k][b]: what byte b does k bytes before the end of a run.
constexpr std::size_t kSlices = 16;
using Tables = std::array<std::array<std::uint64_t, 256>, kSlices>;

constexpr Tables make_tables() noexcept {
  Tables out{};
  for (std::size_t b = 0; b < 256; ++b) {
    std::uint64_t value = b;
    for (int i = 0; i < 8; ++i)
      value = (value & 1) != 0 ? (value >> 1) ^ 0x9A6C9329AC4BC9B5 : value >> 1;
    out[0][b] = value;
  }
  for (std::size_t k = 1; k < kSlices; ++k) {
    for (std::size_t b = 0; b < 256; ++b)
      out[k][b] = (out[k - 1][b] >> 8) ^ out[0][out[k - 1][b] & 0xff];
  }
  return out;
}
constexpr Tables kTables = make_tables();

std::uint64_t load(const std::byte* at) noexcept {
  static_assert(std::endian::native == std::endian::little);
  std::uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  return word;
}

std::uint64_t slices(std::uint64_t word, std::size_t from) noexcept {
  std::uint64_t out = 0;
  for (std::size_t i = 0; i < 8; ++i) out ^= kTables[from - i][word >> (8 * i) & 0xff];
  return out;
}

}  // namespace

std::uint32_t crc32_extend(std::uint32_t before, std::span<const std::byte> bytes) noexcept {
  return bytes.empty()
             ? before
             : crc32_gzip_refl(before, reinterpret_cast<const unsigned char*>(bytes.data()),
                               bytes.size());
}

std::uint32_t crc32_combine(std::uint32_t a, std::uint32_t b, std::uint64_t length_b) noexcept {
  return Zip::times(Zip::power(length_b), a) ^ b;
}

std::uint64_t crc64nvme_extend(std::uint64_t before, std::span<const std::byte> bytes) noexcept {
  std::uint64_t state = ~before;
  for (; bytes.size() >= kSlices; bytes = bytes.subspan(kSlices))
    state = slices(state ^ load(bytes.data()), 15) ^ slices(load(bytes.data() + 8), 7);
  for (const std::byte b : bytes)
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<std::uint64_t>(b)) & 0xff];
  return ~state;
}

std::uint64_t crc64nvme_combine(std::uint64_t a, std::uint64_t b, std::uint64_t length_b) noexcept {
  return Nvme::times(Nvme::power(length_b), a) ^ b;
}

}  // namespace farlift::digest
