// Puts by ALLOC, one-sided write and SEAL (spec kv 7, 2b), in a simulated world.
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

class KvNodePush : public ::testing::Test {
 protected:
  void start(WorldOptions with = {}, std::uint32_t grants_max = kGrantsMax) {
    client_.reset();
    world_ = std::make_unique<World>(std::move(with));
    NodeOptions options = world_->options();
    options.grants_max = grants_max;
    world_->start(std::move(options));
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(KvNodePush, a_value_is_written_sealed_and_read) {
  start();
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{70000}}) {
    const Bytes key = bytes_of("k" + std::to_string(size)), value = pattern(size, size + 1);
    const PutId id = client_->new_put_id();
    const AllocReply grant = client_->alloc(key, size, id);
    ASSERT_EQ(grant.outcome, Outcome::ok);
    ASSERT_EQ(grant.grant_rkeys.size(), 1u);
    EXPECT_GE(grant.grant_ms, 2000u);
    if (size > 0) {
      ASSERT_TRUE(client_->write(grant, value).ok());
    }
    const PutReply put = client_->seal(grant, id, digest::crc32c(value));
    ASSERT_EQ(put.outcome, Outcome::ok);
    EXPECT_EQ(client_->get(key), value);
  }
  EXPECT_EQ(world_->see().open_grants(), 0u);
}

TEST_F(KvNodePush, K020_a_grant_expires_and_its_slot_is_used_again) {
  start();
  const AllocReply grant = client_->alloc(bytes_of("k"), 50000, client_->new_put_id());
  ASSERT_EQ(grant.outcome, Outcome::ok);
  client_.reset();  // killed
  EXPECT_EQ(world_->see().counter("slots_reserved"), 1u);
  world_->pass(3s);
  EXPECT_EQ(world_->see().counter("grants_expired"), 1u);
  EXPECT_EQ(world_->see().counter("slots_reserved"), 0u);
  EXPECT_EQ(world_->see().counter("bytes_used"), 0u) << "the slot came back";
  RawClient other(*world_, "c2");
  ASSERT_EQ(other.greet(), Outcome::ok);
  EXPECT_FALSE(other.get(bytes_of("k")).has_value());
  const AllocReply again = other.alloc(bytes_of("k"), 50000, other.new_put_id());
  EXPECT_EQ(again.payload, grant.payload);
  EXPECT_NE(again.grant_rkeys, grant.grant_rkeys) << "P6";
}

TEST_F(KvNodePush, K021_what_a_dead_writer_left_is_not_readable) {
  start();
  const AllocReply grant = client_->alloc(bytes_of("k"), 50000, client_->new_put_id());
  ASSERT_TRUE(client_->write(grant, pattern(20000, 1)).ok());
  world_->pass(3s);
  EXPECT_FALSE(client_->get(bytes_of("k")).has_value());
  EXPECT_EQ(client_->write(grant, pattern(100, 2)).code(), Errc::access);
  RawClient other(*world_, "c2");
  ASSERT_EQ(other.greet(), Outcome::ok);
  ASSERT_EQ(other.put(bytes_of("k2"), pattern(50000, 3)).outcome, Outcome::ok);
  EXPECT_EQ(other.get(bytes_of("k2")), pattern(50000, 3));
}

TEST_F(KvNodePush, K023_a_write_after_seal_fails) {
  start();
  const Bytes key = bytes_of("k"), value = pattern(60000, 1);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(key, value.size(), id);
  ASSERT_TRUE(client_->write(grant, value).ok());
  ASSERT_EQ(client_->seal(grant, id, digest::crc32c(value)).outcome, Outcome::ok);
  EXPECT_EQ(client_->write(grant, pattern(60000, 2)).code(), Errc::access);
  EXPECT_EQ(client_->get(key), value);
}

TEST_F(KvNodePush, K024_push_needs_a_fence_by_registration) {
  start({.fence_mode = fabric::FenceMode::endpoint});
  EXPECT_EQ(client_->welcome().fence_mode, FenceWord::endpoint);
  EXPECT_EQ(client_->alloc(bytes_of("k"), 100, client_->new_put_id()).outcome, Outcome::bad_arg);
  EXPECT_EQ(client_->put(bytes_of("k"), pattern(100, 1)).outcome, Outcome::ok);
}

