#include "core/net/stream.h"

#include "core/net/resp/connection.h"
#include "core/net/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::net {
namespace {

using resp::Connection;
using resp::ConnectionOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

const SystemClock kClock;

struct Pair {
  std::unique_ptr<Stream> near, far;
  static Pair make(std::shared_ptr<const WakeSignal> stop = nullptr) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    return {adopt_stream(UniqueFd(fds[0]), kClock, std::move(stop)).value(),
            adopt_stream(UniqueFd(fds[1]), kClock).value()};
  }
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::uint16_t listen_on(int fd, int backlog) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::listen(fd, backlog), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin_port);
}

TEST(DeadlineTest, saturates_and_rounds_up) {
  ManualClock clock;
  EXPECT_TRUE(Deadline::after(clock, Duration::max()).is_never());
  EXPECT_EQ(Deadline::never().poll_ms(clock), -1);
  EXPECT_EQ(Deadline::after(clock, std::chrono::microseconds(1)).poll_ms(clock), 1);
  EXPECT_EQ(Deadline::after(clock, seconds(-5)).poll_ms(clock), 0);
  const Deadline deadline = Deadline::after(clock, milliseconds(10));
  EXPECT_FALSE(deadline.expired(clock));
  clock.advance(milliseconds(10));
  EXPECT_TRUE(deadline.expired(clock));
  EXPECT_EQ(deadline.left(clock), Duration::zero());
  EXPECT_EQ(Deadline::after(clock, std::chrono::hours(24 * 365 * 200)).poll_ms(clock),
            std::numeric_limits<int>::max());
}

TEST(StreamTest, bytes_cross_whole_in_both_directions) {
  const Pair pair = Pair::make();
  const std::string text(3 << 20, 'q');
  std::thread writer(
      [&] { EXPECT_TRUE(pair.near->write_all(bytes_of(text), Deadline::never()).ok()); });
  std::string received;
  std::vector<std::byte> buffer(100'000);
  while (received.size() < text.size()) {
    const auto got = pair.far->read_some(buffer, Deadline::never());
    ASSERT_TRUE(got.ok());
    received.append(reinterpret_cast<const char*>(buffer.data()), *got);
  }
  writer.join();
  EXPECT_TRUE(received == text);
}

TEST(StreamTest, nothing_to_read_is_again_then_timeout) {
  const Pair pair = Pair::make();
  std::byte byte{};
  const iovec area{&byte, 1};
  EXPECT_EQ(pair.near->try_read({&area, 1}).code(), Errc::again);
  EXPECT_EQ(pair.near->read_some({&byte, 1}, Deadline::after(kClock, milliseconds(10))).code(),
            Errc::timeout);
  const std::string large(64 << 20, 'x');
  EXPECT_EQ(
      pair.near->write_all(bytes_of(large), Deadline::after(kClock, milliseconds(10))).error().code,
      Errc::timeout);
}

TEST(StreamTest, peer_gone_is_connection_lost_without_a_signal) {
  Pair pair = Pair::make();
  pair.far.reset();
  std::byte byte{};
  EXPECT_EQ(pair.near->read_some({&byte, 1}, Deadline::never()).code(), Errc::connection_lost);
  EXPECT_EQ(pair.near->write_all({&byte, 1}, Deadline::never()).error().code,
            Errc::connection_lost);
}

TEST(StreamTest, cut_off_wakes_readers_and_writers_and_the_peer) {
  for (const bool writing : {false, true}) {
    const Pair pair = Pair::make();
    std::thread cutter([&] { pair.near->cut_off(); });
    if (writing) {
      const std::string large(64 << 20, 'x');
      EXPECT_EQ(pair.near->write_all(bytes_of(large), Deadline::never()).error().code,
                Errc::closed);
    } else {
      std::byte byte{};
      EXPECT_EQ(pair.near->read_some({&byte, 1}, Deadline::never()).code(), Errc::closed);
    }
    cutter.join();
    EXPECT_TRUE(pair.near->is_cut());
    EXPECT_EQ(pair.near->wait(Interest::either, Deadline::never()).code(), Errc::closed);
    std::vector<std::byte> buffer(1 << 20);
    Result<std::size_t> far = pair.far->read_some(buffer, Deadline::never());
    while (far.ok()) far = pair.far->read_some(buffer, Deadline::never());
    EXPECT_EQ(far.code(), Errc::connection_lost);
  }
}

TEST(StreamTest, stop_signal_cuts_off_and_stays) {
  const auto stop = WakeSignal::make().value();
  const Pair pair = Pair::make(stop);
  std::thread raiser([&] { stop->raise(); });
  std::byte byte{};
  EXPECT_EQ(pair.near->read_some({&byte, 1}, Deadline::never()).code(), Errc::closed);
  raiser.join();
  stop->raise();
  EXPECT_EQ(pair.near->write_all({&byte, 1}, Deadline::never()).error().code, Errc::closed);
  EXPECT_EQ(connect_stream({.port = 1, .stop = stop}, kClock, Deadline::never()).code(),
            Errc::closed);
}

// A listener whose queue is full drops what comes: the connection is neither made nor refused.
TEST(StreamTest, connecting_can_time_out_and_be_stopped) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::uint16_t port = listen_on(listener.get(), 0);
  std::vector<std::unique_ptr<Stream>> held;
  Result<std::unique_ptr<Stream>> last = Error::make(Errc::internal, "none yet");
  for (int i = 0; i < 16; ++i) {
    last = connect_stream({.port = port}, kClock, Deadline::after(kClock, milliseconds(100)));
    if (!last.ok()) break;
    held.push_back(std::move(last).value());
  }
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.code(), Errc::timeout);
  const auto stop = WakeSignal::make().value();
  std::thread raiser([&] { stop->raise(); });
  EXPECT_EQ(connect_stream({.port = port, .stop = stop}, kClock, Deadline::never()).code(),
            Errc::closed);
  raiser.join();
}

