// Connections against servers that misbehave.
#include "core/net/resp/connection.h"
#include "core/net/resp/fake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace farlift::resp {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const SystemClock kClock;

ConnectionOptions options_for(const FakeServer& server) {
  ConnectionOptions options;
  options.port = server.port();
  options.connect_timeout = seconds(20);
  options.request_timeout = seconds(30);
  return options;
}

std::unique_ptr<Connection> connect(const FakeServer& server) {
  std::string reason;
  auto connection = Connection::connect(options_for(server), kClock, &reason);
  EXPECT_TRUE(connection.ok()) << reason;
  return connection.ok() ? std::move(connection).value() : nullptr;
}

TEST(ConnectionFake, falls_back_to_resp2_when_hello_is_unknown) {
  std::vector<std::vector<std::string>> commands;
  for (const char* refusal :
       {"-ERR unknown command 'HELLO'\r\n", "-NOPROTO unsupported protocol version\r\n"}) {
    commands.clear();
    {
      FakeServer server([&](FakeServer::Peer& peer) {
        commands.push_back(peer.read_command());
        peer.write(refusal);
        for (;;) {
          auto command = peer.read_command();
          if (command.empty()) return;
          commands.push_back(command);
          peer.write("+OK\r\n");
        }
      });
      ConnectionOptions options = options_for(server);
      options.username = "u";
      options.password = "p";
      options.client_name = "n";
      options.database = 2;
      auto connection = Connection::connect(options, kClock);
      ASSERT_TRUE(connection.ok());
      EXPECT_EQ((*connection)->protocol(), Protocol::resp2);
    }
    const std::vector<std::vector<std::string>> expected = {
        {"HELLO", "3", "AUTH", "u", "p", "SETNAME", "n"},
        {"AUTH", "u", "p"},
        {"CLIENT", "SETNAME", "n"},
        {"PING"},
        {"SELECT", "2"}};
    EXPECT_EQ(commands, expected);
  }
}

TEST(ConnectionFake, greetings_that_are_refused_or_nonsense) {
  const struct {
    const char* answer;
    Errc code;
    const char* reason;
  } cases[] = {
      {"-ERR max number of clients reached\r\n", Errc::exhausted, "max number of clients"},
      {"-DENIED protected mode\r\n", Errc::permission, "protected mode"},
      {"-LOADING data\r\n", Errc::again, "LOADING"},
      {"HTTP/1.1 400 Bad Request\r\n\r\n", Errc::protocol, "greeting"},
      {"+OK\r\n", Errc::protocol, "greeting"},
      {"%1\r\n$5\r\nproto\r\n:2\r\n", Errc::protocol, "greeting"},
      {"", Errc::connection_lost, "greeting"},
  };
  for (const auto& c : cases) {
    FakeServer server([&](FakeServer::Peer& peer) {
      peer.read_command();
      peer.write(c.answer);
    });
    std::string reason;
    EXPECT_EQ(Connection::connect(options_for(server), kClock, &reason).code(), c.code) << c.answer;
    EXPECT_THAT(reason, HasSubstr(c.reason)) << c.answer;
  }
}

TEST(ConnectionFake, malformed_replies_break_the_connection) {
  const std::string_view replies[] = {
      "?", "$5\r\nhellox\r\n", ":1x\r\n", "*1\r\n>1\r\n+x\r\n", "*99999999\r\n",
      "+" /* and the line never ends */};
  for (const std::string_view reply : replies) {
    FakeServer server([&](FakeServer::Peer& peer) {
      if (!peer.greet()) return;
      peer.read_command();
      peer.write(reply);
      const std::string more(4096, 'x');
      for (int i = 0; i < 64 && peer.write(more); ++i) {
      }
      peer.wait_until_gone();
    });
    auto connection = connect(server);
    const auto answer = connection->request({"GET", "key"});
    ASSERT_FALSE(answer.ok()) << reply;
    EXPECT_TRUE(answer.code() == Errc::protocol || answer.code() == Errc::too_large) << reply;
    EXPECT_TRUE(connection->broken());
    EXPECT_EQ(connection->request({"GET", "key"}).code(), answer.code());
  }
}

TEST(ConnectionFake, end_of_stream_inside_a_reply_is_connection_lost) {
  for (const std::string_view part :
       {"", "$", "$5", "$5\r\n", "$5\r\nhel", "$5\r\nhello", "$5\r\nhello\r", "*2\r\n:1\r\n"}) {
    FakeServer server([&](FakeServer::Peer& peer) {
      if (!peer.greet()) return;
      peer.read_command();
      peer.write(part);
    });
    auto connection = connect(server);
    EXPECT_EQ(connection->request({"GET", "key"}).code(), Errc::connection_lost) << part;
  }
}

// What has landed may stay, but nothing is written to the caller's memory once receive() has
// returned.
TEST(ConnectionFake, offered_memory_is_left_alone_after_a_failure) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    peer.read_command();
    peer.write("$1000\r\nhalf");
    peer.wait_until_gone();
    peer.write(std::string(2000, 'z'));
  });
  auto connection = connect(server);
  std::vector<std::byte> memory(1000, std::byte{0});
  ASSERT_TRUE(connection->send({"GET", "key"}).ok());
  EXPECT_EQ(connection
                ->receive({.deadline = net::Deadline::after(kClock, milliseconds(50)),
                           .bulk_into = memory})
                .code(),
            Errc::timeout);
  std::memset(memory.data(), 0x5a, memory.size());
  EXPECT_EQ(connection->try_receive().code(), Errc::timeout);
  EXPECT_EQ(connection->receive({.bulk_into = memory}).code(), Errc::timeout);
  connection.reset();
  for (const std::byte byte : memory) ASSERT_EQ(byte, std::byte{0x5a});
}

