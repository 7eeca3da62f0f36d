// Links and who may use them (spec kv 5, 10), in a simulated world.
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

class KvNodeSession : public ::testing::Test {
 protected:
  void SetUp() override {
    world_ = std::make_unique<World>();
    NodeOptions options = world_->options();
    options.tenants.push_back({"t2", keyring_of(2), Length(4u << 20)});
    world_->start(std::move(options));
  }
  std::unique_ptr<World> world_;
};

TEST_F(KvNodeSession, K073_wrong_and_replayed_proofs_are_refused) {
  RawClient client(*world_, "c1");
  ASSERT_EQ(client.hello(), Outcome::ok);
  Tag wrong{};
  EXPECT_EQ(client.hello2(wrong), Outcome::reject_sig);
  world_->pass(1s);
  EXPECT_EQ(world_->see().counter("links"), 0u) << "the link is gone";

  ASSERT_EQ(client.greet(), Outcome::ok);
  const Tag good = hello_proof(keyring_of(1).signing(), 'c', client.request(), client.welcome());
  RawClient replayer(*world_, "c2");
  ASSERT_EQ(replayer.hello(), Outcome::ok);
  EXPECT_EQ(replayer.hello2(good), Outcome::reject_sig) << "another nonce, another proof";

  RawClient other(*world_, "c3", "t2", keyring_of(2));
  ASSERT_EQ(other.hello(), Outcome::ok);
  EXPECT_EQ(
      other.hello2(hello_proof(keyring_of(1).signing(), 'c', other.request(), other.welcome())),
      Outcome::reject_sig)
      << "a proof of another tenant";
  EXPECT_EQ(world_->see().counter("proofs_refused"), 3u);
}

TEST_F(KvNodeSession, K073_nothing_is_served_before_the_proof) {
  RawClient client(*world_, "c1");
  ASSERT_EQ(client.hello(), Outcome::ok);
  EXPECT_FALSE(client.call(FrameType::stat, {}, 1s).has_value());
  ASSERT_EQ(client.hello(), Outcome::ok);
  EXPECT_FALSE(
      client
          .call(FrameType::put_pull, encode(client.pull_request(bytes_of("k"), pattern(5, 1))), 1s)
          .has_value());
  EXPECT_FALSE(world_->stored_descriptor("t1", bytes_of("k")).has_value());
  EXPECT_EQ(world_->see().counter("protocol_errors"), 2u);
  EXPECT_EQ(world_->see().counter("puts_pull"), 0u);
}

TEST_F(KvNodeSession, unknown_tenants_and_keys_are_told_nothing) {
  RawClient stranger(*world_, "c1", "nobody", keyring_of(1));
  EXPECT_EQ(stranger.hello(), Outcome::reject_sig);
  EXPECT_TRUE(stranger.welcome().rails.empty());
  RawClient wrong_id(*world_, "c2", "t1", keyring_of(1, KeyId(9)));
  EXPECT_EQ(wrong_id.hello(), Outcome::reject_sig);
  RawClient unsigned_client(*world_, "c3", "t1", Keyring::development());
  EXPECT_EQ(unsigned_client.hello(), Outcome::reject_sig) << "no negotiation";
}

TEST_F(KvNodeSession, a_link_that_says_nothing_ends) {
  RawClient client(*world_, "c1");
  ASSERT_EQ(client.hello(), Outcome::ok);
  EXPECT_EQ(world_->see().counter("links"), 1u);
  world_->pass(6s);
  EXPECT_EQ(world_->see().counter("links"), 0u);
}

TEST_F(KvNodeSession, bodies_that_are_not_their_types_are_bad_arguments) {
  RawClient client(*world_, "c1");
  ASSERT_EQ(client.greet(), Outcome::ok);
  const Bytes junk = bytes_of("junk");
  for (const FrameType type : {FrameType::abort, FrameType::remove, FrameType::superseded,
                               FrameType::stale_seen, FrameType::rotate, FrameType::drain}) {
    EXPECT_EQ(client.simple(type, junk), Outcome::bad_arg);
  }
  for (const FrameType type : {FrameType::put_pull, FrameType::seal}) {
    EXPECT_EQ(decode_put_reply(client.call(type, junk)->body)->outcome, Outcome::bad_arg);
  }
  EXPECT_EQ(decode_alloc_reply(client.call(FrameType::alloc, junk)->body)->outcome,
            Outcome::bad_arg);
  EXPECT_TRUE(client.connected());
  EXPECT_EQ(client.put(bytes_of("k"), pattern(5, 1)).outcome, Outcome::ok);
}

