#include "core/base/prng.h"
#include "kvcache/control/scripts.h"
#include "kvcache/control/sim/valkey_state.h"
#include "kvcache/control/valkey_test_base.h"

#include <gtest/gtest.h>

namespace farlift::kv {
namespace {

using namespace std::chrono_literals;
using testing::ServerProcess;
using Published = PublishReply::Kind;
using Removed = UnpublishReply::Kind;
using How = UnpublishRequest::How;

// One server with io-threads (R59: the control plane is plain TCP) for all tests of this program.
class KvDirectory : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string reason;
    server_ = ServerProcess::start({.arguments = {"--io-threads", "4"}}, &reason).release();
    ASSERT_NE(server_, nullptr) << reason;
  }
  static void TearDownTestSuite() { delete server_; }
  void SetUp() override {
    ASSERT_NE(server_, nullptr);
    EXPECT_EQ(command(*server_, {"FLUSHALL"}), "OK");
  }

  static ServerProcess* server_;
};
ServerProcess* KvDirectory::server_ = nullptr;

TEST_F(KvDirectory, R059_runs_with_io_threads) {
  auto connection = resp::Connection::connect(server_->connection_options(), kClock);
  ASSERT_TRUE(connection.ok());
  const auto reply = (*connection)->request({"CONFIG", "GET", "io-threads"});
  ASSERT_TRUE(reply.ok() && reply->is_aggregate());
  EXPECT_EQ(reply->items()[1].text(), "4");
}

TEST_F(KvDirectory, the_scripts_have_the_names_that_servers_give_them) {
  for (const Script* script : {&kPublishScript, &kUnpublishScript})
    EXPECT_EQ(command(*server_, {"SCRIPT", "LOAD", script->text}), script->sha1);
}

TEST_F(KvDirectory, K016_a_second_put_of_mode_a_finds_the_first) {
  Driven node(options_for(*server_));
  const Version v1(1, 5), v2(1, 6);
  const auto first = node.publish(publish_of("k", PutMode::if_absent, {}, v1));
  EXPECT_EQ(first.kind, Published::ok);
  EXPECT_FALSE(first.current);
  const auto second = node.publish(publish_of("k", PutMode::if_absent, {}, v2));
  EXPECT_EQ(second.kind, Published::exists);
  EXPECT_EQ(second.current, descriptor_of(v1));
  const auto pair = node.resolve("k");
  ASSERT_TRUE(pair.ok());
  EXPECT_EQ(pair->descriptor, descriptor_of(v1));
  EXPECT_EQ(pair->tag, Bytes(32, std::byte(5)));
}

TEST_F(KvDirectory, K017_mode_c_compares_the_version) {
  Driven node(options_for(*server_));
  const Version v1(1, 5), v2(2, 6), v3(3, 7);
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_version, v1, v2)).kind, Published::conflict);
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_version, {}, v1)).kind, Published::ok);
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_version, {}, v2)).kind, Published::conflict);
  const auto wrong = node.publish(publish_of("k", PutMode::if_version, v3, v2));
  EXPECT_EQ(wrong.kind, Published::conflict);
  EXPECT_EQ(wrong.current, descriptor_of(v1));
  EXPECT_EQ(node.resolve("k")->descriptor, descriptor_of(v1));
  const auto right = node.publish(publish_of("k", PutMode::if_version, v1, v2));
  EXPECT_EQ(right.kind, Published::ok);
  EXPECT_EQ(right.current, descriptor_of(v1));
  EXPECT_EQ(node.resolve("k")->descriptor, descriptor_of(v2));
}

TEST_F(KvDirectory, K047_unpublish_takes_both_halves) {
  Driven node(options_for(*server_));
  EXPECT_EQ(node.unpublish(unpublish_of("k", How::any, {}, 0)).kind, Removed::absent);
  node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  EXPECT_EQ(node.unpublish(unpublish_of("k", How::version, Version(1, 2), 0)).kind, Removed::other);
  EXPECT_EQ(node.unpublish(unpublish_of("k", How::version, Version(1, 1), 0)).kind,
            Removed::removed);
  EXPECT_TRUE(!node.resolve("k")->descriptor && !node.resolve("k")->tag);
  EXPECT_EQ(command(*server_, {"DBSIZE"}), "0");
}