TEST(ConnectionFake, reply_without_a_command_is_a_violation) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    peer.read_command();
    peer.write("+OK\r\n+SURPRISE\r\n");
    peer.wait_until_gone();
  });
  auto connection = connect(server);
  ASSERT_TRUE(connection->request({"PING"}).ok());
  for (;;) {
    const auto surprise = connection->try_receive();
    if (surprise.ok()) {
      EXPECT_FALSE(surprise->has_value());
      std::this_thread::yield();
      continue;
    }
    EXPECT_EQ(surprise.code(), Errc::protocol);
    break;
  }
  EXPECT_TRUE(connection->broken());
}

// A server that answers each command before it reads the next: both sides' sockets fill up, and
// only reading while sending gets on.
TEST(ConnectionFake, sending_reads_when_the_server_stops_reading) {
  const std::string value(1 << 20, 'v');
  FakeServer server([&](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    const std::string reply = "$" + std::to_string(value.size()) + "\r\n" + value + "\r\n";
    while (!peer.read_command().empty()) {
      if (!peer.write(reply)) return;
    }
  });
  auto connection = connect(server);
  constexpr int kCommands = 32;
  for (int i = 0; i < kCommands; ++i) ASSERT_TRUE(connection->send({"ECHO", value}).ok()) << i;
  for (int i = 0; i < kCommands; ++i) {
    const auto reply = connection->receive();
    ASSERT_TRUE(reply.ok());
    ASSERT_TRUE(reply->text() == value);
  }
}

// What comes early is bounded; beyond that the server has to wait, and the request timeout ends it.
TEST(ConnectionFake, early_replies_are_bounded) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    peer.read_command();
    const std::string flood = "$1048576\r\n" + std::string(1 << 20, 'v') + "\r\n";
    while (peer.write(flood)) {
    }
  });
  ConnectionOptions options = options_for(server);
  options.request_timeout = milliseconds(500);
  auto connection = std::move(Connection::connect(options, kClock)).value();
  ASSERT_TRUE(connection->send({"PING"}).ok());
  const std::string large(256UL << 20, 'x');
  const auto sent = connection->send({"ECHO", large});
  ASSERT_FALSE(sent.ok());
  // The second reply is the one too many: there were two commands.
  EXPECT_TRUE(sent.error().code == Errc::protocol || sent.error().code == Errc::timeout);
  EXPECT_TRUE(connection->broken());
}

TEST(ConnectionFake, refusal_while_sending_is_kept_in_words) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    peer.write("-ERR Protocol error: invalid bulk length\r\n");
  });
  auto connection = connect(server);
  const std::string large(256UL << 20, 'x');
  const auto sent = connection->send({"SET", "key", large});
  ASSERT_FALSE(sent.ok());
  EXPECT_EQ(sent.error().code, Errc::connection_lost);
  EXPECT_THAT(connection->last_error_text(), HasSubstr("invalid bulk length"));
}

TEST(ConnectionFake, pushes_are_bounded_and_counted) {
  constexpr int kPushes = static_cast<int>(Connection::kPushesMax) + 10;
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    peer.read_command();
    for (int i = 0; i < kPushes; ++i)
      peer.write(">2\r\n+message\r\n:" + std::to_string(i) + "\r\n");
    peer.write("+done\r\n");
    peer.wait_until_gone();
  });
  auto connection = connect(server);
  EXPECT_EQ(connection->request({"PING"}).value().text(), "done");
  EXPECT_EQ(connection->pushes_dropped(), 10U);
  const auto pushes = connection->take_pushes();
  ASSERT_EQ(pushes.size(), Connection::kPushesMax);
  EXPECT_EQ(pushes.front().items()[1].integer(), 10);
  EXPECT_EQ(pushes.back().items()[1].integer(), kPushes - 1);
}

// Other threads cut off while this one is anywhere: connecting done, sending, receiving.
TEST(ConnectionFake, cut_off_at_any_moment) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    while (!peer.read_command().empty()) {
      if (!peer.write("+OK\r\n")) return;
    }
  });
  for (int round = 0; round < 50; ++round) {
    auto connection = connect(server);
    std::atomic<int> done{0};
    std::thread cutter([&] {
      while (done < round) std::this_thread::yield();
      connection->cut_off();
    });
    Errc code{};
    for (;;) {
      const auto reply = connection->request({"PING"});
      if (!reply.ok()) {
        code = reply.code();
        break;
      }
      ++done;
    }
    cutter.join();
    EXPECT_EQ(code, Errc::closed);
  }
}

TEST(ConnectionFake, cut_off_while_sending) {
  FakeServer server([](FakeServer::Peer& peer) {
    if (!peer.greet()) return;
    peer.wait_for_hang_up();  // reads nothing, so that the sender blocks
  });
  auto connection = connect(server);
  const std::string large(256UL << 20, 'x');
  std::thread cutter(
      [&] { connection->cut_off(); });  // before or while sending: any moment will do
  EXPECT_EQ(connection->send({"SET", "key", large}).error().code, Errc::closed);
  cutter.join();
}

}  // namespace
}  // namespace farlift::resp
