// The client over the software provider: real bytes, real threads inside, both lanes.
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

#include <map>

namespace farlift::kv::client::testing {
namespace {

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

WorldOptions soft_world(std::size_t landing, Length arena, std::size_t rails = 1) {
  WorldOptions options;
  options.soft = true;
  options.landing = landing;
  options.arena = arena;
  options.rails = rails;
  return options;
}

TEST(KvSoft, R051_every_byte_of_large_values_is_right) {
  for (const std::size_t rails : {std::size_t{1}, std::size_t{2}}) {
    World world(soft_world(std::size_t{66} << 20, Length(std::uint64_t{100} << 20), rails));
    std::uint64_t number = 0;
    for (const std::size_t mib : {1u, 5u, 32u}) {
      const Bytes value = pattern((mib << 20) - 1, mib);
      ASSERT_EQ(world.put(key_of(++number), value).outcome, Outcome::ok) << mib;
      for (const ReadMode mode : {ReadMode::framed, ReadMode::payload_only}) {
        ASSERT_EQ(world.get(key_of(number), world.dest(value.size()), mode).outcome, Outcome::ok);
        EXPECT_TRUE(same(world.dest(value.size()), value)) << mib;
      }
    }
    // One of 64 MiB cannot be put from half the landing memory: the node has it already.
    const Bytes largest = pattern(std::size_t{58} << 20, 64);
    world.node().publish(key_of(99), largest, Version(1, 1));
    ASSERT_EQ(world.get(key_of(99), world.dest(largest.size())).outcome, Outcome::ok);
    EXPECT_TRUE(same(world.dest(largest.size()), largest));
  }
}

TEST(KvSoft, K030_small_sizes_by_pull_and_push) {
  World world(soft_world(8u << 20, Length(16u << 20)));
  std::uint64_t number = 0;
  for (const bool push : {false, true}) {
    for (const std::size_t size :
         {0u, 1u, 31u, 32u, 33u, 4095u, 4096u, 4097u, (1u << 20) - 1, 1u << 20, (1u << 20) + 1}) {
      const Bytes value = pattern(size, ++number);
      ASSERT_EQ(world.put(key_of(number), value, PutMode::if_absent, {}, push).outcome, Outcome::ok)
          << size;
      ASSERT_EQ(world.get(key_of(number), world.dest(size)).outcome, Outcome::ok);
      EXPECT_TRUE(same(world.dest(size), value));
    }
  }
}

TEST(KvSoft, R052_many_batches_with_absent_keys_end_in_bounded_time) {
  WorldOptions options = soft_world(16u << 20, Length(4u << 20));
  // All wait at once for one thread; what is tested is that they end, not how fast the machine is.
  options.tune = [](ClientOptions& o) {
    o.operation_limit = std::chrono::seconds(50);
    o.control_timeout = std::chrono::seconds(50);
  };
  World world(std::move(options));
  constexpr std::uint64_t kKeys = 1000;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    if (i % 10 >= 3) world.node().publish(key_of(i), pattern(64, i), Version(1, 1));
  }
  std::size_t left = 512;
  std::map<Outcome, std::uint64_t> wrong;
  for (std::uint64_t batch = 0; batch < 512; ++batch) {
    std::vector<GetRequest> requests;
    for (std::uint64_t i = 0; i < 128; ++i) {
      requests.push_back(
          {key_of((batch * 37 + i) % kKeys), world.dest(64, (batch * 128 + i) * 64)});
    }
    world.client->mget(std::move(requests), [&, batch](const std::vector<GetResult>& results) {
      for (std::uint64_t i = 0; i < 128; ++i) {
        const bool there = (batch * 37 + i) % kKeys % 10 >= 3;
        if (results[i].outcome == (there ? Outcome::ok : Outcome::miss)) continue;
        ++wrong[results[i].outcome];
      }
      --left;
    });
  }
  ASSERT_TRUE(world.run([&] { return left == 0; }));
  for (const auto& [outcome, count] : wrong)
    ADD_FAILURE() << count << " ended as " << outcome_name(outcome);
}

TEST(KvSoft, K049_a_rotated_arena_refuses) {
  World world(soft_world(1u << 20, Length(1u << 20)));
  world.node().publish(key_of(1), pattern(5000, 1), Version(1, 1));
  ASSERT_EQ(world.get(key_of(1), world.dest(5000)).outcome, Outcome::ok);
  world.node().rotate();
  EXPECT_EQ(world.get(key_of(1), world.dest(5000)).outcome, Outcome::access);
  world.node().publish(key_of(2), pattern(5000, 2), Version(1, 2));
  EXPECT_EQ(world.get(key_of(2), world.dest(5000)).outcome, Outcome::ok);
  EXPECT_EQ(world.node().seen.hellos, 1u) << "a refusal ends nothing but itself here";
}

TEST(KvSoft, K062_a_restarted_node_is_stale) {
  World world(soft_world(1u << 20, Length(1u << 20)));
  world.node().publish(key_of(1), pattern(5000, 1), Version(1, 1));
  ASSERT_EQ(world.get(key_of(1), world.dest(5000)).outcome, Outcome::ok);
  world.node().restart(true);
  world.pass(std::chrono::milliseconds(50));
  EXPECT_EQ(world.get(key_of(1), world.dest(5000)).outcome, Outcome::stale);
}

}  // namespace
}  // namespace farlift::kv::client::testing
