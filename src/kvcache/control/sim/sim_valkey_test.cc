#include "kvcache/control/sim/sim_valkey.h"

#include "kvcache/control/schema.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace farlift::kv::sim {
namespace {

using namespace std::chrono_literals;

const Bytes kKey = to_bytes("abc");

Bytes descriptor_of(Version version, std::uint64_t addr = 4096) {
  Descriptor descriptor;
  descriptor.location = {NodeId(1), Incarnation(77), ArenaId(2), ArenaGen(3), RemoteAddr(addr)};
  descriptor.version = version;
  descriptor.length = Length(10);
  descriptor.rkeys = {RKey(5)};
  return encode_descriptor(descriptor);
}

PublishRequest publish_of(PutMode mode, Version expected, Version version) {
  PublishRequest request;
  request.tenant = "t1";
  request.key = kKey;
  request.mode = mode;
  request.expected = expected;
  request.descriptor = descriptor_of(version);
  request.tag = Bytes(32, std::byte{9});
  return request;
}

UnpublishRequest unpublish_of(UnpublishRequest::How how, Version version, std::uint64_t addr) {
  UnpublishRequest request;
  request.tenant = "t1";
  request.key = kKey;
  request.how = how;
  request.version = version;
  request.location = {NodeId(1), Incarnation(77), ArenaId(2), ArenaGen(3), RemoteAddr(addr)};
  return request;
}

class SimValkeyTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(1); }
  void reset(std::uint64_t seed, SimValkeyFaults faults = {}) {
    directory_.reset();
    valkey_ = std::make_unique<SimValkey>(clock_, SimValkeyOptions{.seed = seed, .faults = faults});
    directory_ = valkey_->open_directory("n1");
  }

  // Moves time from event to event until the directory has nothing pending.
  void drain() {
    for (;;) {
      directory_->step();
      if (directory_->pending() == 0) return;
      const Instant next = valkey_->next_due();
      ASSERT_NE(next, Instant::max()) << "an operation that never ends";
      if (next > clock_.now()) clock_.advance(next - clock_.now());
    }
  }
  // Everything that is still to be applied, pending or not.
  void pass(Duration time) {
    clock_.advance(time);
    directory_->step();
  }

  PublishReply publish(PublishRequest request) {
    std::optional<PublishReply> reply;
    directory_->publish(std::move(request), [&](PublishReply r) { reply = std::move(r); });
    EXPECT_FALSE(reply.has_value()) << "never from inside the call";
    drain();
    return reply.value();
  }
  UnpublishReply unpublish(UnpublishRequest request) {
    std::optional<UnpublishReply> reply;
    directory_->unpublish(std::move(request), [&](UnpublishReply r) { reply = r; });
    drain();
    return reply.value();
  }
  Result<Pair> resolve() {
    std::optional<Result<Pair>> reply;
    directory_->resolve("t1", {kKey}, [&](std::vector<Result<Pair>> all) {
      EXPECT_EQ(all.size(), 1U);
      reply = all.at(0);
    });
    drain();
    return reply.value();
  }

  ManualClock clock_;
  std::unique_ptr<SimValkey> valkey_;
  std::unique_ptr<Directory> directory_;
};

TEST_F(SimValkeyTest, PublishModes) {
  const Version v1(1, 5), v2(2, 6);
  EXPECT_EQ(publish(publish_of(PutMode::if_version, v1, v2)).kind, PublishReply::Kind::conflict);
  auto first = publish(publish_of(PutMode::if_absent, {}, v1));
  EXPECT_EQ(first.kind, PublishReply::Kind::ok);
  EXPECT_FALSE(first.current);
  auto second = publish(publish_of(PutMode::if_absent, {}, v2));
  EXPECT_EQ(second.kind, PublishReply::Kind::exists);
  EXPECT_EQ(second.current, descriptor_of(v1));
  EXPECT_EQ(publish(publish_of(PutMode::if_version, {}, v2)).kind, PublishReply::Kind::conflict);
  EXPECT_EQ(publish(publish_of(PutMode::if_version, v1, v2)).kind, PublishReply::Kind::ok);
  const auto pair = resolve();
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair->descriptor, descriptor_of(v2));
  EXPECT_EQ(pair->tag, Bytes(32, std::byte{9}));
}