TEST(StreamTest, addresses_that_lead_nowhere_are_named) {
  std::string reason;
  EXPECT_EQ(connect_stream({.port = testing::free_port()}, kClock,
                           Deadline::after(kClock, seconds(10)), &reason)
                .code(),
            Errc::unreachable);
  EXPECT_THAT(reason, HasSubstr("Connection refused"));
  EXPECT_EQ(connect_stream({.host = "name.invalid", .port = 1}, kClock,
                           Deadline::after(kClock, seconds(10)), &reason)
                .code(),
            Errc::unreachable);
  EXPECT_THAT(reason, HasSubstr("name.invalid"));
}

class TlsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::string reason;
    server_ = testing::ServerProcess::start({.tls = true}, &reason).release();
    ASSERT_NE(server_, nullptr) << reason;
  }
  static void TearDownTestSuite() { delete std::exchange(server_, nullptr); }

  static Result<std::unique_ptr<Connection>> connect(const ConnectionOptions& options,
                                                     std::string* reason = nullptr) {
    return Connection::connect(options, kClock, reason);
  }

  static testing::ServerProcess* server_;
};

testing::ServerProcess* TlsTest::server_ = nullptr;

TEST_F(TlsTest, verified_by_ca_file_for_address_and_name) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    ConnectionOptions options = server_->connection_options();
    options.host = host;
    std::string reason;
    const auto connection = connect(options, &reason);
    ASSERT_TRUE(connection.ok()) << reason;
    EXPECT_EQ((*connection)->request({"PING"}).value().text(), "PONG");
  }
}

TEST_F(TlsTest, large_values_cross_and_land_in_place) {
  auto connection = connect(server_->connection_options()).value();
  const std::string value(9'000'001, 'v');
  ASSERT_EQ(connection->request({"SET", "large", value}).value().text(), "OK");
  std::vector<std::byte> memory(value.size());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(connection->send({"GET", "large"}).ok());
  for (int i = 0; i < 3; ++i) {
    const auto reply = connection->receive(
        {.deadline = Deadline::after(kClock, seconds(30)), .bulk_into = memory});
    ASSERT_TRUE(reply.ok());
    EXPECT_TRUE(reply->borrowed());
    EXPECT_TRUE(reply->text() == value);
  }
}

