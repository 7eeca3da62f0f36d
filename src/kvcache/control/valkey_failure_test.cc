#include "core/net/resp/slot.h"
#include "kvcache/control/valkey_test_base.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace farlift::kv {
namespace {

using namespace std::chrono_literals;
using testing::ClusterProcess;
using testing::SentinelSet;
using testing::ServerProcess;
using Published = PublishReply::Kind;
using Removed = UnpublishReply::Kind;
using How = UnpublishRequest::How;

std::unique_ptr<ServerProcess> start(const testing::ServerOptions& options = {}) {
  std::string reason;
  auto server = ServerProcess::start(options, &reason);
  EXPECT_NE(server, nullptr) << reason;
  return server;
}

TEST(KvDirectoryFailure, a_server_that_is_down_is_not_done_within_the_time) {
  auto server = start();
  server->kill();
  Driven node(options_for(*server, 500ms));
  const auto reply = node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  EXPECT_EQ(reply.kind, Published::not_done);
  EXPECT_EQ(node.resolve("k").code(), Errc::unreachable);
  // It comes back, and so do we, without being told.
  std::string reason;
  ASSERT_TRUE(server->restart(&reason)) << reason;
  EXPECT_TRUE(node.publish_at_last("k", Version(1, 1), 20s));
}

// Stopped in the middle: nobody can tell; what arrives later is applied then.
TEST(KvDirectoryFailure, K028_a_server_that_hangs_is_unknown_and_may_apply_it_later) {
  auto server = start();
  Driven node(options_for(*server, 500ms));
  ASSERT_TRUE(node.publish_at_last("first", Version(1, 1), 20s));
  server->suspend();
  const auto reply = node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  EXPECT_EQ(reply.kind, Published::unknown);
  EXPECT_EQ(reply.error.code, Errc::timeout);
  server->resume();
  const auto read = [&] {
    const auto pair = node.resolve("k");
    return pair.ok() && pair->descriptor == descriptor_of(Version(1, 1));
  };
  const net::Deadline deadline = net::Deadline::after(kClock, 20s);
  bool applied = read();
  while (!applied && !deadline.expired(kClock)) applied = read();
  EXPECT_TRUE(applied);
}

TEST(KvDirectoryFailure, a_loss_is_unknown_for_scripts_and_repeated_for_reads) {
  auto server = start();
  Driven node(options_for(*server));
  ASSERT_TRUE(node.publish_at_last("k", Version(1, 1), 20s));
  server->suspend();
  std::optional<PublishReply> published;
  std::optional<Result<Pair>> resolved;
  node.directory->publish(publish_of("k2", PutMode::if_absent, {}, Version(1, 1)),
                          [&](PublishReply reply) { published = std::move(reply); });
  node.directory->resolve("t1", {to_bytes("k")}, [&](auto all) { resolved = all.at(0); });
  server->kill();
  std::string reason;
  ASSERT_TRUE(server->restart(&reason)) << reason;
  ASSERT_TRUE(node.until([&] { return published && resolved; }));
  EXPECT_EQ(published->kind, Published::unknown);
  EXPECT_EQ(published->error.code, Errc::connection_lost);
  ASSERT_TRUE(resolved->ok()) << resolved->error().describe();
  EXPECT_FALSE((*resolved)->descriptor) << "the server forgot everything";
  EXPECT_GE(node.directory->counters().losses, 1U);
}

TEST(KvDirectoryFailure, wrong_passwords_are_said_at_once) {
  auto server = start({.password = "secret"});
  auto options = options_for(*server, 20s);
  options.connection.password = "wrong";
  Driven node(options);
  const Instant before = kClock.now();
  const auto reply = node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  EXPECT_EQ(reply.kind, Published::not_done);
  EXPECT_EQ(reply.error.code, Errc::permission);
  EXPECT_LT(kClock.now() - before, 15s);
}

TEST(KvDirectoryFailure, a_full_server_refuses_before_it_starts) {
  auto server = start({.arguments = {"--maxmemory", "1", "--maxmemory-policy", "noeviction"}});
  Driven node(options_for(*server));
  const auto reply = node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1)));
  EXPECT_EQ(reply.kind, Published::not_done);
  EXPECT_EQ(reply.error.code, Errc::no_memory);
}

