// Connections against a real valkey-server; what no real server does is in connection_fake_test.cc.
#include "core/net/resp/connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::resp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ServerOptions;
using testing::ServerProcess;

const SystemClock kClock;

class ConnectionTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string reason;
    server_ = ServerProcess::start({}, &reason).release();
    ASSERT_NE(server_, nullptr) << reason;
  }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static std::unique_ptr<Connection> connect(const ConnectionOptions& options) {
    std::string reason;
    auto connection = Connection::connect(options, kClock, &reason);
    EXPECT_TRUE(connection.ok()) << reason;
    return connection.ok() ? std::move(connection).value() : nullptr;
  }
  static std::unique_ptr<Connection> connect() { return connect(server_->connection_options()); }

  static ServerProcess* server_;
};

ServerProcess* ConnectionTest::server_ = nullptr;

std::string text(const Result<Value>& reply) {
  if (!reply.ok()) return "failed: " + reply.error().describe();
  return reply->is_text() ? std::string(reply->text())
                          : "a " + std::string(type_name(reply->type()));
}

std::string pattern(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint64_t state = size + 1;
  for (char& byte : bytes) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    byte = static_cast<char>(state >> 56);
  }
  return bytes;
}

TEST_F(ConnectionTest, greets_in_resp3_and_resp2) {
  auto three = connect();
  EXPECT_EQ(three->protocol(), Protocol::resp3);
  EXPECT_FALSE(three->server_version().empty());
  EXPECT_EQ(three->request({"CONFIG", "GET", "maxmemory"}).value().type(), Type::map);

  ConnectionOptions options = server_->connection_options();
  options.protocol = Protocol::resp2;
  auto two = connect(options);
  EXPECT_EQ(two->protocol(), Protocol::resp2);
  EXPECT_EQ(two->request({"CONFIG", "GET", "maxmemory"}).value().type(), Type::array);
  EXPECT_EQ(text(two->request({"PING"})), "PONG");
}

TEST_F(ConnectionTest, unix_socket_name_and_database) {
  ConnectionOptions options = server_->connection_options();
  options.unix_path = server_->unix_path();
  options.client_name = "lifter";
  options.database = 3;
  auto connection = connect(options);
  const auto info = connection->request({"CLIENT", "INFO"});
  EXPECT_THAT(text(info), ::testing::HasSubstr("name=lifter"));
  EXPECT_THAT(text(info), ::testing::HasSubstr("db=3"));
  EXPECT_EQ(text(connection->request({"SET", "only-in-3", "x"})), "OK");
  EXPECT_TRUE(connect()->request({"GET", "only-in-3"}).value().is_null());
}

TEST_F(ConnectionTest, host_names_resolve) {
  ConnectionOptions options = server_->connection_options();
  options.host = "localhost";
  EXPECT_EQ(text(connect(options)->request({"PING"})), "PONG");
}

TEST_F(ConnectionTest, refused_database_is_named) {
  ConnectionOptions options = server_->connection_options();
  options.database = 4000;
  std::string reason;
  const auto connection = Connection::connect(options, kClock, &reason);
  ASSERT_FALSE(connection.ok());
  EXPECT_EQ(connection.code(), Errc::invalid_argument);
  EXPECT_THAT(reason, ::testing::HasSubstr("DB index is out of range"));
}

TEST_F(ConnectionTest, values_of_many_sizes_come_back_whole) {
  auto connection = connect();
  for (const std::size_t size :
       {0UL, 1UL, 4095UL, 4096UL, 4097UL, 32768UL, 65535UL, 65536UL, 65537UL, 200'000UL, 1UL << 20,
        (1UL << 20) + 1, 8UL << 20, 33'554'433UL}) {
    const std::string value = pattern(size);
    ASSERT_EQ(text(connection->request({"SET", "sized", value})), "OK") << size;
    const auto reply = connection->request({"GET", "sized"});
    ASSERT_TRUE(reply.ok() && reply->type() == Type::bulk) << size;
    ASSERT_TRUE(reply->text() == value) << size;
  }
}

