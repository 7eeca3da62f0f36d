// The node over the software provider: real bytes through real sockets and process memory.
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

#include <set>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

class KvNodeSoft : public ::testing::Test {
 protected:
  void SetUp() override {
    WorldOptions with;
    with.soft = true;
    world_ = std::make_unique<World>(std::move(with));
    NodeOptions options = world_->options();
    options.grace = 30ms;
    options.self_test = true;
    options.hash_threads = 1;
    world_->start(std::move(options));
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(KvNodeSoft, K030_pulls_of_all_lengths) {
  EXPECT_EQ(client_->welcome().fence_mode, FenceWord::mr);
  for (const std::size_t size : {0u, 1u, 31u, 33u, 4095u, 4097u, 65536u, 300001u, 1044480u}) {
    const Bytes key = bytes_of("k" + std::to_string(size)), value = pattern(size, size + 1);
    ASSERT_EQ(client_->put(key, value).outcome, Outcome::ok) << size;
    EXPECT_EQ(client_->get(key), value) << size;
  }
}

TEST_F(KvNodeSoft, K023_K033_push_and_what_is_refused) {
  const Bytes before = pattern(640, 1), after = pattern(640, 2), value = pattern(70000, 3);
  ASSERT_EQ(client_->put(bytes_of("before"), before).outcome, Outcome::ok);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(bytes_of("k"), value.size(), id);
  ASSERT_EQ(grant.outcome, Outcome::ok);
  ASSERT_EQ(client_->put(bytes_of("after"), after).outcome, Outcome::ok);
  AllocReply shifted = grant;
  shifted.payload = RemoteAddr(grant.payload.raw() - 1);
  EXPECT_FALSE(client_->write(shifted, value).ok());
  shifted.payload = RemoteAddr(grant.payload.raw() + 1);
  EXPECT_FALSE(client_->write(shifted, value).ok());
  ASSERT_TRUE(client_->write(grant, value).ok());
  ASSERT_EQ(client_->seal(grant, id, digest::crc32c(value)).outcome, Outcome::ok);
  EXPECT_EQ(client_->write(grant, pattern(70000, 4)).code(), Errc::access);
  EXPECT_EQ(client_->get(bytes_of("k")), value);
  EXPECT_EQ(client_->get(bytes_of("before")), before);
  EXPECT_EQ(client_->get(bytes_of("after")), after);
}

TEST_F(KvNodeSoft, K049_rotation_refuses_what_was_read_before) {
  for (std::uint64_t round = 0; round < 5; ++round) {
    const Bytes key = bytes_of("k"), value = pattern(200000, round);
    ASSERT_EQ(client_->put(key, value, PutMode::replace).outcome, Outcome::ok);
    const Descriptor held = *world_->stored_descriptor("t1", key);
    EXPECT_EQ(client_->read(held).value(), value);
    world_->node().rotate_all();
    ASSERT_TRUE(world_->until([&] { return world_->see().counter("arenas_rotating") == 0; }));
    ASSERT_EQ(
        client_->put(bytes_of("fill"), pattern(900000, round + 100), PutMode::replace).outcome,
        Outcome::ok);
    EXPECT_EQ(client_->read(held).code(), Errc::access);
    EXPECT_FALSE(client_->get(key).has_value());
    EXPECT_EQ(client_->get(bytes_of("fill")), pattern(900000, round + 100));
  }
}

// Keys that the provider draws: real registrations of real memory.
TEST_F(KvNodeSoft, K050_no_key_of_the_software_provider_comes_back) {
  std::set<std::uint64_t> keys;
  for (std::uint32_t i = 1; i <= 10000; ++i) {
    const ArenaView now = world_->see().arenas().at(0);
    ASSERT_TRUE(keys.insert(now.keys[0].raw()).second) << i;
    ASSERT_TRUE(world_->node().rotate(ArenaId(1)));
    while (world_->see().arenas()[0].state != ArenaState::active) world_->node().step();
  }
  EXPECT_EQ(world_->see().counter("keys_ever"), 10001u);
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(640, 1)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(640, 1));
}

TEST_F(KvNodeSoft, K085_an_arena_cannot_be_written) {
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(640, 1)).outcome, Outcome::ok);
  const Descriptor d = *world_->stored_descriptor("t1", bytes_of("k"));
  Bytes junk = pattern(640, 2);
  EXPECT_EQ(client_->move(fabric::OpKind::write, d.rkeys[0], d.location.addr, junk).code(),
            Errc::access);
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(640, 1));
}

}  // namespace
}  // namespace farlift::kv::node::testing
