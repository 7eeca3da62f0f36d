// The router against clusters: real ones, and scripted ones that lie.
#include "core/net/resp/router_test_base.h"
#include "core/net/resp/slot.h"

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace farlift::resp {
namespace {

using std::chrono::seconds;
using testing::ClusterProcess;
using ::testing::HasSubstr;
using testing::ServerProcess;

class RouterCluster : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string reason;
    cluster_ = ClusterProcess::start(3, {}, &reason).release();
    ASSERT_NE(cluster_, nullptr) << reason;
  }
  static void TearDownTestSuite() { delete std::exchange(cluster_, nullptr); }

  static std::unique_ptr<Connection> direct(std::size_t index) {
    return Connection::connect(cluster_->server(index).connection_options(), kClock).value();
  }
  static Endpoint endpoint(std::size_t index) {
    return {"127.0.0.1", cluster_->server(index).port()};
  }

  static ClusterProcess* cluster_;
};

ClusterProcess* RouterCluster::cluster_ = nullptr;

TEST_F(RouterCluster, slots_are_those_of_the_server) {
  auto connection = direct(0);
  Prng prng(7);
  for (int i = 0; i < 500; ++i) {
    std::string key(static_cast<std::size_t>(prng.below(20)), ' ');
    for (char& c : key)
      c = prng.chance(1, 4) ? (prng.chance(1, 2) ? '{' : '}') : static_cast<char>(prng.below(256));
    ASSERT_EQ(connection->request({"CLUSTER", "KEYSLOT", key}).value().integer(), key_slot(key))
        << key;
  }
}

TEST_F(RouterCluster, every_key_goes_to_its_primary_at_once) {
  for (const Protocol protocol : {Protocol::resp2, Protocol::resp3}) {
    RouterOptions options = options_for(cluster_->server(0), true);
    options.connection.protocol = protocol;
    auto router = open(options);
    EXPECT_EQ(router->nodes().size(), 3U);
    for (int i = 0; i < 300; ++i) {
      const std::string key = "key" + std::to_string(i);
      ASSERT_EQ(text(router->request(key, {"SET", key, key})), "OK");
      auto lease = router->lease(key);
      ASSERT_TRUE(lease.ok());
      ASSERT_EQ(lease->node(), endpoint(cluster_->owner_of(key_slot(key))));
      ASSERT_EQ(text((*lease)->request({"GET", key})), key);
    }
    EXPECT_EQ(router->counters().moved, 0U);
    EXPECT_LE(router->counters().connects, 3U);
  }
}

TEST_F(RouterCluster, shards_and_slots_tell_the_same) {
  auto connection = direct(1);
  const auto slots =
      Topology::from_slots(connection->request({"CLUSTER", "SLOTS"}).value(), endpoint(1));
  const auto shards =
      Topology::from_shards(connection->request({"CLUSTER", "SHARDS"}).value(), endpoint(1), false);
  ASSERT_TRUE(slots.ok() && shards.ok());
  for (std::uint16_t slot = 0; slot < kSlotCount; ++slot)
    ASSERT_EQ(*slots->owner(slot), *shards->owner(slot));
}

TEST_F(RouterCluster, crossslot_is_the_servers_word_and_ours) {
  auto router = open(options_for(cluster_->server(0), true));
  const auto reply = router->request("a", {"MSET", "a", "1", "b", "2"});
  ASSERT_TRUE(reply.ok() && reply->is_error());
  EXPECT_EQ(ReplyError::parse(reply->text()).kind, ReplyError::Kind::cross_slot);
  const std::string_view keys[] = {"a", "b"};
  EXPECT_EQ(common_slot(keys).code(), Errc::invalid_argument);
}

