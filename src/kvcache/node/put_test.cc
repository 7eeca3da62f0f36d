// Puts by pull, in a simulated world (spec kv 7).
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

class KvNodePut : public ::testing::Test {
 protected:
  void start(WorldOptions with = {}) {
    client_.reset();
    world_ = std::make_unique<World>(std::move(with));
    world_->start(world_->options());
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  void expect_accounts() {
    for (const ArenaView& arena : world_->see().arenas()) {
      EXPECT_EQ(arena.reserved, 0u);
      EXPECT_EQ(arena.sealed, 0u);
    }
  }
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(KvNodePut, K016_put_if_absent_and_again) {
  start();
  const Bytes key = bytes_of("abc"), first = pattern(5000, 1), second = pattern(5000, 2);
  const PutReply put = client_->put(key, first);
  ASSERT_EQ(put.outcome, Outcome::ok);
  EXPECT_EQ(put.version.rev(), 1u);
  EXPECT_EQ(client_->get(key), first);
  const auto stored = world_->stored("t1", key);
  EXPECT_EQ(stored->descriptor, put.descriptor);
  EXPECT_EQ(stored->tag, put.tag);
  const PutReply again = client_->put(key, second);
  EXPECT_EQ(again.outcome, Outcome::exists);
  EXPECT_EQ(again.version, put.version);
  EXPECT_EQ(client_->get(key), first);
  expect_accounts();
}

TEST_F(KvNodePut, K017_put_if_version) {
  start();
  const Bytes key = bytes_of("abc");
  const PutReply first = client_->put(key, pattern(100, 1), PutMode::if_version, Version());
  ASSERT_EQ(first.outcome, Outcome::ok);
  const PutReply second = client_->put(key, pattern(100, 2), PutMode::if_version, first.version);
  ASSERT_EQ(second.outcome, Outcome::ok);
  EXPECT_EQ(second.version.rev(), 2u);
  EXPECT_EQ(client_->put(key, pattern(100, 3), PutMode::if_version, first.version).outcome,
            Outcome::conflict);
  EXPECT_EQ(client_->put(key, pattern(100, 3), PutMode::if_version, Version()).outcome,
            Outcome::conflict);
  EXPECT_EQ(client_->get(key), pattern(100, 2));
  EXPECT_EQ(client_->put(key, pattern(1, 3), PutMode::if_version, Version(UINT32_MAX, 1)).outcome,
            Outcome::bad_arg);
  expect_accounts();
}

TEST_F(KvNodePut, K018_many_writers_replace_one_key) {
  start();
  const Bytes key = bytes_of("k");
  std::vector<std::unique_ptr<RawClient>> writers;
  std::vector<std::uint64_t> sent;
  for (std::uint64_t i = 0; i < 10; ++i) {
    writers.push_back(std::make_unique<RawClient>(*world_, "w" + std::to_string(i)));
    ASSERT_EQ(writers.back()->greet(), Outcome::ok);
  }
  std::uint32_t rev = 0;
  for (std::uint64_t round = 0; round < 10; ++round) {
    for (std::uint64_t i = 0; i < writers.size(); ++i) {
      sent.push_back(writers[i]->send(
          FrameType::put_pull,
          encode(writers[i]->pull_request(key, pattern(700, round * 100 + i), PutMode::replace))));
    }
    std::set<std::uint32_t> revs;
    for (std::uint64_t i = 0; i < writers.size(); ++i) {
      const auto frame = writers[i]->receive(sent[round * writers.size() + i]);
      ASSERT_TRUE(frame.has_value());
      const auto reply = decode_put_reply(frame->body);
      // Eight tries, then the key is too contended.
      ASSERT_TRUE(reply->outcome == Outcome::ok || reply->outcome == Outcome::conflict);
      if (reply->outcome != Outcome::ok) continue;
      EXPECT_GT(reply->version.rev(), rev);
      EXPECT_TRUE(revs.insert(reply->version.rev()).second) << "a revision was given twice";
    }
    ASSERT_FALSE(revs.empty());
    rev = *revs.rbegin();
    const auto got = client_->get(key);
    ASSERT_TRUE(got.has_value());
    bool somebodys = false;
    for (std::uint64_t i = 0; i < writers.size(); ++i) {
      somebodys = somebodys || *got == pattern(700, round * 100 + i);
    }
    EXPECT_TRUE(somebodys);
  }
  EXPECT_EQ(world_->stored_descriptor("t1", key)->version.rev(), rev);
  expect_accounts();
}

TEST_F(KvNodePut, K019_a_hundred_writers_put_one_absent_key) {
  start();
  const Bytes key = bytes_of("k");
  std::vector<std::unique_ptr<RawClient>> writers;
  std::vector<std::uint64_t> sent;
  for (std::uint64_t i = 0; i < 100; ++i) {
    writers.push_back(std::make_unique<RawClient>(*world_, "w" + std::to_string(i), "t1",
                                                  keyring_of(1), std::size_t{4096}));
    ASSERT_EQ(writers.back()->greet(), Outcome::ok);
  }
  for (std::uint64_t i = 0; i < 100; ++i) {
    sent.push_back(writers[i]->send(FrameType::put_pull,
                                    encode(writers[i]->pull_request(key, pattern(700, i)))));
  }
  int ok = 0, exists = 0;
  std::optional<std::uint64_t> winner;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto frame = writers[i]->receive(sent[i]);
    ASSERT_TRUE(frame.has_value());
    const Outcome outcome = decode_put_reply(frame->body)->outcome;
    if (outcome == Outcome::ok) winner = i;
    ok += outcome == Outcome::ok ? 1 : 0;
    exists += outcome == Outcome::exists ? 1 : 0;
  }
  EXPECT_EQ(ok, 1);
  EXPECT_EQ(exists, 99);
  EXPECT_EQ(client_->get(key), pattern(700, winner.value()));
  EXPECT_EQ(world_->see().counter("slots_published"), 1u);
  EXPECT_EQ(world_->see().counter("bytes_live"), 700u);
  expect_accounts();
  world_->node().rotate_all();
  ASSERT_TRUE(world_->until([&] { return world_->see().counter("arenas_rotating") == 0; }));
  ASSERT_TRUE(world_->until([&] { return world_->see().counter("purges_waiting") == 0; }));
  for (const ArenaView& arena : world_->see().arenas()) {
    EXPECT_EQ(arena.free + arena.reserved + arena.sealed + arena.published + arena.quarantined, 0u)
        << "a slot leaked";
    EXPECT_EQ(arena.used, Length());
  }
}

TEST_F(KvNodePut, K022_a_writer_that_stops_during_the_pull) {
  start();
  RawClient other(*world_, "c2");
  ASSERT_EQ(other.greet(), Outcome::ok);
  world_->network.stop(client_->target().address(), true);
  const Bytes key = bytes_of("stuck");
  const auto request =
      client_->send(FrameType::put_pull, encode(client_->pull_request(key, pattern(200000, 1))));
  world_->pass(1s);
  EXPECT_EQ(world_->see().counter("slots_reserved"), 1u);
  EXPECT_EQ(other.put(bytes_of("other"), pattern(3000, 2)).outcome, Outcome::ok)
      << "others are not affected";
  const Instant before = world_->clock.now();
  const auto frame = client_->receive(request);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(decode_put_reply(frame->body)->outcome, Outcome::timeout);
  EXPECT_LE(world_->clock.now() - before, kOperationLimit);
  EXPECT_FALSE(world_->stored_descriptor("t1", key).has_value());
  world_->pass(3s);
  EXPECT_EQ(world_->see().counter("slots_reserved"), 0u) << "in the end its engine is closed";
  world_->network.stop(client_->target().address(), false);
  EXPECT_EQ(client_->put(key, pattern(200000, 3)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(key), pattern(200000, 3));
}

TEST_F(KvNodePut, K022_a_writer_that_dies_during_the_pull) {
  start();
  world_->network.stop(client_->target().address(), true);
  (void)client_->send(FrameType::put_pull,
                      encode(client_->pull_request(bytes_of("k"), pattern(200000, 1))));
  world_->pass(100ms);
  client_.reset();
  world_->pass(8s);
  EXPECT_EQ(world_->see().counter("slots_reserved"), 0u);
  EXPECT_EQ(world_->see().counter("links"), 0u);
  EXPECT_FALSE(world_->stored_descriptor("t1", bytes_of("k")).has_value());
}

TEST_F(KvNodePut, K026_the_source_changes_while_it_is_pulled) {
  start();
  int refused = 0;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const Bytes key = bytes_of("k" + std::to_string(i)), value = pattern(100000, i);
    const auto request =
        client_->send(FrameType::put_pull, encode(client_->pull_request(key, value)));
    for (std::uint64_t turn = 0; turn < 10 + 5 * i; ++turn) world_->turn();
    for (std::byte& b : client_->source()) b ^= std::byte{0x55};
    const auto frame = client_->receive(request);
    ASSERT_TRUE(frame.has_value());
    const Outcome outcome = decode_put_reply(frame->body)->outcome;
    ASSERT_TRUE(outcome == Outcome::ok || outcome == Outcome::bad_crc);
    refused += outcome == Outcome::bad_crc ? 1 : 0;
    const auto got = client_->get(key);
    EXPECT_EQ(got, outcome == Outcome::ok ? std::optional(value) : std::nullopt);
  }
  EXPECT_GT(refused, 0) << "nothing was ever changed midway: the test proves nothing";
  expect_accounts();
}

TEST_F(KvNodePut, K029_a_put_repeated_has_its_first_outcome) {
  start();
  const Bytes key = bytes_of("k");
  const PutPullRequest request = client_->pull_request(key, pattern(900, 1));
  const auto a = client_->send(FrameType::put_pull, encode(request));
  const auto b = client_->send(FrameType::put_pull, encode(request));
  const auto first = decode_put_reply(client_->receive(a)->body);
  const auto second = decode_put_reply(client_->receive(b)->body);
  const auto third = decode_put_reply(client_->call(FrameType::put_pull, encode(request))->body);
  ASSERT_EQ(first->outcome, Outcome::ok);
  for (const auto& again : {second, third}) {
    EXPECT_EQ(again->outcome, Outcome::ok);
    EXPECT_EQ(again->version, first->version);
    EXPECT_EQ(again->descriptor, first->descriptor);
  }
  EXPECT_EQ(world_->valkey.counters().publishes, 1u);
  PutPullRequest other = request;
  other.key = bytes_of("another key");
  EXPECT_EQ(client_->put(other).outcome, Outcome::bad_arg);
  world_->pass(61s);
  EXPECT_EQ(client_->put(request).outcome, Outcome::exists) << "forgotten after a minute";
}

TEST_F(KvNodePut, K030_R049_lengths) {
  start();
  const std::size_t arena = 1u << 20;
  std::uint64_t seed = 1;
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{33},
        std::size_t{4095}, std::size_t{4096}, std::size_t{4097}, std::size_t{65535},
        std::size_t{65536}, arena - 4096}) {
    const Bytes key = bytes_of("size " + std::to_string(size)), value = pattern(size, ++seed);
    ASSERT_EQ(client_->put(key, value).outcome, Outcome::ok) << size;
    const auto descriptor = world_->stored_descriptor("t1", key);
    ASSERT_TRUE(descriptor.has_value());
    const std::uint64_t payload = descriptor->location.addr.raw() + kHeaderBytes;
    EXPECT_EQ(payload % (size >= kLargePayload ? 4096 : 64), 0u) << size;
    EXPECT_EQ(client_->get(key), value) << size;  // framed
    if (size > 0) {
      const auto bare = client_->read(*descriptor);  // payload only
      ASSERT_TRUE(bare.ok());
      EXPECT_EQ(*bare, value) << size;
    }
  }
  EXPECT_EQ(client_->put(bytes_of("long"), pattern(arena - 4095, 1)).outcome, Outcome::too_large);
  EXPECT_EQ(client_->put(Bytes(), pattern(1, 1)).outcome, Outcome::bad_arg);
  EXPECT_EQ(client_->put(Bytes(1025), pattern(1, 1)).outcome, Outcome::bad_arg);
  EXPECT_EQ(client_->put(Bytes(1024), pattern(1, 1)).outcome, Outcome::ok);
}