TEST_F(KvNodePush, K025_a_wrong_crc_publishes_nothing) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(10, 9)).outcome, Outcome::ok);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(key, 1000, id);
  ASSERT_TRUE(client_->write(grant, pattern(1000, 1)).ok());
  EXPECT_EQ(client_->seal(grant, id, Crc32c(5), PutMode::replace).outcome, Outcome::bad_crc);
  EXPECT_EQ(client_->get(key), pattern(10, 9));
  EXPECT_EQ(world_->see().counter("slots_reserved"), 0u);
  EXPECT_EQ(world_->see().counter("slots_sealed"), 0u);
  EXPECT_EQ(client_->seal(grant, id, Crc32c(5)).outcome, Outcome::bad_crc) << "the first outcome";
}

TEST_F(KvNodePush, K029_seal_repeated) {
  start();
  const Bytes key = bytes_of("k"), value = pattern(1000, 1);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(key, 1000, id);
  EXPECT_EQ(client_->alloc(key, 1000, id).slot_id, grant.slot_id) << "one slot for one put";
  ASSERT_TRUE(client_->write(grant, value).ok());
  const PutReply first = client_->seal(grant, id, digest::crc32c(value));
  const PutReply second = client_->seal(grant, id, digest::crc32c(value));
  ASSERT_EQ(first.outcome, Outcome::ok);
  EXPECT_EQ(second.outcome, Outcome::ok);
  EXPECT_EQ(second.version, first.version);
  EXPECT_EQ(world_->valkey.counters().publishes, 1u);
}

TEST_F(KvNodePush, K033_a_grant_ends_where_the_payload_ends) {
  start();
  const Bytes before = pattern(640, 1), after = pattern(640, 2), value = pattern(640, 3);
  ASSERT_EQ(client_->put(bytes_of("before"), before).outcome, Outcome::ok);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(bytes_of("k"), value.size(), id);
  ASSERT_EQ(client_->put(bytes_of("after"), after).outcome, Outcome::ok);
  AllocReply shifted = grant;
  shifted.payload = RemoteAddr(grant.payload.raw() - 1);
  EXPECT_EQ(client_->write(shifted, value).code(), Errc::access);
  shifted.payload = RemoteAddr(grant.payload.raw() + 1);
  EXPECT_EQ(client_->write(shifted, value).code(), Errc::access);
  EXPECT_EQ(client_->write(grant, pattern(641, 4)).code(), Errc::access);
  ASSERT_TRUE(client_->write(grant, value).ok());
  ASSERT_EQ(client_->seal(grant, id, digest::crc32c(value)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(bytes_of("before")), before);
  EXPECT_EQ(client_->get(bytes_of("after")), after);
  EXPECT_EQ(client_->get(bytes_of("k")), value);
}

TEST_F(KvNodePush, K085_arenas_cannot_be_written) {
  start();
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(640, 1)).outcome, Outcome::ok);
  const auto descriptor = world_->stored_descriptor("t1", bytes_of("k"));
  Bytes junk = pattern(640, 2);
  EXPECT_EQ(client_
                ->move(fabric::OpKind::write, descriptor->rkeys[0],
                       descriptor->location.addr + Offset(kHeaderBytes), junk)
                .code(),
            Errc::access);
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(640, 1));
}

TEST_F(KvNodePush, abort_and_limits) {
  start({}, 3);
  std::vector<AllocReply> grants;
  for (int i = 0; i < 3; ++i) {
    grants.push_back(client_->alloc(bytes_of("k"), 1000, client_->new_put_id()));
    ASSERT_EQ(grants.back().outcome, Outcome::ok);
  }
  EXPECT_EQ(client_->alloc(bytes_of("k"), 1000, client_->new_put_id()).outcome, Outcome::full);
  EXPECT_EQ(client_->simple(FrameType::abort, encode(AbortRequest{grants[0].slot_id})),
            Outcome::ok);
  EXPECT_EQ(client_->simple(FrameType::abort, encode(AbortRequest{grants[0].slot_id})),
            Outcome::ok);
  EXPECT_EQ(client_->write(grants[0], pattern(1000, 1)).code(), Errc::access);
  ASSERT_EQ(client_->greet(), Outcome::ok);
  EXPECT_EQ(client_->alloc(bytes_of("k"), 1000, client_->new_put_id()).outcome, Outcome::ok);
  EXPECT_EQ(client_->seal(grants[1], client_->new_put_id(), Crc32c(0)).outcome, Outcome::bad_arg)
      << "somebody else's grant";
}

}  // namespace
}  // namespace farlift::kv::node::testing
