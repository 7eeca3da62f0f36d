#include "core/digest/crc32c.h"

#include "core/base/prng.h"
#include "core/codec/bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "tests/vectors/vectors.h"

namespace farlift::digest {
namespace {

// The definition, a bit at a time.
std::uint32_t model(std::uint32_t state, std::span<const std::byte> bytes) {
  for (const std::byte b : bytes) {
    state ^= std::to_integer<std::uint32_t>(b);
    for (int bit = 0; bit < 8; ++bit)
      state = (state & 1) != 0 ? (state >> 1) ^ 0x82F63B78u : state >> 1;
  }
  return state;
}

std::vector<std::byte> random_bytes(std::size_t length, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(length);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  return bytes;
}

TEST(Crc32c, published_vectors) {
  for (const auto& vector : vectors::read("crc32c.txt")) {
    const Crc32c expected(codec::Reader(vector.out).u32_be().value());
    EXPECT_EQ(crc32c(vector.in.at(0)).raw(), expected.raw()) << vector.name;
    EXPECT_EQ(~model(~0u, vector.in.at(0)), expected.raw()) << vector.name;
  }
}

TEST(Crc32c, check_values_of_the_specification) {
  const std::string_view digits = "123456789";
  EXPECT_EQ(crc32c(std::as_bytes(std::span(digits))).raw(), 3808858755u);
  EXPECT_EQ(crc32c({}).raw(), 0u);
}

TEST(Crc32c, agrees_with_the_definition_at_every_length_and_alignment) {
  const auto bytes = random_bytes(1100, 1);
  const std::span<const std::byte> all(bytes);
  const std::uint32_t before = 0x12345678;
  for (std::size_t length = 0; length <= 1030; ++length) {
    const auto run = all.subspan(length % 67, length);
    ASSERT_EQ(crc32c_extend(Crc32c(~before), run).raw(), ~model(before, run)) << length;
  }
}

TEST(Crc32c, agrees_with_the_definition_over_a_long_run) {
  const auto bytes = random_bytes((3u << 20) + 77, 2);
  EXPECT_EQ(crc32c(bytes).raw(), ~model(~0u, bytes));
}

TEST(Crc32c, every_cut_of_a_run_combines_to_the_whole) {
  const auto bytes = random_bytes(700, 3);
  const std::span<const std::byte> all(bytes);
  const Crc32c whole = crc32c(all);
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    const auto a = all.first(cut);
    const auto b = all.subspan(cut);
    ASSERT_EQ(crc32c_extend(crc32c(a), b), whole) << cut;
    ASSERT_EQ(crc32c_combine(crc32c(a), crc32c(b), Length(b.size())), whole) << cut;
  }
}

TEST(Crc32c, every_flipped_bit_shows) {
  auto bytes = random_bytes(300, 4);
  const Crc32c whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    ASSERT_NE(crc32c(bytes), whole) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
  }
}

// Appending n zeros is what combine() does to a; checked beyond 4 GiB by composing, since lengths
// are 64-bit.
TEST(Crc32c, combine_handles_lengths_of_more_than_32_bits) {
  const Crc32c a(0xDEADBEEF);
  const auto append = [](Crc32c crc, std::uint64_t length) {
    return crc32c_combine(crc, Crc32c(0), Length(length));
  };
  const std::uint64_t long_length = (std::uint64_t{5} << 32) + 123;
  Crc32c stepwise = a;
  for (int i = 0; i < 5; ++i) stepwise = append(stepwise, std::uint64_t{1} << 32);
  EXPECT_EQ(append(stepwise, 123), append(a, long_length));
  EXPECT_EQ(append(append(a, UINT64_MAX), 1),
            append(append(a, std::uint64_t{1} << 63), std::uint64_t{1} << 63));
}

TEST(Crc32c, copying_gives_the_same_bytes_and_value) {
  for (const std::size_t length : {0u, 1u, 4096u, 32768u, 32769u, 300000u}) {
    const auto from = random_bytes(length, length);
    std::vector<std::byte> to(length + 1, std::byte{0xEE});
    EXPECT_EQ(crc32c_copy(to, from), crc32c(from));
    EXPECT_TRUE(std::equal(from.begin(), from.end(), to.begin()));
    EXPECT_EQ(to.back(), std::byte{0xEE});
  }
}

RC_GTEST_PROP(Crc32c, pieces_in_any_sizes_make_the_whole,
              (std::uint64_t seed, const std::vector<std::uint16_t>& cuts)) {
  std::size_t length = 0;
  for (const std::uint16_t cut : cuts) length += cut % 3000u;
  const auto bytes = random_bytes(length, seed);
  std::span<const std::byte> rest(bytes);
  Crc32cStream updated;
  Crc32cStream appended;
  for (const std::uint16_t cut : cuts) {
    const auto piece = rest.first(cut % 3000u);
    rest = rest.subspan(piece.size());
    updated.update(piece);
    appended.append(crc32c(piece), Length(piece.size()));
  }
  RC_ASSERT(updated.value() == crc32c(bytes));
  RC_ASSERT(appended.value() == crc32c(bytes));
  RC_ASSERT(updated.length() == Length(bytes.size()));
}

}  // namespace
}  // namespace farlift::digest
