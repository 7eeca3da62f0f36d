// The tests of slow readers bite: with a software provider trusted as if it were a card, and the
// CRC not compared, they see wrong bytes; with the endpoint fence alone they see none (spec kv, 3
// and T54).
#include <gtest/gtest.h>

#include "tests/fabric/slow_reader.h"
#include "tests/support/long_run.h"

namespace farlift::kv::rig {
namespace {

constexpr std::size_t kValue = std::size_t{12} << 20;

RigOptions options_with(const lane::Lane& lane, PlantedBug bug) {
  RigOptions options;
  options.lane = lane;
  options.arena = Length(16u << 20);
  options.arenas = 4;  // one is used; the rest is why the node's record never says full
  options.memory = 2 * kValue;
  options.clients = 2;
  options.node = [bug](NodeOptions& node) { node.planted = bug; };
  options.client = [](ClientOptions& client) { client.planted.skip_crc = true; };
  return options;
}

TEST(KvTcpPlanted, K054_without_crc_and_fence_wrong_bytes_are_seen) {
  const lane::Lane lane = lane::tcp();
  if (!lane.missing.empty()) GTEST_SKIP() << lane.missing;
  Rig rig(options_with(lane, PlantedBug::fence_mr_everywhere));
  const SlowReads seen = slow_reads(rig, kValue, 200, true);
  std::printf("wrong after %lu reads, %lu caught under way\n", seen.done, seen.caught);
  EXPECT_GT(seen.wrong, 0u) << "the harness would not notice a missing fence";
  EXPECT_EQ(rig.see().counter("endpoint_fences"), 0u);
}

TEST(KvTcpPlanted, K054_the_endpoint_fence_alone_keeps_wrong_bytes_out) {
  const lane::Lane lane = lane::tcp();
  if (!lane.missing.empty()) GTEST_SKIP() << lane.missing;
  Rig rig(options_with(lane, PlantedBug::none));
  const std::uint64_t rounds = farlift::testing::repeats(20, 300);
  const SlowReads seen = slow_reads(rig, kValue, rounds);
  std::printf("%lu reads, %lu caught under way, %lu whole, %lu without bytes\n", seen.done,
              seen.caught, seen.whole, seen.none);
  EXPECT_EQ(seen.done, rounds);
  EXPECT_EQ(seen.wrong, 0u);
  EXPECT_GT(seen.caught, 0u);
  EXPECT_GT(seen.none, 0u);
}

}  // namespace
}  // namespace farlift::kv::rig