TEST_F(KvNodeSession, K072_keys_of_one_tenant_open_nothing_of_another) {
  RawClient one(*world_, "c1"), two(*world_, "c2", "t2", keyring_of(2));
  ASSERT_EQ(one.greet(), Outcome::ok);
  ASSERT_EQ(two.greet(), Outcome::ok);
  ASSERT_EQ(two.put(bytes_of("k"), pattern(5000, 2)).outcome, Outcome::ok);
  ASSERT_EQ(one.put(bytes_of("k"), pattern(5000, 1)).outcome, Outcome::ok);
  const auto of_two = world_->stored_descriptor("t2", bytes_of("k"));
  ASSERT_TRUE(of_two.has_value());
  EXPECT_EQ(one.read(*of_two).code(), Errc::access) << "the tenant's endpoint has its own domain";
  Descriptor guess = *of_two;
  for (int i = -1000; i <= 1000; i += 8) {
    guess.rkeys[0] = RKey(of_two->rkeys[0].raw() + static_cast<std::uint64_t>(i));
    EXPECT_EQ(one.read(guess).code(), Errc::access);
  }
  EXPECT_EQ(two.get(bytes_of("k")), pattern(5000, 2));
  EXPECT_EQ(one.get(bytes_of("k")), pattern(5000, 1));
}

TEST_F(KvNodeSession, a_tenant_rotates_its_own_arenas_only) {
  RawClient one(*world_, "c1"), two(*world_, "c2", "t2", keyring_of(2));
  ASSERT_EQ(one.greet(), Outcome::ok);
  ASSERT_EQ(two.greet(), Outcome::ok);
  ASSERT_EQ(one.put(bytes_of("k"), pattern(50, 1)).outcome, Outcome::ok);
  const auto of_one = world_->stored_descriptor("t1", bytes_of("k"));
  EXPECT_EQ(two.simple(FrameType::rotate, encode(RotateRequest{of_one->location.arena, false})),
            Outcome::miss);
  EXPECT_EQ(one.simple(FrameType::rotate, encode(RotateRequest{of_one->location.arena, false})),
            Outcome::ok);
  const auto stat = decode_stat_reply(one.call(FrameType::stat, {})->body);
  ASSERT_TRUE(stat.ok());
  EXPECT_FALSE(stat->counters.empty());
}

TEST_F(KvNodeSession, no_tenant_drains_a_node_that_others_share) {
  RawClient one(*world_, "c1"), two(*world_, "c2", "t2", keyring_of(2));
  ASSERT_EQ(one.greet(), Outcome::ok);
  ASSERT_EQ(two.greet(), Outcome::ok);
  EXPECT_EQ(two.simple(FrameType::drain, {}), Outcome::bad_arg);
  EXPECT_EQ(one.put(bytes_of("k"), pattern(50, 1)).outcome, Outcome::ok);
}

TEST(KvNodeLimits, more_links_than_allowed_are_closed) {
  World world;
  NodeOptions options = world.options();
  options.links_max = 2;
  world.start(std::move(options));
  RawClient a(world, "a"), b(world, "b"), c(world, "c");
  EXPECT_EQ(a.greet(), Outcome::ok);
  EXPECT_EQ(b.greet(), Outcome::ok);
  EXPECT_EQ(c.greet(), Outcome::unreachable);
  EXPECT_EQ(world.see().counter("links_refused"), 1u);
}

TEST(KvNodeDevelopment, without_a_key_ring_nothing_is_signed) {
  World world;
  NodeOptions options = world.options();
  options.tenants.clear();
  options.tenants.push_back({"t1", Keyring::development(), Length(4u << 20)});
  world.start(std::move(options));
  RawClient client(world, "c1", "t1", Keyring::development());
  ASSERT_EQ(client.greet(), Outcome::ok);
  const PutReply put = client.put(bytes_of("k"), pattern(50, 1));
  ASSERT_EQ(put.outcome, Outcome::ok);
  EXPECT_TRUE(put.tag.empty());
  EXPECT_EQ(client.get(bytes_of("k")), pattern(50, 1));
}

}  // namespace
}  // namespace farlift::kv::node::testing