TEST_F(ConnectionTest, bulk_string_lands_in_the_memory_offered) {
  auto connection = connect();
  for (const std::size_t size : {1UL, 1000UL, 100'000UL, 5'000'000UL}) {
    const std::string value = pattern(size);
    ASSERT_EQ(text(connection->request({"SET", "offered", value})), "OK");
    std::vector<std::byte> memory(size + 64, std::byte{0x5a});
    ASSERT_TRUE(connection->send({"GET", "offered"}).ok());
    const auto reply = connection->receive({.deadline = net::Deadline::after(kClock, seconds(30)),
                                            .bulk_into = {memory.data(), size}});
    ASSERT_TRUE(reply.ok());
    EXPECT_TRUE(reply->borrowed());
    EXPECT_EQ(reply->bytes().data(), memory.data());
    EXPECT_EQ(std::memcmp(memory.data(), value.data(), size), 0);
    for (std::size_t i = size; i < memory.size(); ++i) ASSERT_EQ(memory[i], std::byte{0x5a});
    // Too small: untouched, and the value is delivered all the same.
    std::vector<std::byte> small(size - 1, std::byte{0x5a});
    ASSERT_TRUE(connection->send({"GET", "offered"}).ok());
    const auto elsewhere = connection->receive(
        {.deadline = net::Deadline::after(kClock, seconds(30)), .bulk_into = small});
    ASSERT_TRUE(elsewhere.ok());
    EXPECT_FALSE(elsewhere->borrowed());
    EXPECT_TRUE(elsewhere->text() == value);
    for (const std::byte byte : small) ASSERT_EQ(byte, std::byte{0x5a});
  }
}

TEST_F(ConnectionTest, pipelining_keeps_the_order) {
  auto connection = connect();
  constexpr int kCommands = 5000;
  ASSERT_TRUE(connection->request({"DEL", "counter"}).ok());
  for (int i = 0; i < kCommands; ++i) ASSERT_TRUE(connection->send({"INCR", "counter"}).ok());
  EXPECT_EQ(connection->unanswered(), static_cast<std::size_t>(kCommands));
  for (int i = 1; i <= kCommands; ++i) {
    const auto reply = connection->receive();
    ASSERT_TRUE(reply.ok());
    ASSERT_EQ(reply->integer(), i);
  }
  EXPECT_EQ(connection->unanswered(), 0U);
}

// Replies far larger than all socket buffers (a server that stops reading is in
// connection_fake_test.cc).
TEST_F(ConnectionTest, pipelining_does_not_deadlock_on_full_sockets) {
  auto connection = connect();
  const std::string value = pattern(1 << 20);
  ASSERT_EQ(text(connection->request({"SET", "large", value})), "OK");
  constexpr int kCommands = 24;
  for (int i = 0; i < kCommands; ++i) {
    ASSERT_TRUE(connection->send({"ECHO", value}).ok());
    ASSERT_TRUE(connection->send({"GET", "large"}).ok());
  }
  std::vector<std::byte> memory(value.size());
  for (int i = 0; i < 2 * kCommands; ++i) {
    const auto reply = connection->receive(
        {.deadline = net::Deadline::after(kClock, seconds(30)), .bulk_into = memory});
    ASSERT_TRUE(reply.ok());
    ASSERT_TRUE(reply->borrowed());
    ASSERT_TRUE(reply->text() == value);
    std::memset(memory.data(), 0, memory.size());
  }
}

TEST_F(ConnectionTest, several_commands_in_one_send) {
  auto connection = connect();
  const std::string_view set[] = {"SET", "one", "1"};
  const std::string_view get[] = {"GET", "one"};
  const Arguments commands[] = {set, get, get};
  ASSERT_TRUE(connection->send_many(commands).ok());
  EXPECT_EQ(text(connection->receive()), "OK");
  EXPECT_EQ(text(connection->receive()), "1");
  EXPECT_EQ(text(connection->receive()), "1");
  EXPECT_EQ(connection->receive().code(), Errc::invalid_argument);
  EXPECT_FALSE(connection->broken());
}

TEST_F(ConnectionTest, error_replies_are_values) {
  auto connection = connect();
  const auto reply = connection->request({"NOSUCHCOMMAND"});
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->is_error());
  EXPECT_EQ(text(connection->request({"PING"})), "PONG");
}

