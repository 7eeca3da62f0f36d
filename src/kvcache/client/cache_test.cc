#include "kvcache/client/descriptor_cache.h"
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;

Descriptor of(std::uint32_t rev) {
  Descriptor descriptor;
  descriptor.version = Version(rev, 1);
  descriptor.rkeys = {RKey(1)};
  return descriptor;
}

TEST(KvCache, an_entry_lives_for_L_from_when_it_was_asked_for) {
  DescriptorCache cache(10, 10s);
  const Instant start{};
  cache.insert(key_of(1), of(1), cache.stamp(), start);
  EXPECT_NE(cache.find(key_of(1), start + 10s), nullptr);
  EXPECT_EQ(cache.find(key_of(1), start + 10s + 1ns), nullptr);
}

TEST(KvCache, the_least_recently_used_goes_first) {
  DescriptorCache cache(3, 10s);
  const Instant now{};
  for (std::uint64_t i = 0; i < 3; ++i) cache.insert(key_of(i), of(1), cache.stamp(), now);
  ASSERT_NE(cache.find(key_of(0), now), nullptr);
  cache.insert(key_of(3), of(1), cache.stamp(), now);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.find(key_of(1), now), nullptr);
  EXPECT_NE(cache.find(key_of(0), now), nullptr);
}

TEST(KvCache, a_reply_that_was_asked_for_before_a_drop_does_not_come_back) {
  DescriptorCache cache(3, 10s);
  const Instant now{};
  const Stamp before = cache.stamp();
  cache.drop(key_of(1));
  cache.insert(key_of(1), of(1), before, now);
  EXPECT_EQ(cache.find(key_of(1), now), nullptr);
  cache.insert(key_of(1), of(2), cache.stamp(), now);
  EXPECT_NE(cache.find(key_of(1), now), nullptr);
}

TEST(KvCache, not_even_when_the_drop_itself_was_forgotten) {
  DescriptorCache cache(2, 10s);
  const Instant now{};
  const Stamp before = cache.stamp();
  cache.drop(key_of(1));
  for (std::uint64_t i = 10; i < 14; ++i) cache.insert(key_of(i), of(1), cache.stamp(), now);
  cache.insert(key_of(1), of(1), before, now);
  EXPECT_EQ(cache.find(key_of(1), now), nullptr);
  cache.clear();
  EXPECT_EQ(cache.size(), 0u);
  cache.insert(key_of(1), of(1), before, now);
  EXPECT_EQ(cache.find(key_of(1), now), nullptr);
}

TEST(KvCache, none_is_none) {
  DescriptorCache cache(0, 10s);
  cache.insert(key_of(1), of(1), cache.stamp(), Instant{});
  EXPECT_EQ(cache.find(key_of(1), Instant{}), nullptr);
}

}  // namespace
}  // namespace farlift::kv::client::testing