// The version of a moved value is that of its source; only the location tells them apart.
TEST_F(KvDirectory, K057_a_purge_by_location_spares_the_moved_descriptor) {
  Driven node(options_for(*server_));
  const Version v1(1, 1);
  node.publish(publish_of("k", PutMode::if_absent, {}, v1, 4096));
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_version, v1, v1, 8192)).kind, Published::ok);
  EXPECT_EQ(node.unpublish(unpublish_of("k", How::location, v1, 4096)).kind, Removed::other);
  EXPECT_EQ(node.resolve("k")->descriptor, descriptor_of(v1, 8192));
  EXPECT_EQ(node.unpublish(unpublish_of("k", How::location, v1, 8192)).kind, Removed::removed);
}

TEST_F(KvDirectory, K069_half_a_pair_is_seen_as_it_is_and_the_next_put_repairs_it) {
  Driven node(options_for(*server_));
  const std::string name = descriptor_name("t1", to_bytes("k"));
  const std::string tag = tag_name("t1", to_bytes("k"));
  node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  command(*server_, {"DEL", tag});
  EXPECT_TRUE(node.resolve("k")->descriptor && !node.resolve("k")->tag);
  node.publish(publish_of("k", PutMode::if_version, Version(1, 1), Version(2, 1)));
  EXPECT_TRUE(node.resolve("k")->descriptor && node.resolve("k")->tag);
  command(*server_, {"DEL", name});
  EXPECT_TRUE(!node.resolve("k")->descriptor && node.resolve("k")->tag);
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 9))).kind,
            Published::ok);
  EXPECT_EQ(node.resolve("k")->tag, Bytes(32, std::byte(9)));
  // A tag that was left alone is taken as "exactly nothing"; a whole pair is not.
  command(*server_, {"DEL", name});
  UnpublishRequest alone = unpublish_of("k", How::exact, {}, 0);
  EXPECT_EQ(node.unpublish(alone).kind, Removed::absent);
  EXPECT_EQ(command(*server_, {"DBSIZE"}), "0");
  node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 9)));
  EXPECT_EQ(node.unpublish(alone).kind, Removed::other);
  // What nobody can read is taken as exactly that.
  command(*server_, {"SET", name, "short"});
  alone.descriptor = to_bytes("shor");
  EXPECT_EQ(node.unpublish(alone).kind, Removed::other);
  alone.descriptor = to_bytes("short");
  EXPECT_EQ(node.unpublish(alone).kind, Removed::removed);
  EXPECT_EQ(command(*server_, {"DBSIZE"}), "0");
  // Delete whatever there is also takes a tag that was left alone.
  node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 9)));
  command(*server_, {"DEL", name});
  EXPECT_EQ(node.unpublish(unpublish_of("k", How::any, {}, 0)).kind, Removed::absent);
  EXPECT_EQ(command(*server_, {"DBSIZE"}), "0");
}

TEST_F(KvDirectory, development_mode_leaves_no_tag) {
  Driven node(options_for(*server_));
  node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  auto request = publish_of("k", PutMode::if_version, Version(1, 1), Version(2, 1));
  request.tag.clear();
  EXPECT_EQ(node.publish(request).kind, Published::ok);
  EXPECT_TRUE(node.resolve("k")->descriptor && !node.resolve("k")->tag);
}

TEST_F(KvDirectory, both_halves_expire_at_one_time) {
  Driven node(options_for(*server_));
  auto request = publish_of("k", PutMode::if_absent, {}, Version(1, 1));
  request.ttl = 1h;
  node.publish(request);
  const std::string one = command(*server_, {"PEXPIRETIME", descriptor_name("t1", to_bytes("k"))});
  EXPECT_EQ(one, command(*server_, {"PEXPIRETIME", tag_name("t1", to_bytes("k"))}));
  EXPECT_GT(std::stoll(one), 0);
}

TEST_F(KvDirectory, K041_one_mget_for_each_key) {
  Driven client(options_for(*server_));
  EXPECT_TRUE(client.resolve("warm").ok());
  const std::uint64_t before = calls_of(*server_, "mget");
  std::vector<Bytes> keys;
  for (int i = 0; i < 1000; ++i) keys.push_back(to_bytes("k" + std::to_string(i)));
  keys.push_back(keys.front());
  const auto all = client.resolve(keys);
  ASSERT_EQ(all.size(), 1001U);
  for (const auto& pair : all) EXPECT_TRUE(pair.ok() && !pair->descriptor && !pair->tag);
  EXPECT_EQ(calls_of(*server_, "mget") - before, 1001U);
}