TEST(KvDirectoryFailure, tls_password_and_database) {
  auto server = start({.password = "secret", .tls = true});
  auto options = options_for(*server);
  options.connection.database = 3;
  Driven node(options);
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1))).kind,
            Published::ok);
  EXPECT_TRUE(node.resolve("k")->descriptor);
  EXPECT_EQ(command(*server, {"DBSIZE"}), "0") << "the default database is not ours";
}

// Runs the lines that docs/formats/okv-schema.md gives to paste; how many there were.
int set_users(const ServerProcess& server) {
  std::ifstream file(FARLIFT_SOURCE_DIR "/docs/formats/okv-schema.md");
  int users = 0;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("    ACL SETUSER ")) continue;
    std::istringstream text(line);
    std::vector<std::string> words;
    for (std::string word; text >> word;) words.push_back(word);
    EXPECT_EQ(command(server, std::vector<std::string_view>(words.begin(), words.end())), "OK");
    ++users;
  }
  return users;
}

TEST(KvDirectoryFailure, the_users_of_the_schema_can_do_what_they_must_and_no_more) {
  auto server = start();
  EXPECT_EQ(set_users(*server), 2);
  auto as = [&](const std::string& user, const std::string& password) {
    auto options = options_for(*server);
    options.connection.username = user;
    options.connection.password = password;
    return options;
  };
  Driven node(as("okv-node", "node-password"));
  Driven client(as("okv-client-t1", "client-password"));
  NodeRecord record;
  record.node = NodeId(4);
  record.incarnation = Incarnation(9);
  record.host = "h";
  record.port = 1;
  record.rails = {{"soft"}};
  EXPECT_TRUE(node.get<Status>([&](auto done) { node.directory->announce(record, done); }).ok());
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_absent, {}, Version(1, 1))).kind,
            Published::ok);
  EXPECT_EQ(node.publish(publish_of("gone", PutMode::if_absent, {}, Version(1, 1))).kind,
            Published::ok);
  EXPECT_EQ(node.unpublish(unpublish_of("gone", How::any, {}, 0)).kind, Removed::removed);
  EXPECT_TRUE(client.resolve("k")->descriptor);
  EXPECT_EQ(client
                .get<Result<std::vector<NodeRecord>>>(
                    [&](auto done) { client.directory->list_nodes(done); })
                ->size(),
            1U);
  EXPECT_TRUE(client
                  .get<Status>([&](auto done) {
                    client.directory->take_lease(NodeId(4), Incarnation(9), ArenaId(1), {}, 10s,
                                                 done);
                  })
                  .ok());
  EXPECT_EQ(node.get<Result<std::uint64_t>>([&](auto done) {
                  node.directory->count_leases(NodeId(4), Incarnation(9), ArenaId(1), done);
                })
                .value(),
            1U);
  // A client writes no descriptors and no records, and reads no other tenant.
  const auto forged = client.publish(publish_of("k", PutMode::if_version, Version(1, 1), {2, 1}));
  EXPECT_EQ(forged.kind, Published::not_done);
  EXPECT_EQ(forged.error.code, Errc::permission);
  EXPECT_EQ(
      client.get<Status>([&](auto done) { client.directory->announce(record, done); }).error().code,
      Errc::permission);
  std::optional<Result<Pair>> other;
  client.directory->resolve("t2", {to_bytes("k")}, [&](auto all) { other = all.at(0); });
  ASSERT_TRUE(client.until([&] { return other.has_value(); }));
  EXPECT_EQ(other->code(), Errc::permission);
  EXPECT_EQ(node.resolve("k")->descriptor, descriptor_of(Version(1, 1)));
}