TEST_F(KvNodePut, a_source_that_refuses_ends_as_access) {
  start();
  PutPullRequest request = client_->pull_request(bytes_of("k"), pattern(900, 1));
  request.source_rkeys[0] = RKey(request.source_rkeys[0].raw() ^ 1);
  EXPECT_EQ(client_->put(request).outcome, Outcome::access);
  request = client_->pull_request(bytes_of("k"), pattern(900, 1));
  request.source_rkeys.push_back(RKey(1));
  EXPECT_EQ(client_->put(request).outcome, Outcome::bad_arg) << "one key too many";
  request = client_->pull_request(bytes_of("k"), pattern(900, 1));
  request.crc = Crc32c(request.crc.raw() ^ 1);
  EXPECT_EQ(client_->put(request).outcome, Outcome::bad_crc);
  EXPECT_EQ(world_->see().counter("slots_published"), 0u);
  expect_accounts();
}

TEST_F(KvNodePut, long_values_are_pulled_over_all_rails) {
  start({.rails = 3});
  const Bytes key = bytes_of("k"), value = pattern((1u << 20) - 5000, 7);
  ASSERT_EQ(client_->put(key, value).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(key), value);
  EXPECT_EQ(world_->stored_descriptor("t1", key)->rkeys.size(), 3u);
}

