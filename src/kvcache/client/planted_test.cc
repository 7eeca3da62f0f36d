// The planted bugs do what they are for: what the other tests forbid happens with them (spec kv
// 12).
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;

TEST(KvPlanted, report_on_soft_timeout_lets_bytes_land_after_the_report) {
  WorldOptions options;
  options.tune = [](ClientOptions& o) { o.planted.report_on_soft_timeout = true; };
  World world(options);
  world.node().publish(key_of(1), pattern(60000, 1), Version(1, 1));
  std::optional<GetResult> got;
  const auto dest = world.dest(60000);
  world.client->get({key_of(1), dest, ReadMode::payload_only}, [&](GetResult r) { got = r; });
  ASSERT_TRUE(world.run([&] { return world.network->moving() > 0; }));
  world.network->stop(world.node().target(0), true);
  ASSERT_TRUE(world.run([&] { return got.has_value(); }));
  ASSERT_EQ(got->outcome, Outcome::timeout);
  std::fill(dest.begin(), dest.end(), std::byte{0xCA});
  world.network->stop(world.node().target(0), false);
  world.pass(1s);
  EXPECT_NE(static_cast<std::size_t>(std::count(dest.begin(), dest.end(), std::byte{0xCA})),
            dest.size());
}

TEST(KvPlanted, tag_without_key_takes_the_pair_of_another_key) {
  WorldOptions options;
  options.tune = [](ClientOptions& o) { o.planted.tag_without_key = true; };
  World world(options);
  const Bytes value = pattern(100, 2);
  Stored other = world.node().publish(key_of(2), value, Version(1, 1));
  const Tag tag = make_tag(world.keys.signing(), "t1", {}, other.bytes);
  other.tag.assign(tag.begin(), tag.end());
  world.node().write(key_of(1), other);
  EXPECT_EQ(world.get(key_of(1), world.dest(100), ReadMode::payload_only).outcome, Outcome::ok);
}

TEST(KvPlanted, skip_crc_hands_out_corrupt_bytes) {
  WorldOptions options;
  options.tune = [](ClientOptions& o) { o.planted.skip_crc = true; };
  World world(options);
  const Stored stored = world.node().publish(key_of(1), pattern(100, 3), Version(1, 1));
  world.node().slot(stored.descriptor)[kHeaderBytes] ^= std::byte{1};
  EXPECT_EQ(world.get(key_of(1), world.dest(100)).outcome, Outcome::ok);
}

}  // namespace
}  // namespace farlift::kv::client::testing