TEST_F(ConnectionTest, push_messages_are_set_aside) {
  auto connection = connect();
  ASSERT_EQ(text(connection->request({"CLIENT", "TRACKING", "ON"})), "OK");
  ASSERT_TRUE(connection->request({"GET", "watched"}).ok());
  ASSERT_EQ(text(connect()->request({"SET", "watched", "1"})), "OK");
  EXPECT_EQ(text(connection->request({"PING"})), "PONG");
  const auto pushes = connection->take_pushes();
  ASSERT_EQ(pushes.size(), 1U);
  EXPECT_EQ(pushes[0].type(), Type::push);
  EXPECT_EQ(pushes[0].items()[0].text(), "invalidate");
  EXPECT_TRUE(connection->take_pushes().empty());
}

TEST_F(ConnectionTest, try_receive_never_waits) {
  auto connection = connect();
  ASSERT_TRUE(connection->send({"BLPOP", "nothing", "0"}).ok());
  EXPECT_FALSE(connection->try_receive().value().has_value());
  ASSERT_EQ(connect()->request({"RPUSH", "nothing", "something"}).value().integer(), 1);
  std::optional<Value> reply;
  while (!reply) {
    pollfd fd{connection->fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&fd, 1, 30'000), 1);
    reply = connection->try_receive().value();
  }
  EXPECT_EQ(reply->items()[1].text(), "something");
  // Two replies in one packet: the second is not seen by poll.
  ASSERT_TRUE(connection->send({"MULTI"}).ok());
  ASSERT_TRUE(connection->send({"PING"}).ok());
  ASSERT_TRUE(connection->receive().ok());
  while (true) {
    if (connection->has_buffered_input()) break;
    pollfd fd{connection->fd(), POLLIN, 0};
    if (::poll(&fd, 1, 30'000) == 1) break;
  }
  EXPECT_EQ(connection->try_receive().value()->text(), "QUEUED");
}

TEST_F(ConnectionTest, timeout_breaks_the_connection_for_good) {
  ConnectionOptions options = server_->connection_options();
  options.request_timeout = milliseconds(50);
  auto connection = connect(options);
  EXPECT_EQ(connection->request({"BLPOP", "nothing-here", "0"}).code(), Errc::timeout);
  EXPECT_TRUE(connection->broken());
  EXPECT_EQ(connection->request({"PING"}).code(), Errc::timeout);
  EXPECT_EQ(connection->receive().code(), Errc::timeout);
  EXPECT_EQ(connection->try_receive().code(), Errc::timeout);
}

TEST_F(ConnectionTest, cut_off_from_another_thread_ends_the_wait) {
  for (int round = 0; round < 20; ++round) {
    auto connection = connect();
    ASSERT_TRUE(connection->send({"BLPOP", "nothing-here", "0"}).ok());
    std::thread cutter([&] { connection->cut_off(); });
    EXPECT_EQ(connection->receive({}).code(), Errc::closed);
    cutter.join();
    EXPECT_TRUE(connection->broken());
    EXPECT_EQ(connection->send({"PING"}).code(), Errc::closed);
  }
}

TEST_F(ConnectionTest, stop_signal_ends_many_connections) {
  ConnectionOptions options = server_->connection_options();
  const auto stop = net::WakeSignal::make().value();
  options.stop = stop;
  std::vector<std::thread> threads;
  std::atomic<int> waiting{0};
  std::atomic<int> closed{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      auto connection = connect(options);
      ASSERT_TRUE(connection->send({"BLPOP", "nothing-here", "0"}).ok());
      ++waiting;
      if (connection->receive({}).code() == Errc::closed) ++closed;
    });
  }
  while (waiting < 4) std::this_thread::yield();
  stop->raise();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(closed, 4);
  EXPECT_EQ(Connection::connect(options, kClock).code(), Errc::closed);
}

TEST_F(ConnectionTest, killed_by_the_server_is_connection_lost) {
  auto connection = connect();
  const std::string id = std::to_string(connection->request({"CLIENT", "ID"}).value().integer());
  ASSERT_TRUE(connection->send({"BLPOP", "nothing-here", "0"}).ok());
  ASSERT_TRUE(connect()->request({"CLIENT", "KILL", "ID", id}).ok());
  EXPECT_EQ(connection->receive({}).code(), Errc::connection_lost);
  EXPECT_TRUE(connection->broken());
  EXPECT_EQ(connection->send({"PING"}).code(), Errc::connection_lost);
}

// The server names the reason and hangs up while we are still sending.
TEST_F(ConnectionTest, reason_of_a_refused_long_argument_is_kept) {
  std::string reason;
  auto server = ServerProcess::start({.arguments = {"--proto-max-bulk-len", "1048576"}}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  auto connection = connect(server->connection_options());
  const std::string value(64UL << 20, 'x');
  const auto reply = connection->request({"SET", "key", value});
  if (reply.ok()) {  // all of it fitted into the socket
    EXPECT_THAT(std::string(reply->text()), ::testing::HasSubstr("invalid bulk length"));
  } else {
    EXPECT_EQ(reply.code(), Errc::connection_lost);
  }
  EXPECT_TRUE(connect(server->connection_options())->request({"GET", "key"}).value().is_null());
}

TEST_F(ConnectionTest, login_by_password_and_by_user) {
  std::string reason;
  auto server = ServerProcess::start({.password = "sesame"}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  for (const Protocol protocol : {Protocol::resp2, Protocol::resp3}) {
    ConnectionOptions options = server->connection_options();
    options.protocol = protocol;
    auto connection = connect(options);
    ASSERT_TRUE(
        connection->request({"ACL", "SETUSER", "alice", "on", ">wonder", "~*", "+@all"}).ok());
    options.username = "alice";
    options.password = "wonder";
    EXPECT_EQ(text(connect(options)->request({"ACL", "WHOAMI"})), "alice");

    options.password = "wrong";
    EXPECT_EQ(Connection::connect(options, kClock, &reason).code(), Errc::permission);
    EXPECT_THAT(reason, ::testing::HasSubstr("WRONGPASS"));
    options.username.clear();
    options.password.clear();
    EXPECT_EQ(Connection::connect(options, kClock, &reason).code(), Errc::permission);
    EXPECT_THAT(reason, ::testing::HasSubstr("NOAUTH"));
  }
}

TEST_F(ConnectionTest, nobody_listening_is_unreachable) {
  ConnectionOptions options;
  options.port = testing::free_port();
  std::string reason;
  EXPECT_EQ(Connection::connect(options, kClock, &reason).code(), Errc::unreachable);
  EXPECT_THAT(reason, ::testing::HasSubstr("Connection refused"));
  options.unix_path = "/nonexistent/valkey.sock";
  EXPECT_EQ(Connection::connect(options, kClock, &reason).code(), Errc::unreachable);
  options.unix_path = std::string(200, 'x');
  EXPECT_EQ(Connection::connect(options, kClock, &reason).code(), Errc::invalid_argument);
}

TEST_F(ConnectionTest, silent_server_is_a_timeout) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  ConnectionOptions options = server->connection_options();
  options.connect_timeout = milliseconds(100);
  server->suspend();
  EXPECT_EQ(Connection::connect(options, kClock, &reason).code(), Errc::timeout);
  server->resume();
}

TEST_F(ConnectionTest, companion_lives_as_long_as_the_connection) {
  struct Probe final : Connection::Companion {
    explicit Probe(bool& ended) : ended_(ended) {}
    ~Probe() override { ended_ = true; }
    bool& ended_;
  };
  bool ended = false;
  auto connection = connect();
  EXPECT_EQ(connection->companion(), nullptr);
  connection->set_companion(std::make_unique<Probe>(ended));
  EXPECT_NE(connection->companion(), nullptr);
  EXPECT_FALSE(ended);
  connection.reset();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace farlift::resp