// Decrypted bytes that poll(2) does not see.
TEST_F(TlsTest, buffered_input_is_told) {
  auto connection = connect(server_->connection_options()).value();
  ASSERT_EQ(connection->request({"SET", "two", std::string(10'000, 'x')}).value().text(), "OK");
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(connection->send({"GET", "two"}).ok());
  int answered = 0;
  while (answered < 200) {
    if (!connection->has_buffered_input()) {
      pollfd fd{connection->fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&fd, 1, 30'000), 1) << answered;
    }
    const auto reply = connection->try_receive();
    ASSERT_TRUE(reply.ok());
    if (*reply) ++answered;
  }
}

TEST_F(TlsTest, wrong_ca_wrong_name_and_no_tls_are_refused_in_words) {
  std::string reason;
  ConnectionOptions options = server_->connection_options();
  options.tls->ca_file = server_->tls_files().other_ca;
  EXPECT_EQ(connect(options, &reason).code(), Errc::permission);
  EXPECT_THAT(reason, HasSubstr("certificate verify failed"));

  options = server_->connection_options();
  options.tls->server_name = "elsewhere.example";
  EXPECT_EQ(connect(options, &reason).code(), Errc::permission);
  EXPECT_THAT(reason, HasSubstr("ostname mismatch"));
  options.tls->verify_hostname = false;
  EXPECT_TRUE(connect(options, &reason).ok()) << reason;

  options = server_->connection_options();
  options.tls->ca_file = server_->tls_files().other_ca;
  options.tls->insecure = true;
  EXPECT_TRUE(connect(options, &reason).ok()) << reason;

  options = server_->connection_options();
  options.tls.reset();
  EXPECT_FALSE(connect(options).ok());

  // The other way round: TLS to a port that does not speak it.
  std::string plain_reason;
  auto plain = testing::ServerProcess::start({}, &plain_reason);
  ASSERT_NE(plain, nullptr) << plain_reason;
  options = server_->connection_options();
  options.port = plain->port();
  options.connect_timeout =
      milliseconds(200);  // it takes our greeting for an unfinished command and waits
  EXPECT_FALSE(connect(options, &reason).ok());
  EXPECT_THAT(reason, HasSubstr("TLS with 127.0.0.1"));
}

TEST_F(TlsTest, client_certificates) {
  std::string reason;
  auto server =
      testing::ServerProcess::start({.tls = true, .tls_client_certificates = true}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  ConnectionOptions options = server->connection_options();
  const auto connection = connect(options, &reason);
  ASSERT_TRUE(connection.ok()) << reason;
  options.tls->certificate_file.clear();
  options.tls->key_file.clear();
  const auto refused = connect(options, &reason);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(reason, HasSubstr("certificate"));
}

TEST_F(TlsTest, unusable_options_are_named) {
  std::string reason;
  EXPECT_EQ(TlsContext::make({.ca_file = "/nonexistent.crt"}, &reason).code(),
            Errc::invalid_argument);
  EXPECT_THAT(reason, HasSubstr("/nonexistent.crt"));
  EXPECT_EQ(TlsContext::make({.certificate_file = server_->tls_files().client_certificate}, &reason)
                .code(),
            Errc::invalid_argument);
  EXPECT_THAT(reason, HasSubstr("key_file"));
  EXPECT_EQ(TlsContext::make({.certificate_file = server_->tls_files().client_certificate,
                              .key_file = server_->tls_files().server_key},
                             &reason)
                .code(),
            Errc::invalid_argument);
  EXPECT_TRUE(TlsContext::make({}, &reason).ok()) << reason;
}

TEST_F(TlsTest, cut_off_during_the_handshake_and_while_waiting) {
  // A listener that accepts and says nothing.
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ConnectionOptions options = server_->connection_options();
  options.port = listen_on(listener.get(), 8);
  options.connect_timeout = milliseconds(100);
  EXPECT_EQ(connect(options).code(), Errc::timeout);
  options.connect_timeout = seconds(60);
  const auto stop = WakeSignal::make().value();
  options.stop = stop;
  std::thread raiser([&] { stop->raise(); });
  EXPECT_EQ(connect(options).code(), Errc::closed);
  raiser.join();

  auto connection = connect(server_->connection_options()).value();
  ASSERT_TRUE(connection->send({"BLPOP", "nothing-here", "0"}).ok());
  std::thread cutter([&] { connection->cut_off(); });
  EXPECT_EQ(connection->receive({}).code(), Errc::closed);
  cutter.join();
}

TEST_F(TlsTest, killed_by_the_server_is_connection_lost) {
  auto connection = connect(server_->connection_options()).value();
  const std::string id = std::to_string(connection->request({"CLIENT", "ID"}).value().integer());
  ASSERT_TRUE(connection->send({"BLPOP", "nothing-here", "0"}).ok());
  auto other = connect(server_->connection_options()).value();
  ASSERT_TRUE(other->request({"CLIENT", "KILL", "ID", id}).ok());
  EXPECT_EQ(connection->receive({}).code(), Errc::connection_lost);
}

}  // namespace
}  // namespace farlift::net