TEST_F(SimValkeyTest, UnpublishModes) {
  using How = UnpublishRequest::How;
  using Kind = UnpublishReply::Kind;
  const Version v1(1, 5);
  EXPECT_EQ(unpublish(unpublish_of(How::any, {}, 0)).kind, Kind::absent);
  publish(publish_of(PutMode::if_absent, {}, v1));
  EXPECT_EQ(unpublish(unpublish_of(How::location, {}, 8192)).kind, Kind::other);
  EXPECT_EQ(unpublish(unpublish_of(How::version, Version(1, 6), 0)).kind, Kind::other);
  EXPECT_TRUE(resolve()->descriptor.has_value());
  EXPECT_EQ(unpublish(unpublish_of(How::location, {}, 4096)).kind, Kind::removed);
  EXPECT_FALSE(resolve()->descriptor.has_value());
  EXPECT_FALSE(resolve()->tag.has_value());
  publish(publish_of(PutMode::if_absent, {}, v1));
  EXPECT_EQ(unpublish(unpublish_of(How::version, v1, 0)).kind, Kind::removed);
}

TEST_F(SimValkeyTest, K070_pairs_expire_at_one_time_and_a_clock_that_jumps_makes_misses) {
  auto request = publish_of(PutMode::if_absent, {}, Version(1, 1));
  request.ttl = 10s;
  publish(request);
  pass(9s);
  EXPECT_TRUE(resolve()->descriptor && resolve()->tag);
  pass(1s);
  EXPECT_TRUE(!resolve()->descriptor && !resolve()->tag);
  publish(request);
  valkey_->state().shift_clock(24h);
  EXPECT_FALSE(resolve()->descriptor);
}

TEST_F(SimValkeyTest, NodesAndLeases) {
  NodeRecord record;
  record.node = NodeId(4);
  record.incarnation = Incarnation(99);
  record.host = "127.0.0.1";
  record.port = 7000;
  record.rails = {{"soft"}};
  Status announced = Error::make(Errc::internal, "not called");
  directory_->announce(record, [&](Status s) { announced = s; });
  drain();
  EXPECT_TRUE(announced.ok());
  const auto list = [&] {
    std::vector<NodeRecord> nodes;
    directory_->list_nodes([&](auto all) { nodes = std::move(all).value(); });
    drain();
    return nodes;
  };
  EXPECT_EQ(list(), std::vector<NodeRecord>{record});
  std::optional<NodeRecord> found;
  directory_->find_node(NodeId(4), [&](auto one) { found = std::move(one).value(); });
  drain();
  EXPECT_EQ(found, record);
  pass(kNodeLease);
  EXPECT_TRUE(list().empty());

  const auto leases = [&](Incarnation incarnation) {
    std::uint64_t count = 1000;
    directory_->count_leases(NodeId(4), incarnation, ArenaId(1),
                             [&](Result<std::uint64_t> n) { count = *n; });
    drain();
    return count;
  };
  for (int i = 0; i < 3; ++i) {
    ClientId client{};
    client[0] = static_cast<std::byte>(i);
    directory_->take_lease(NodeId(4), Incarnation(99), ArenaId(1), client, 30s, [](Status) {});
    directory_->take_lease(NodeId(4), Incarnation(99), ArenaId(11), client, 30s, [](Status) {});
  }
  drain();
  EXPECT_EQ(leases(Incarnation(99)), 3U);
  EXPECT_EQ(leases(Incarnation(98)), 0U);
  pass(30s);
  EXPECT_EQ(leases(Incarnation(99)), 0U);
}

TEST_F(SimValkeyTest, DownIsNotDoneAndUnderWayIsUnknown) {
  std::optional<PublishReply> reply;
  directory_->publish(publish_of(PutMode::if_absent, {}, Version(1, 1)),
                      [&](PublishReply r) { reply = std::move(r); });
  valkey_->set_down(true);
  drain();
  EXPECT_EQ(reply->kind, PublishReply::Kind::unknown);
  EXPECT_EQ(publish(publish_of(PutMode::if_absent, {}, Version(1, 1))).kind,
            PublishReply::Kind::not_done);
  EXPECT_EQ(resolve().code(), Errc::unreachable);
  valkey_->set_down(false);
  EXPECT_TRUE(resolve().ok());
  valkey_->set_down("n1", true);
  EXPECT_FALSE(resolve().ok());
  auto other = valkey_->open_directory("c1");
  bool answered = false;
  other->resolve("t1", {kKey}, [&](auto all) { answered = all.at(0).ok(); });
  pass(1ms);
  other->step();
  EXPECT_TRUE(answered);
}