TEST_F(KvDirectory, answers_come_in_the_order_of_the_keys) {
  Driven node(options_for(*server_));
  std::vector<Bytes> keys;
  std::size_t left = 0;
  for (std::uint32_t i = 0; i < 10'000; ++i) {
    keys.push_back(to_bytes("k" + std::to_string(i)));
    if (i % 3 == 0) continue;
    ++left;
    node.directory->publish(
        publish_of("k" + std::to_string(i), PutMode::if_absent, {}, Version(1, i + 1)),
        [&](PublishReply reply) {
          EXPECT_EQ(reply.kind, Published::ok);
          --left;
        });
  }
  ASSERT_TRUE(node.until([&] { return left == 0; }));
  const auto all = node.resolve(keys);
  ASSERT_EQ(all.size(), keys.size());
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(all[i].ok()) << all[i].error().describe();
    EXPECT_EQ(all[i]->descriptor.has_value(), i % 3 != 0);
    EXPECT_TRUE(i % 3 == 0 || *all[i]->descriptor == descriptor_of(Version(1, i + 1)));
  }
  EXPECT_EQ(node.directory->pending(), 0U);
}

TEST_F(KvDirectory, a_server_that_forgot_the_scripts_is_told_again) {
  Driven node(options_for(*server_));
  node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  EXPECT_EQ(command(*server_, {"SCRIPT", "FLUSH"}), "OK");
  EXPECT_EQ(node.publish(publish_of("k2", PutMode::if_absent, {}, Version(1, 1))).kind,
            Published::ok);
  EXPECT_EQ(node.unpublish(unpublish_of("k2", How::any, {}, 0)).kind, Removed::removed);
  EXPECT_GE(node.directory->counters().scripts_sent, 2U);
}

TEST_F(KvDirectory, nodes_are_announced_listed_and_retracted) {
  Driven node(options_for(*server_));
  NodeRecord one;
  one.node = NodeId(4);
  one.incarnation = Incarnation(99);
  one.host = "127.0.0.1";
  one.port = 7000;
  one.rails = {{"soft"}};
  NodeRecord two = one;
  two.node = NodeId(5);
  for (const NodeRecord& record : {one, two})
    EXPECT_TRUE(node.get<Status>([&](auto done) { node.directory->announce(record, done); }).ok());
  const auto list = [&] {
    return node
        .get<Result<std::vector<NodeRecord>>>([&](auto done) { node.directory->list_nodes(done); })
        .value();
  };
  EXPECT_EQ(list(), (std::vector<NodeRecord>{one, two}));
  const auto find = [&](NodeId id) {
    return node
        .get<Result<std::optional<NodeRecord>>>(
            [&](auto done) { node.directory->find_node(id, done); })
        .value();
  };
  EXPECT_EQ(find(NodeId(5)), two);
  EXPECT_EQ(find(NodeId(6)), std::nullopt);
  const std::int64_t ttl = std::stoll(command(*server_, {"PTTL", node_name(NodeId(4))}));
  EXPECT_TRUE(ttl > 0 && ttl <= 5000) << ttl;
  EXPECT_TRUE(node.get<Status>([&](auto done) { node.directory->retract(NodeId(4), done); }).ok());
  // Rubbish in the set, and a record that names another node than its key.
  command(*server_, {"SADD", "okv:nodes", "x", "-1", "9", "99999999999999999999999"});
  command(*server_, {"SET", node_name(NodeId(9)), encode_node_record(two)});
  EXPECT_EQ(list(), std::vector<NodeRecord>{two});
  EXPECT_EQ(find(NodeId(9)), std::nullopt);
}

TEST_F(KvDirectory, leases_are_counted) {
  Driven node(options_for(*server_));
  for (std::uint8_t i = 0; i < 5; ++i) {
    ClientId client{};
    client[15] = std::byte{i};
    for (const ArenaId arena : {ArenaId(1), ArenaId(11)}) {
      EXPECT_TRUE(node.get<Status>([&](auto done) {
                        node.directory->take_lease(NodeId(4), Incarnation(99), arena, client, 60s,
                                                   done);
                      })
                      .ok());
    }
  }
  const auto count = [&](Incarnation incarnation) {
    return node
        .get<Result<std::uint64_t>>([&](auto done) {
          node.directory->count_leases(NodeId(4), incarnation, ArenaId(1), done);
        })
        .value();
  };
  // More keys than one SCAN looks at.
  command(*server_,
          {"EVAL", "for i = 1, 5000 do redis.call('SET', 'x' .. i, 1) end return 1", "0"});
  EXPECT_EQ(count(Incarnation(99)), 5U);
  EXPECT_EQ(count(Incarnation(98)), 0U);
}

