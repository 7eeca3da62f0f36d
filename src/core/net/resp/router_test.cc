// The router of one server, real or scripted.
#include "core/net/resp/router_test_base.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>
#include <vector>

namespace farlift::resp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using testing::ServerProcess;

TEST(RouterAlone, reuses_the_connection_and_reconnects) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  auto router = open(options_for(*server, false));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(text(router->request("k", {"SET", "k", "v"})), "OK");
  EXPECT_EQ(router->counters().connects, 1U);
  server->kill();
  ASSERT_TRUE(server->restart(&reason)) << reason;
  EXPECT_EQ(text(router->request("k", {"PING"})), "PONG");
  EXPECT_EQ(router->counters().connects, 2U);
}

TEST(RouterAlone, gives_up_on_a_dead_server_with_a_reason) {
  RouterOptions options;
  options.connection.port = testing::free_port();
  options.retries_max = 3;
  options.backoff_first = milliseconds(1);
  std::string reason;
  EXPECT_EQ(Router::open(options, kClock, &reason).code(), Errc::unreachable);
  EXPECT_THAT(reason, HasSubstr("Connection refused"));

  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  options.connection = server->connection_options();
  auto router = open(options);
  server->kill();
  EXPECT_EQ(router->request("k", {"PING"}, &reason).code(), Errc::unreachable);
  EXPECT_EQ(router->counters().retries, 3U);
  EXPECT_THAT(reason, HasSubstr("cannot connect"));
}

TEST(RouterAlone, command_that_may_have_run_is_not_sent_again) {
  std::atomic<int> commands{0};
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    if (!peer.read_command().empty()) ++commands;  // and hang up without an answer
  });
  auto router = open(options_for(server, false));
  EXPECT_EQ(router->request("k", {"INCR", "k"}).code(), Errc::connection_lost);
  EXPECT_EQ(commands, 1);
  EXPECT_EQ(router->counters().retries, 0U);
}

TEST(RouterAlone, work_that_did_not_run_is_done_again_on_a_new_connection) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    while (!peer.read_command().empty()) {
      if (peer.number() < 2) return;  // cuts off the handshake of the first two connections
      peer.write("+OK\r\n");
    }
  });
  auto router = open(options_for(server, false));
  int runs = 0;
  const auto reply = router->run("k", [&](Connection& connection) {
    ++runs;
    const auto hand = connection.request({"HANDSHAKE"});
    if (!hand.ok()) return Attempt{hand.error(), false};
    return Router::attempt(
        connection, std::vector<std::string_view>{"WORK"},
        {.deadline = net::Deadline::after(kClock, seconds(30)), .bulk_into = {}});
  });
  EXPECT_EQ(text(reply), "OK");
  EXPECT_EQ(runs, 3);
}

TEST(RouterAlone, loading_is_waited_for) {
  std::atomic<int> asked{0};
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    while (!peer.read_command().empty()) peer.write(++asked < 4 ? "-LOADING data\r\n" : "+OK\r\n");
  });
  auto router = open(options_for(server, false));
  EXPECT_EQ(text(router->request("k", {"GET", "k"})), "OK");
  EXPECT_EQ(asked, 4);
  EXPECT_EQ(router->counters().connects, 1U);
}

TEST(RouterAlone, redirections_of_a_lone_server_are_the_callers) {
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    while (!peer.read_command().empty()) peer.write("-MOVED 1 127.0.0.1:1\r\n");
  });
  auto router = open(options_for(server, false));
  EXPECT_EQ(text(router->request("k", {"GET", "k"})), "MOVED 1 127.0.0.1:1");
}

TEST(RouterAlone, leases_are_exclusive_bounded_and_waited_for) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  RouterOptions options = options_for(*server, false);
  options.connections_per_node = 3;
  auto router = open(options);
  constexpr int kThreads = 8;
  constexpr int kRounds = 200;
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        auto lease = router->lease("k");
        ASSERT_TRUE(lease.ok());
        const int now = ++inside;
        for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
        }
        const std::string word = std::to_string(t * kRounds + i);
        EXPECT_EQ(text((*lease)->request({"ECHO", word})), word);
        --inside;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 3);
  EXPECT_LE(router->counters().connects, 3U);

  RouterOptions hasty = options_for(*server, false);
  hasty.lease_timeout = milliseconds(20);
  auto other = open(hasty);
  auto held = other->lease("k");
  ASSERT_TRUE(held.ok());
  EXPECT_EQ(other->lease("k").code(), Errc::busy);
  held->give_back();
  EXPECT_TRUE(other->lease("k").ok());
}

TEST(RouterAlone, connection_with_an_unanswered_command_is_not_lent_again) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  auto router = open(options_for(*server, false));
  {
    auto lease = router->lease("k");
    ASSERT_TRUE((*lease)->send({"ECHO", "stray"}).ok());
  }
  EXPECT_EQ(text(router->request("k", {"ECHO", "mine"})), "mine");
  EXPECT_EQ(router->counters().connects, 2U);
}

TEST(RouterAlone, cut_off_ends_waits_of_every_kind) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  auto router = open(options_for(*server, false));
  std::atomic<bool> sent{false};
  std::thread reader([&] {
    auto lease = router->lease("k");
    ASSERT_TRUE((*lease)->send({"BLPOP", "nothing-here", "0"}).ok());
    sent = true;
    EXPECT_EQ((*lease)->receive({}).code(), Errc::closed);
  });
  while (!sent) std::this_thread::yield();
  std::thread waiter([&] { EXPECT_EQ(router->lease("k").code(), Errc::closed); });
  router->cut_off();
  reader.join();
  waiter.join();
  EXPECT_EQ(router->request("k", {"PING"}).code(), Errc::closed);
}

}  // namespace
}  // namespace farlift::resp