TEST_F(SimValkeyTest, FailOverTakesTheLastWritesBack) {
  publish(publish_of(PutMode::if_absent, {}, Version(1, 1)));
  pass(10s);
  publish(publish_of(PutMode::if_version, Version(1, 1), Version(2, 1)));
  valkey_->fail_over(5s);
  EXPECT_EQ(resolve()->descriptor, descriptor_of(Version(1, 1)));
  pass(10s);
  unpublish(unpublish_of(UnpublishRequest::How::any, {}, 0));
  EXPECT_FALSE(resolve()->descriptor);
  valkey_->fail_over(1s);
  EXPECT_EQ(resolve()->descriptor, descriptor_of(Version(1, 1)));
  EXPECT_TRUE(resolve()->tag);
}

TEST_F(SimValkeyTest, HalvesCanBeEvictedAndEntriesForged) {
  publish(publish_of(PutMode::if_absent, {}, Version(1, 1)));
  valkey_->evict(tag_name("t1", kKey));
  EXPECT_TRUE(resolve()->descriptor && !resolve()->tag);
  valkey_->write(tag_name("t1", kKey), to_bytes("forged"));
  valkey_->evict(descriptor_name("t1", kKey));
  EXPECT_TRUE(!resolve()->descriptor && resolve()->tag == to_bytes("forged"));
  valkey_->flush_all();
  EXPECT_TRUE(!resolve()->descriptor && !resolve()->tag);
}

TEST_F(SimValkeyTest, ALaggingReplicaAnswersWithAnOlderPair) {
  publish(publish_of(PutMode::if_absent, {}, Version(1, 1)));
  pass(10s);
  publish(publish_of(PutMode::if_version, Version(1, 1), Version(2, 1)));
  valkey_->set_faults({.lagging = 1000, .lag_max = 4s});
  pass(1s);
  bool older = false, newer = false;
  for (int i = 0; i < 100; ++i) {
    const auto descriptor = resolve()->descriptor;
    older = older || descriptor == descriptor_of(Version(1, 1));
    newer = newer || descriptor == descriptor_of(Version(2, 1));
  }
  EXPECT_TRUE(older && newer);
}

// Whatever the faults: one callback per operation, within the time limit; not_done stays undone;
// unknown is sometimes applied at once, sometimes late, sometimes never.
TEST_F(SimValkeyTest, OutcomesAreThreeValued) {
  std::map<std::string, int> seen;
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    reset(seed, {.refused = 150, .never_applied = 150, .reply_lost = 150, .applied_late = 300});
    const Instant before = clock_.now();
    const auto reply = publish(publish_of(PutMode::if_absent, {}, Version(1, 1)));
    EXPECT_LE(clock_.now() - before, kControlTimeout);
    const bool at_once = valkey_->state().get(descriptor_name("t1", kKey)).has_value();
    pass(40s);
    const bool in_the_end = valkey_->state().get(descriptor_name("t1", kKey)).has_value();
    const bool unknown = reply.kind == PublishReply::Kind::unknown;
    EXPECT_TRUE(reply.kind != PublishReply::Kind::ok || at_once);
    EXPECT_TRUE(reply.kind != PublishReply::Kind::not_done || !in_the_end);
    if (unknown) ++seen[at_once ? "applied" : in_the_end ? "late" : "never"];
    if (!unknown) ++seen[reply.kind == PublishReply::Kind::ok ? "ok" : "not done"];
  }
  EXPECT_EQ(seen.size(), 5U);
}

TEST_F(SimValkeyTest, AClosedDirectoryAnswersWhatIsLeft) {
  std::optional<PublishReply> reply;
  directory_->publish(publish_of(PutMode::if_absent, {}, Version(1, 1)),
                      [&](PublishReply r) { reply = std::move(r); });
  directory_.reset();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->kind, PublishReply::Kind::unknown);
  EXPECT_EQ(reply->error.code, Errc::closed);
  clock_.advance(1s);
  valkey_->step();
  EXPECT_TRUE(valkey_->state().get(descriptor_name("t1", kKey))) << "it was on its way";
}

}  // namespace
}  // namespace farlift::kv::sim
