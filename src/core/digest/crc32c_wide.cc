// CRC-32C by carry-less multiplication over 512-bit registers (AVX-512 with VPCLMULQDQ).
//
// Four accumulators of 64 bytes hold a polynomial that is congruent to everything read so far. Each step multiplies
// them by x^2048 modulo the polynomial, in two 64-bit halves, and adds the next 256 bytes. In the reflected order a
// carry-less product of a 64-bit and a 32-bit operand comes out multiplied by x^33, hence the 33 in the exponents.
#include "core/digest/crc32c_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstring>

namespace farlift::digest::internal {

#if defined(__x86_64__)

namespace {

#define FARLIFT_WIDE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,vpclmulqdq,pclmul,sse4.2")))

// Constants that move a 128-bit lane `bits` further: for its low (earlier) half and for its high half.
template <std::uint64_t bits>
struct Fold {
  static constexpr std::uint64_t low = power_of_x(bits + 64 - 33);
  static constexpr std::uint64_t high = power_of_x(bits - 33);
};

template <std::uint64_t bits>
FARLIFT_WIDE inline __m512i fold512(__m512i lanes, __m512i next) noexcept {
  const __m512i k = _mm512_set_epi64(
      static_cast<long long>(Fold<bits>::high), static_cast<long long>(Fold<bits>::low),
      static_cast<long long>(Fold<bits>::high), static_cast<long long>(Fold<bits>::low),
      static_cast<long long>(Fold<bits>::high), static_cast<long long>(Fold<bits>::low),
      static_cast<long long>(Fold<bits>::high), static_cast<long long>(Fold<bits>::low));
  const __m512i low = _mm512_clmulepi64_epi128(lanes, k, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lanes, k, 0x11);
  return _mm512_ternarylogic_epi64(low, high, next, 0x96);  // three-way XOR
}

FARLIFT_WIDE inline __m128i fold128(__m128i lane, __m128i next) noexcept {
  const __m128i k = _mm_set_epi64x(static_cast<long long>(Fold<128>::high), static_cast<long long>(Fold<128>::low));
  const __m128i low = _mm_clmulepi64_si128(lane, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(lane, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

FARLIFT_WIDE inline __m512i load(const std::byte* at) noexcept { return _mm512_loadu_si512(at); }

FARLIFT_WIDE std::uint32_t finish(std::uint32_t state, const std::byte* bytes, std::size_t length) noexcept {
  std::uint64_t wide = state;
  for (; length >= 8; bytes += 8, length -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    wide = _mm_crc32_u64(wide, word);
  }
  auto narrow = static_cast<std::uint32_t>(wide);
  for (; length > 0; ++bytes, --length) narrow = _mm_crc32_u8(narrow, std::to_integer<unsigned char>(*bytes));
  return narrow;
}

constexpr std::size_t kStep = 256;

}  // namespace

bool wide_supported() noexcept {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul") &&
         __builtin_cpu_supports("sse4.2");
}

FARLIFT_WIDE std::uint32_t crc32c_wide(std::uint32_t state, const std::byte* bytes, std::size_t length) noexcept {
  if (length < kStep) return finish(state, bytes, length);
  __m512i a = _mm512_xor_si512(load(bytes), _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  __m512i b = load(bytes + 64);
  __m512i c = load(bytes + 128);
  __m512i d = load(bytes + 192);
  bytes += kStep;
  length -= kStep;
  for (; length >= kStep; bytes += kStep, length -= kStep) {
    a = fold512<2048>(a, load(bytes));
    b = fold512<2048>(b, load(bytes + 64));
    c = fold512<2048>(c, load(bytes + 128));
    d = fold512<2048>(d, load(bytes + 192));
  }
  a = fold512<512>(a, b);
  a = fold512<512>(a, c);
  a = fold512<512>(a, d);
  for (; length >= 64; bytes += 64, length -= 64) a = fold512<512>(a, load(bytes));
  __m128i lane = fold128(_mm512_castsi512_si128(a), _mm512_extracti32x4_epi32(a, 1));
  lane = fold128(lane, _mm512_extracti32x4_epi32(a, 2));
  lane = fold128(lane, _mm512_extracti32x4_epi32(a, 3));
  const std::uint64_t low = _mm_crc32_u64(0, static_cast<std::uint64_t>(_mm_cvtsi128_si64(lane)));
  const std::uint64_t both = _mm_crc32_u64(low, static_cast<std::uint64_t>(_mm_extract_epi64(lane, 1)));
  return finish(static_cast<std::uint32_t>(both), bytes, length);
}

#else

bool wide_supported() noexcept { return false; }
std::uint32_t crc32c_wide(std::uint32_t state, const std::byte* bytes, std::size_t length) noexcept {
  return crc32c_isal(state, bytes, length);
}

#endif

}  // namespace farlift::digest::internal