TEST(KvDirectoryFailure, K045_a_lagging_replica_answers_with_an_older_value_or_none) {
  auto primary = start();
  auto replica = start({.arguments = {"--replicaof", "127.0.0.1", std::to_string(primary->port()),
                                      "--repl-diskless-sync-delay", "0"}});
  Driven node(options_for(*primary));
  Driven reader(options_for(*replica));
  ASSERT_TRUE(node.publish_at_last("k", Version(1, 1), 20s));
  const auto reads = [&](const std::optional<Bytes>& want) {
    const net::Deadline deadline = net::Deadline::after(kClock, 20s);
    while (!deadline.expired(kClock)) {
      const auto pair = reader.resolve("k");
      if (pair.ok() && pair->descriptor == want) return true;
    }
    return false;
  };
  ASSERT_TRUE(reads(descriptor_of(Version(1, 1))));
  // The stream from the primary stands still, as when the replica lags.
  EXPECT_EQ(command(*replica, {"REPLICAOF", "127.0.0.1", "1"}), "OK");
  EXPECT_EQ(node.publish(publish_of("k", PutMode::if_version, Version(1, 1), Version(2, 1))).kind,
            Published::ok);
  for (int i = 0; i < 50; ++i) {
    const auto pair = reader.resolve("k");
    ASSERT_TRUE(pair.ok());
    EXPECT_EQ(pair->descriptor, descriptor_of(Version(1, 1)));
    EXPECT_EQ(pair->tag, Bytes(32, std::byte{1}));
  }
  const std::string port = std::to_string(primary->port());
  EXPECT_EQ(command(*replica, {"REPLICAOF", "127.0.0.1", port}), "OK");
  EXPECT_TRUE(reads(descriptor_of(Version(2, 1))));
  // Who writes to a replica is told that nothing was done.
  Driven lost(options_for(*replica, 500ms));
  EXPECT_EQ(lost.publish(publish_of("k2", PutMode::if_absent, {}, Version(1, 1))).kind,
            Published::not_done);
}

class KvDirectoryCluster : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    cluster_ = ClusterProcess::start(3, {}, &reason);
    ASSERT_NE(cluster_, nullptr) << reason;
  }
  ValkeyOptions options() {
    auto options = options_for(cluster_->server(0));
    options.mode = ValkeyOptions::Mode::cluster;
    options.more_seeds = {{"127.0.0.1", cluster_->server(1).port()}};
    return options;
  }
  std::unique_ptr<ClusterProcess> cluster_;
};

TEST_F(KvDirectoryCluster, keys_live_on_three_primaries_and_one_mget_finds_each) {
  Driven node(options());
  std::vector<Bytes> keys;
  std::size_t left = 600;
  for (std::uint32_t i = 0; i < 600; ++i) {
    const std::string key = "k" + std::to_string(i);
    keys.push_back(to_bytes(key));
    node.directory->publish(publish_of(key, PutMode::if_absent, {}, Version(1, i + 1)),
                            [&](PublishReply reply) {
                              EXPECT_EQ(reply.kind, Published::ok) << reply.error.describe();
                              --left;
                            });
  }
  ASSERT_TRUE(node.until([&] { return left == 0; }));
  const auto all = node.resolve(keys);
  for (std::uint32_t i = 0; i < 600; ++i)
    EXPECT_EQ(all.at(i)->descriptor, descriptor_of(Version(1, i + 1)));
  std::uint64_t mgets = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::uint64_t own = calls_of(cluster_->server(i), "mget");
    EXPECT_GT(own, 0U);
    mgets += own;
  }
  EXPECT_EQ(mgets, 600U);
  EXPECT_EQ(node.unpublish(unpublish_of("k5", How::any, {}, 0)).kind, Removed::removed);
  ClientId client{};
  EXPECT_TRUE(node.get<Status>([&](auto done) {
                    node.directory->take_lease(NodeId(4), Incarnation(9), ArenaId(1), client, 30s,
                                               done);
                  })
                  .ok());
  EXPECT_EQ(node.get<Result<std::uint64_t>>([&](auto done) {
                  node.directory->count_leases(NodeId(4), Incarnation(9), ArenaId(1), done);
                })
                .value(),
            1U);
}