TEST_F(KvDirectory, manifests_of_any_size) {
  Driven node(options_for(*server_));
  for (const std::size_t size : {std::size_t{10}, std::size_t{20} << 20}) {
    const Bytes manifest(size, std::byte{7});
    EXPECT_TRUE(node.get<Status>(
                        [&](auto done) { node.directory->put_manifest("t1", "g", manifest, done); })
                    .ok());
    const auto got = node.get<Result<std::optional<Bytes>>>(
        [&](auto done) { node.directory->get_manifest("t1", "g", done); });
    ASSERT_TRUE(got.ok());
    EXPECT_TRUE(*got == manifest);
  }
  const auto none = node.get<Result<std::optional<Bytes>>>(
      [&](auto done) { node.directory->get_manifest("t1", "other", done); });
  EXPECT_TRUE(none.ok() && !*none);
}

// The model that simulations run on does what a server does.
TEST_F(KvDirectory, the_model_agrees_with_the_server) {
  Driven node(options_for(*server_));
  ManualClock clock;
  sim::ValkeyState model(clock);
  Prng prng(2024);
  for (int i = 0; i < 2000; ++i) {
    const std::string key = "k" + std::to_string(prng.below(3));
    const auto version = [&] {
      return Version(static_cast<std::uint32_t>(prng.below(3)), static_cast<std::uint32_t>(1));
    };
    const std::uint64_t addr = 4096 * (1 + prng.below(2));
    if (prng.chance(1, 2)) {
      const auto mode = prng.chance(1, 2) ? PutMode::if_absent : PutMode::if_version;
      const Version expected = prng.chance(1, 4) ? Version() : version();
      auto request = publish_of(key, mode, expected, version(), addr);
      if (prng.chance(1, 4)) request.tag.clear();
      const auto want = model.publish(request);
      const auto got = node.publish(request);
      ASSERT_EQ(got.kind, want.kind) << "step " << i;
      ASSERT_EQ(got.current, want.current) << "step " << i;
    } else if (prng.chance(1, 6)) {
      const std::string name =
          prng.chance(1, 2) ? descriptor_name("t1", to_bytes(key)) : tag_name("t1", to_bytes(key));
      model.del(name);
      command(*server_, {"DEL", name});
    } else {
      const auto request = unpublish_of(key, static_cast<How>(prng.below(3)), version(), addr);
      ASSERT_EQ(node.unpublish(request).kind, model.unpublish(request)) << "step " << i;
    }
    const auto pair = node.resolve(key);
    ASSERT_EQ(pair->descriptor, model.get(descriptor_name("t1", to_bytes(key)))) << "step " << i;
    ASSERT_EQ(pair->tag, model.get(tag_name("t1", to_bytes(key)))) << "step " << i;
  }
}

TEST_F(KvDirectory, too_many_operations_are_refused_and_those_before_go_on) {
  auto options = options_for(*server_);
  options.pending_max = 100;
  Driven node(options);
  int done = 0, busy = 0;
  for (std::uint32_t i = 0; i < 150; ++i) {
    node.directory->publish(
        publish_of("k" + std::to_string(i), PutMode::if_absent, {}, Version(1, 1)),
        [&](PublishReply reply) {
          ++done;
          if (reply.kind != Published::not_done) return;
          EXPECT_EQ(reply.error.code, Errc::busy);
          ++busy;
        });
  }
  ASSERT_TRUE(node.until([&] { return done == 150; }));
  EXPECT_EQ(busy, 50);
  EXPECT_EQ(command(*server_, {"DBSIZE"}), "200");
}

TEST_F(KvDirectory, destruction_answers_what_is_left) {
  int answered = 0;
  {
    Driven node(options_for(*server_));
    node.directory->publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)),
                            [&](PublishReply reply) {
                              ++answered;
                              EXPECT_EQ(reply.error.code, Errc::closed);
                            });
    node.directory->resolve("t1", {to_bytes("a"), to_bytes("b")}, [&](auto all) {
      ++answered;
      EXPECT_EQ(all.size(), 2U);
      EXPECT_EQ(all.at(1).code(), Errc::closed);
    });
    // This one is with the connector, which may be done with it by then.
    node.directory->put_manifest("t1", "g", Bytes(1 << 20), [&](Status) { ++answered; });
    EXPECT_EQ(answered, 0);
  }
  EXPECT_EQ(answered, 3);
}

}  // namespace
}  // namespace farlift::kv