// A slot on its way from one node to another: ASK for what has gone, the old owner for what has
// not, MOVED in the end.
TEST_F(RouterCluster, migrating_slot_asks_then_moves) {
  const std::string key = "{migrating}1";
  const std::string stays = "{migrating}2";
  const std::uint16_t slot = key_slot(key);
  const std::size_t from = cluster_->owner_of(slot);
  const std::size_t to = (from + 1) % 3;
  auto router = open(options_for(cluster_->server(from), true));
  ASSERT_EQ(text(router->request(key, {"SET", key, "before"})), "OK");
  ASSERT_EQ(text(router->request(key, {"SET", stays, "stays"})), "OK");

  auto source = direct(from);
  auto target = direct(to);
  const std::string source_id(source->request({"CLUSTER", "MYID"}).value().text());
  const std::string target_id(target->request({"CLUSTER", "MYID"}).value().text());
  const std::string number = std::to_string(slot);
  ASSERT_EQ(text(target->request({"CLUSTER", "SETSLOT", number, "IMPORTING", source_id})), "OK");
  ASSERT_EQ(text(source->request({"CLUSTER", "SETSLOT", number, "MIGRATING", target_id})), "OK");
  const std::string port = std::to_string(cluster_->server(to).port());
  ASSERT_EQ(text(source->request({"MIGRATE", "127.0.0.1", port, key, "0", "20000"})), "OK");

  EXPECT_EQ(text(router->request(key, {"GET", key})), "before");
  EXPECT_EQ(router->counters().asked, 1U);
  EXPECT_EQ(text(router->request(stays, {"GET", stays})), "stays");
  EXPECT_EQ(text(router->request(key, {"SET", "{migrating}new", "x"})), "OK");
  EXPECT_EQ(router->counters().asked, 2U);
  EXPECT_EQ(router->counters().moved, 0U);
  // Half the keys here, half there: TRYAGAIN until it is over.
  std::atomic<bool> finished{false};
  std::thread finisher([&] {
    while (router->counters().retries == 0 && !finished) std::this_thread::yield();
    EXPECT_EQ(text(source->request({"MIGRATE", "127.0.0.1", port, stays, "0", "20000"})), "OK");
    EXPECT_EQ(text(target->request({"CLUSTER", "SETSLOT", number, "NODE", target_id})), "OK");
    EXPECT_EQ(text(source->request({"CLUSTER", "SETSLOT", number, "NODE", target_id})), "OK");
  });
  const auto both = router->request(key, {"MGET", key, stays});
  finished = true;
  finisher.join();
  ASSERT_TRUE(both.ok() && both->type() == Type::array) << text(both);
  EXPECT_EQ(both->items()[0].text(), "before");
  EXPECT_EQ(both->items()[1].text(), "stays");

  // One that still believes in the old owner is put right, and then knows.
  EXPECT_EQ(text(router->request(key, {"GET", key})), "before");
  const auto moved_before = router->counters().moved;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(text(router->request(key, {"GET", key})), "before");
  EXPECT_EQ(router->counters().moved, moved_before);
  const auto lease = router->lease(key);
  EXPECT_EQ(lease->node(), endpoint(to));
}

TEST_F(RouterCluster, seeds_that_are_down_are_passed_over) {
  RouterOptions options = options_for(cluster_->server(0), true);
  options.connection.port = testing::free_port();
  options.more_seeds = {{"127.0.0.1", testing::free_port()}, endpoint(2)};
  auto router = open(options);
  ASSERT_NE(router, nullptr);
  EXPECT_EQ(router->nodes().size(), 3U);
}

TEST_F(RouterCluster, many_threads_share_the_connections) {
  RouterOptions options = options_for(cluster_->server(0), true);
  options.connections_per_node = 2;
  auto router = open(options);
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const std::string key = std::to_string(t) + ":" + std::to_string(i);
        ASSERT_EQ(text(router->request(key, {"SET", key, key})), "OK");
        ASSERT_EQ(text(router->request(key, {"GET", key})), key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(router->counters().connects, 6U);
}

TEST(RouterOptionsTest, lone_server_is_no_cluster_and_has_databases) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  EXPECT_EQ(Router::open(options_for(*server, true), kClock, &reason).code(), Errc::unsupported);
  EXPECT_THAT(reason, HasSubstr("cluster support disabled"));
  RouterOptions options = options_for(*server, true);
  options.connection.database = 1;
  EXPECT_EQ(Router::open(options, kClock, &reason).code(), Errc::invalid_argument);
}

TEST(RouterTls, cluster_over_tls) {
  std::string reason;
  auto cluster = ClusterProcess::start(2, {.tls = true}, &reason);
  ASSERT_NE(cluster, nullptr) << reason;
  auto router = open(options_for(cluster->server(1), true));
  ASSERT_NE(router, nullptr);
  for (int i = 0; i < 50; ++i) {
    const std::string key = "key" + std::to_string(i);
    ASSERT_EQ(text(router->request(key, {"SET", key, key})), "OK");
    const auto lease = router->lease(key);
    ASSERT_EQ(lease->node().port, cluster->server(cluster->owner_of(key_slot(key))).port());
  }
  EXPECT_EQ(router->counters().moved, 0U);
}

// ---- clusters that lie