TEST_F(KvNodePut, faults_of_the_fabric_never_publish_wrong_bytes) {
  int ok = 0, failed = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    start({.seed = seed,
           .fence_mode = seed % 2 == 0 ? fabric::FenceMode::mr : fabric::FenceMode::endpoint,
           .fabric_faults = {.connection_lost = 100, .not_quiet = 100, .spurious_error = 100}});
    for (std::uint64_t i = 0; i < 25; ++i) {
      const Bytes key = bytes_of("k" + std::to_string(i)),
                  value = pattern(9000 + i, seed * 100 + i);
      const PutReply reply = client_->put(key, value);
      const auto descriptor = world_->stored_descriptor("t1", key);
      EXPECT_EQ(descriptor.has_value(), reply.outcome == Outcome::ok);
      (reply.outcome == Outcome::ok ? ok : failed) += 1;
      if (!descriptor) continue;
      const std::byte* const at = world_->see().at(descriptor->location);
      ASSERT_NE(at, nullptr);
      EXPECT_EQ(Bytes(at + kHeaderBytes, at + kHeaderBytes + value.size()), value);
    }
    expect_accounts();
  }
  EXPECT_GT(ok, 0);
  EXPECT_GT(failed, 0);
}

}  // namespace
}  // namespace farlift::kv::node::testing