// A slot on its way from one primary to another: ASK, then MOVED; scripts and reads follow both.
TEST_F(KvDirectoryCluster, slots_that_move_are_followed) {
  Driven node(options());
  const std::string key = "wandering";
  const std::uint16_t slot = resp::key_slot(descriptor_name("t1", to_bytes(key)));
  const std::size_t owner = cluster_->owner_of(slot);
  ServerProcess& from = cluster_->server(owner);
  ServerProcess& to = cluster_->server((owner + 1) % 3);
  ASSERT_TRUE(node.publish_at_last(key, Version(1, 1), 20s));
  const std::string number = std::to_string(slot);
  const std::string from_id = command(from, {"CLUSTER", "MYID"});
  const std::string to_id = command(to, {"CLUSTER", "MYID"});
  ASSERT_EQ(command(to, {"CLUSTER", "SETSLOT", number, "IMPORTING", from_id}), "OK");
  ASSERT_EQ(command(from, {"CLUSTER", "SETSLOT", number, "MIGRATING", to_id}), "OK");
  const std::string port = std::to_string(to.port());
  ASSERT_EQ(command(from, {"MIGRATE", "127.0.0.1", port, "", "0", "5000", "KEYS",
                           descriptor_name("t1", to_bytes(key)), tag_name("t1", to_bytes(key))}),
            "OK");
  EXPECT_EQ(node.resolve(key)->descriptor, descriptor_of(Version(1, 1)));
  EXPECT_EQ(node.publish(publish_of(key, PutMode::if_version, Version(1, 1), Version(2, 1))).kind,
            Published::ok);
  EXPECT_GE(node.directory->counters().redirections, 2U);
  for (ServerProcess* server : {&to, &from})
    ASSERT_EQ(command(*server, {"CLUSTER", "SETSLOT", number, "NODE", to_id}), "OK");
  EXPECT_EQ(node.resolve(key)->descriptor, descriptor_of(Version(2, 1)));
  const auto before = node.directory->counters().redirections;
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(node.resolve(key)->descriptor);
  EXPECT_LE(node.directory->counters().redirections, before + 1) << "the new owner is remembered";
}

TEST_F(KvDirectoryCluster, a_dead_primary_takes_only_its_own_keys_along) {
  auto short_time = options();
  short_time.timeout = 700ms;
  Driven node(short_time);
  std::vector<std::string> keys(3);  // one on each
  for (int i = 0; keys[0].empty() || keys[1].empty() || keys[2].empty(); ++i) {
    const std::string key = "k" + std::to_string(i);
    keys.at(cluster_->owner_of(resp::key_slot(descriptor_name("t1", to_bytes(key))))) = key;
  }
  for (const std::string& key : keys) ASSERT_TRUE(node.publish_at_last(key, Version(1, 1), 20s));
  cluster_->server(2).suspend();
  std::optional<std::vector<Result<Pair>>> all;
  node.directory->resolve("t1", {to_bytes(keys[0]), to_bytes(keys[1]), to_bytes(keys[2])},
                          [&](auto pairs) { all = std::move(pairs); });
  ASSERT_TRUE(node.until([&] { return all.has_value(); }));
  EXPECT_TRUE(all->at(0).ok());
  EXPECT_TRUE(all->at(1).ok());
  EXPECT_FALSE(all->at(2).ok());
  cluster_->server(2).resume();
  const net::Deadline deadline = net::Deadline::after(kClock, 20s);
  while (!node.resolve(keys[2]).ok()) ASSERT_FALSE(deadline.expired(kClock));
}

TEST(KvDirectorySentinel, K067_a_failover_is_followed_without_restart) {
  std::string reason;
  auto set = SentinelSet::start({}, &reason);
  ASSERT_NE(set, nullptr) << reason;
  auto options = options_for(set->primary(), 1s);
  options.mode = ValkeyOptions::Mode::sentinel;
  options.sentinels = set->sentinels();
  options.primary_name = "main";
  Driven node(options);
  ASSERT_TRUE(node.publish_at_last("before", Version(1, 1), 20s));
  const std::string before = descriptor_name("t1", to_bytes("before"));
  const net::Deadline deadline = net::Deadline::after(kClock, 20s);
  while (command(set->replica(), {"EXISTS", before}) != "1") ASSERT_FALSE(deadline.expired(kClock));
  set->primary().suspend();  // silent, but its connections stay
  EXPECT_TRUE(node.publish_at_last("after", Version(1, 1), 40s));
  EXPECT_EQ(command(set->replica(), {"EXISTS", descriptor_name("t1", to_bytes("after"))}), "1");
  EXPECT_TRUE(node.resolve("before")->descriptor) << "it had been replicated";
  // The old one comes back, still thinking that it is the primary, until it is told otherwise.
  set->primary().resume();
  EXPECT_TRUE(node.publish_at_last("last", Version(1, 1), 20s));
  EXPECT_EQ(command(set->replica(), {"EXISTS", descriptor_name("t1", to_bytes("last"))}), "1");
}

}  // namespace
}  // namespace farlift::kv