std::string slots_reply(std::uint16_t port) {
  return "*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:" + std::to_string(port) + "\r\n";
}

TEST(RouterFake, endless_redirections_end) {
  std::atomic<std::uint16_t> port{0};
  std::atomic<int> commands{0};
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    for (;;) {
      const auto command = peer.read_command();
      if (command.empty()) return;
      if (command[0] == "CLUSTER") {
        peer.write(slots_reply(port));
      } else {
        ++commands;
        peer.write("-MOVED " + std::to_string(key_slot("k")) + " :" + std::to_string(port) +
                   "\r\n");
      }
    }
  });
  port = server.port();
  RouterOptions options = options_for(server, true);
  options.redirects_max = 5;
  auto router = open(options);
  EXPECT_EQ(router->request("k", {"GET", "k"}).code(), Errc::exhausted);
  EXPECT_EQ(commands, 6);
}

TEST(RouterFake, asking_precedes_the_command_each_time) {
  std::atomic<std::uint16_t> port{0};
  std::vector<std::string> seen;
  std::mutex mutex;
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    bool asking = false;
    for (;;) {
      const auto command = peer.read_command();
      if (command.empty()) return;
      if (command[0] == "CLUSTER") {
        peer.write(slots_reply(port));
        continue;
      }
      {
        const std::lock_guard lock(mutex);
        seen.push_back(command[0]);
      }
      if (command[0] == "ASKING") {
        asking = true;
        peer.write("+OK\r\n");
      } else if (asking) {
        asking = false;
        peer.write("$5\r\nvalue\r\n");
      } else {
        peer.write("-ASK " + std::to_string(key_slot("k")) + " 127.0.0.1:" + std::to_string(port) +
                   "\r\n");
      }
    }
  });
  port = server.port();
  auto router = open(options_for(server, true));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(text(router->request("k", {"GET", "k"})), "value");
  EXPECT_EQ(seen, (std::vector<std::string>{"GET", "ASKING", "GET", "GET", "ASKING", "GET"}));
  EXPECT_EQ(router->counters().asked, 2U);
  EXPECT_EQ(router->counters().refreshes, 1U);
}

TEST(RouterFake, cluster_down_is_retried_and_then_told) {
  std::atomic<std::uint16_t> port{0};
  std::atomic<int> failures{3};
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    for (;;) {
      const auto command = peer.read_command();
      if (command.empty()) return;
      if (command[0] == "CLUSTER") {
        peer.write(slots_reply(port));
      } else {
        peer.write(failures-- > 0 ? "-CLUSTERDOWN The cluster is down\r\n" : "+OK\r\n");
      }
    }
  });
  port = server.port();
  RouterOptions options = options_for(server, true);
  options.retries_max = 4;
  auto router = open(options);
  EXPECT_EQ(text(router->request("k", {"GET", "k"})), "OK");
  EXPECT_EQ(router->counters().retries, 3U);
  failures = 1000;
  EXPECT_EQ(text(router->request("k", {"GET", "k"})), "CLUSTERDOWN The cluster is down");
  EXPECT_EQ(router->counters().retries, 7U);
}

TEST(RouterFake, malformed_topologies_are_refused) {
  for (const char* answer :
       {"+OK\r\n", "*0\r\n", "*1\r\n:1\r\n", "*1\r\n*3\r\n:0\r\n:99999\r\n*2\r\n+h\r\n:1\r\n"}) {
    FakeServer server([&](FakeServer::Peer& peer) {
      if (!peer.greet()) return;
      while (!peer.read_command().empty()) peer.write(answer);
    });
    std::string reason;
    const auto router = Router::open(options_for(server, true), kClock, &reason);
    ASSERT_FALSE(router.ok()) << answer;
    EXPECT_TRUE(router.code() == Errc::protocol || router.code() == Errc::again) << answer;
    EXPECT_FALSE(reason.empty());
  }
}

TEST(RouterFake, cut_off_ends_a_pause) {
  std::atomic<bool> asked{false};
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    while (!peer.read_command().empty()) {
      peer.write("-LOADING data\r\n");
      asked = true;
    }
  });
  RouterOptions options = options_for(server, false);
  options.backoff_first = seconds(3600);
  options.backoff_max = seconds(3600);
  auto router = open(options);
  std::thread waiter([&] { EXPECT_EQ(router->request("k", {"GET", "k"}).code(), Errc::closed); });
  while (!asked) std::this_thread::yield();
  router->cut_off();
  waiter.join();
}

}  // namespace
}  // namespace farlift::resp
