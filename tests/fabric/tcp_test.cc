// The kvcache door over libfabric's own tcp wire, whose fence is the endpoint (spec kv 3): what a
// closed registration does not stop, the closed endpoint does.
#include "core/digest/crc32c.h"
#include "core/fabric/ofi/ofi.h"
#include "kvcache/node/testing/stub_domain.h"
#include "kvcache/node/testing/world.h"
#include "kvcache/wire/names.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/fabric/slow_reader.h"
#include "tests/support/long_run.h"

namespace farlift::kv::rig {
namespace {

using namespace std::chrono_literals;

class KvTcp : public ::testing::Test {
 protected:
  void SetUp() override {
    lane_ = lane::tcp();
    if (!lane_.missing.empty()) GTEST_SKIP() << lane_.missing;
  }
  Rig& start(std::size_t clients = 1, std::uint64_t arena = 4u << 20, std::uint64_t arenas = 4) {
    RigOptions options;
    options.lane = lane_;
    options.clients = clients;
    options.arena = Length(arena);
    options.arenas = arenas;
    options.memory = 2 * arena;
    rig_ = std::make_unique<Rig>(std::move(options));
    return *rig_;
  }
  lane::Lane lane_;
  std::unique_ptr<Rig> rig_;
};

TEST_F(KvTcp, K030_sizes_round_trip_in_both_modes) {
  Rig& rig = start();
  User& user = rig.user();
  std::uint64_t number = 0;
  for (const std::size_t size : {0u, 1u, 31u, 32u, 33u, 4095u, 4096u, 4097u, (1u << 20) - 1,
                                 1u << 20, (1u << 20) + 1, (4u << 20) - 4096}) {
    const Bytes key = key_of("k" + std::to_string(size)), value = pattern(size, ++number);
    const PutResult put = user.put(key, value);
    ASSERT_EQ(put.outcome, Outcome::ok) << size << ' ' << outcome_name(put.outcome) << put.why;
    for (const ReadMode mode : {ReadMode::framed, ReadMode::payload_only}) {
      const GetResult got = user.get(key, size, mode);
      ASSERT_EQ(got.outcome, Outcome::ok) << size << ' ' << outcome_name(got.outcome);
      EXPECT_EQ(got.version, put.version);
      EXPECT_TRUE(same(user.dest(size), value)) << size;
    }
  }
  EXPECT_EQ(user.put(key_of("large"), pattern((4u << 20) - 4095, 1)).outcome, Outcome::too_large);
}

TEST_F(KvTcp, K024_a_push_is_refused) {
  Rig& rig = start();
  const PutResult pushed = rig.user().put(key_of("k"), pattern(1000, 1), PutMode::if_absent, true);
  EXPECT_EQ(pushed.outcome, Outcome::bad_arg);
  EXPECT_FALSE(pushed.why.empty());
  EXPECT_FALSE(rig.stored(key_of("k")).has_value());
  EXPECT_EQ(rig.user().put(key_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
}

// What is completed before its bytes are placed would be a value that fails its CRC, or a node
// whose memory differs from what it just answered for.
void placed_when_answered(Rig& rig, bool push, int rounds) {
  constexpr std::size_t kSize = 2'400'000;
  for (int round = 0; round < rounds; ++round) {
    const Bytes key = key_of("k" + std::to_string(round));
    const Bytes value = pattern(kSize, static_cast<std::uint64_t>(round));
    PutResult put = rig.user().put(key, value, PutMode::if_absent, push);
    if (put.outcome == Outcome::full) {  // all arenas are used, or were when the node last said
      ASSERT_TRUE(rig.rotate());
      ASSERT_TRUE(rig.run([&] {
        put = rig.user().put(key, value, PutMode::if_absent, push);
        return put.outcome != Outcome::full;
      }));
    }
    ASSERT_EQ(put.outcome, Outcome::ok) << outcome_name(put.outcome) << " in round " << round;
    const auto descriptor = rig.stored(key);
    ASSERT_TRUE(descriptor.has_value());
    const std::byte* const header = rig.see().at(descriptor->location);
    ASSERT_NE(header, nullptr);
    ASSERT_TRUE(same(std::span(header + kHeaderBytes, kSize), value)) << "in round " << round;
  }
}

TEST_F(KvTcp, R045_a_pull_that_is_answered_has_its_bytes_in_place) {
  placed_when_answered(start(), false, farlift::testing::repeats(60, 5000));
}

TEST(KvSoftLane, R045_a_push_that_is_sealed_has_its_bytes_in_place) {
  RigOptions options;
  options.lane = lane::soft();
  options.arenas = 4;
  Rig rig(std::move(options));
  placed_when_answered(rig, true, farlift::testing::repeats(60, 10'000));
}

TEST_F(KvTcp, K049_rotation_refuses_old_descriptors_and_clients_come_back_by_themselves) {
  Rig& rig = start(2);
  for (std::uint64_t round = 0; round < 5; ++round) {
    const Bytes key = key_of("k"), other = key_of("other"), value = pattern(200'000, round);
    ASSERT_EQ(rig.user(0).put(key, value, PutMode::replace).outcome, Outcome::ok);
    ASSERT_EQ(rig.user(1).get(key, value.size()).outcome, Outcome::ok);  // cached now
    const auto pair = rig.valkey.state().get(descriptor_name("t1", key));
    const auto tag = rig.valkey.state().get(tag_name("t1", key));
    ASSERT_TRUE(rig.rotate());
    EXPECT_EQ(rig.see().counter("endpoint_fences"), round + 1);
    const Outcome held = rig.user(1).get(key, value.size()).outcome;
    EXPECT_TRUE(held == Outcome::miss || held == Outcome::access) << outcome_name(held);
    ASSERT_EQ(rig.user(0).put(other, pattern(200'000, 100 + round), PutMode::replace).outcome,
              Outcome::ok);
    // Replayed by somebody who can write Valkey: dead all the same.
    rig.valkey.write(descriptor_name("t1", key), *pair);
    rig.valkey.write(tag_name("t1", key), *tag);
    const Outcome replayed = rig.user(1).get(key, value.size(), ReadMode::payload_only).outcome;
    EXPECT_TRUE(replayed == Outcome::miss || replayed == Outcome::access) << outcome_name(replayed);
    ASSERT_EQ(rig.user(1).get(other, value.size()).outcome, Outcome::ok);
    EXPECT_TRUE(same(rig.user(1).dest(value.size()), pattern(200'000, 100 + round)));
  }
}

TEST_F(KvTcp, K053_slow_readers_across_rotations_get_whole_values_or_none) {
  constexpr std::size_t kSize = std::size_t{3} << 20;
  Rig& rig = start(2);
  const std::uint64_t rounds = farlift::testing::repeats(100, 1000);
  const SlowReads seen = slow_reads(rig, kSize, rounds);
  std::printf("%lu reads, %lu caught under way, %lu whole, %lu without bytes\n", seen.done,
              seen.caught, seen.whole, seen.none);
  EXPECT_EQ(seen.done, rounds);
  EXPECT_EQ(seen.wrong, 0u);
  EXPECT_GT(seen.caught, 0u);
  EXPECT_GT(seen.none, 0u);
  EXPECT_EQ(rig.see().counter("arenas_lost"), 0u);
}

}  // namespace
}  // namespace farlift::kv::rig

// EFA's targets must know who reads from them. There is no EFA here: soft rails go by its name, and
// what their targets are told is recorded.
namespace farlift::kv::rig {
namespace {

TEST(KvEfaByName, each_side_introduces_the_endpoints_that_will_read) {
  node::testing::StubControl at_node, at_client;
  lane::Lane lane = lane::soft();
  const auto told = [open = lane.node](node::testing::StubControl& control) {
    return [open, &control]() -> Result<std::unique_ptr<fabric::Domain>> {
      TRY_ASSIGN(auto domain, open());
      return control.wrap()(std::move(domain), 0);
    };
  };
  lane.provider = "efa";
  lane.node = told(at_node);
  lane.client = told(at_client);
  RigOptions options;
  options.lane = lane;
  options.node = [](NodeOptions& node) { node.self_test = false; };
  Rig rig(std::move(options));
  const Bytes value = pattern(50'000, 1);
  ASSERT_EQ(rig.user().put(key_of("k"), value).outcome, Outcome::ok);
  ASSERT_EQ(rig.user().get(key_of("k"), value.size()).outcome, Outcome::ok);
  EXPECT_TRUE(same(rig.user().dest(value.size()), value));
  ASSERT_EQ(at_node.introduced.size(), 2u) << "the client's target, and who reads for it";
  EXPECT_NE(at_node.introduced[0], at_node.introduced[1]);
  EXPECT_EQ(at_client.introduced.size(), 1u) << "who pulls for the node";
}

}  // namespace
}  // namespace farlift::kv::rig

// What a client by hand sees of the fabric below the door.
namespace farlift::kv::node::testing {
namespace {

class KvTcpRaw : public ::testing::Test {
 protected:
  void SetUp() override {
    const lane::Lane lane = lane::tcp();
    if (!lane.missing.empty()) GTEST_SKIP() << lane.missing;
    WorldOptions with;
    with.open = [lane](const std::string& party) {
      return (party == "c1" ? lane.client() : lane.node()).value();
    };
    with.provider = lane.provider;
    world_ = std::make_unique<World>(std::move(with));
    NodeOptions options = world_->options();
    options.grace = Duration(0);
    options.self_test = true;
    world_->start(std::move(options));
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(KvTcpRaw, K024_no_grant_is_given_where_it_could_not_be_taken_back) {
  EXPECT_EQ(client_->welcome().fence_mode, FenceWord::endpoint);
  EXPECT_EQ(client_->alloc(bytes_of("k"), 1000, client_->new_put_id()).outcome, Outcome::bad_arg);
  EXPECT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(1000, 1));
}

TEST_F(KvTcpRaw, K085_an_arena_cannot_be_written) {
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(640, 1)).outcome, Outcome::ok);
  const Descriptor d = *world_->stored_descriptor("t1", bytes_of("k"));
  Bytes junk = pattern(640, 2);
  EXPECT_FALSE(client_->move(fabric::OpKind::write, d.rkeys[0], d.location.addr, junk).ok());
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(640, 1));
}

TEST_F(KvTcpRaw, K049_a_read_with_an_old_key_over_a_fresh_endpoint_is_refused) {
  const Bytes value = pattern(200'000, 1);
  ASSERT_EQ(client_->put(bytes_of("k"), value).outcome, Outcome::ok);
  const Descriptor held = *world_->stored_descriptor("t1", bytes_of("k"));
  EXPECT_EQ(client_->read(held).value(), value);
  world_->node().rotate_all();
  ASSERT_TRUE(world_->until([&] { return world_->see().counter("arenas_rotating") == 0; }));
  EXPECT_FALSE(client_->read(held).ok()) << "the endpoint it knew is closed";
  EXPECT_FALSE(client_->connected()) << "clients say HELLO again";
  ASSERT_EQ(client_->greet(), Outcome::ok);
  ASSERT_EQ(client_->put(bytes_of("fill"), pattern(900'000, 2)).outcome, Outcome::ok);
  EXPECT_FALSE(client_->read(held).ok());
  EXPECT_EQ(client_->get(bytes_of("fill")), pattern(900'000, 2));
}

}  // namespace
}  // namespace farlift::kv::node::testing
