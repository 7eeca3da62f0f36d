#include "blob/client/verify.h"

#include "core/digest/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>

namespace farlift::client {
namespace {

using fabric::LandedRun;

std::vector<std::byte> pattern(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i)
    bytes[i] = static_cast<std::byte>((i * 131 + i / 251) & 0xff);
  return bytes;
}

LandedRun run_of(std::span<const std::byte> memory, std::size_t offset, std::size_t length) {
  return {Offset(offset), Length(length), digest::crc32c(memory.subspan(offset, length))};
}

class CombineLanded : public ::testing::Test {
 protected:
  const std::vector<std::byte> memory_ = pattern(10'000);
  const Extent extent_{Offset(1000), Length(4096)};
  Crc32c whole() const { return digest::crc32c(std::span(memory_).subspan(1000, 4096)); }
};

TEST_F(CombineLanded, EveryOrderOfExactPiecesGivesTheCrcOfTheWhole) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<LandedRun> runs;
    for (std::size_t at = 1000; at < 5096;) {
      const std::size_t length = std::min<std::size_t>(1 + random() % 900, 5096 - at);
      runs.push_back(run_of(memory_, at, length));
      at += length;
    }
    std::shuffle(runs.begin(), runs.end(), random);
    EXPECT_EQ(combine_landed(runs, extent_), whole());
  }
}

TEST_F(CombineLanded, RunsElsewhereDoNotMatter) {
  const std::vector<LandedRun> runs = {run_of(memory_, 0, 1000), run_of(memory_, 1000, 4096),
                                       run_of(memory_, 5096, 10)};
  EXPECT_EQ(combine_landed(runs, extent_), whole());
}

TEST_F(CombineLanded, GapsOverlapsAndBordersCrossedAreNotTrusted) {
  const auto refused = [&](std::vector<LandedRun> runs) { return !combine_landed(runs, extent_); };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({run_of(memory_, 1000, 4095)}));
  EXPECT_TRUE(refused({run_of(memory_, 1001, 4095)}));
  EXPECT_TRUE(refused({run_of(memory_, 1000, 2000), run_of(memory_, 3001, 2095)}));
  EXPECT_TRUE(refused({run_of(memory_, 1000, 2001), run_of(memory_, 3000, 2096)}));
  EXPECT_TRUE(refused({run_of(memory_, 1000, 4096), run_of(memory_, 1000, 4096)}));
  EXPECT_TRUE(refused({run_of(memory_, 1000, 4096), run_of(memory_, 2000, 1)}));
  EXPECT_TRUE(refused({run_of(memory_, 999, 4097)}));
  EXPECT_TRUE(refused({run_of(memory_, 1000, 4097)}));
}

TEST(WithinExtents, AcceptsUnionsAndRefusesEverythingOutside) {
  const std::vector<Extent> extents = {{Offset(300), Length(100)}, {Offset(100), Length(200)}};
  const auto run = [](std::size_t offset, std::size_t length) {
    return std::vector<LandedRun>{{Offset(offset), Length(length), Crc32c()}};
  };
  EXPECT_TRUE(within_extents({}, extents));
  EXPECT_TRUE(within_extents(run(100, 300), extents));
  EXPECT_TRUE(within_extents(run(399, 1), extents));
  EXPECT_FALSE(within_extents(run(399, 2), extents));
  EXPECT_FALSE(within_extents(run(99, 2), extents));
  EXPECT_FALSE(within_extents(run(0, 10), extents));
  EXPECT_FALSE(within_extents(run(500, 10), extents));
}

TEST(HashMemory, LongAndOddStretchesEqualTheOneThreadedCrc) {
  const std::vector<std::byte> memory = pattern((std::size_t{4} << 20) + 12'345);
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, (std::size_t{4} << 20) - 1,
                                   std::size_t{4} << 20, memory.size()}) {
    const auto part = std::span(memory).first(length);
    EXPECT_EQ(hash_memory(part), digest::crc32c(part)) << length;
  }
}

TEST(Overlapping, TouchingIsNotOverlapping) {
  EXPECT_FALSE(overlapping(std::vector<Extent>{{Offset(10), Length(5)}, {Offset(0), Length(10)}}));
  EXPECT_TRUE(overlapping(std::vector<Extent>{{Offset(9), Length(5)}, {Offset(0), Length(10)}}));
  EXPECT_FALSE(overlapping({}));
}

}  // namespace
}  // namespace farlift::client
