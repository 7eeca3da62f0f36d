#include "kvcache/control/socket_transport.h"

#include "core/base/prng.h"

#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <functional>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::kv {
namespace {

using namespace std::chrono_literals;

const SystemClock kClock;
constexpr auto kWithin = 20s;

Frame frame_of(std::uint64_t number, std::size_t body = 3) {
  return {FrameType::stat, false, number, Bytes(body, static_cast<std::byte>(number))};
}

// A socket that says whatever a test wants.
UniqueFd raw_connect(std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  return fd;
}
void raw_send(const UniqueFd& fd, ByteView bytes) {
  EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

// One loop over two transports, as two processes would run them.
class SocketTransportTest : public ::testing::Test {
 protected:
  void SetUp() override { open({}, {}); }

  void open(SocketTransportOptions node, SocketTransportOptions client,
            const std::string& ip = "127.0.0.1") {
    accepted_.reset();
    link_.reset();
    listener_.reset();
    node_ = SocketTransport::open(kClock, std::move(node)).value();
    client_ = SocketTransport::open(kClock, std::move(client)).value();
    auto listener = node_->listen(ip, 0);
    ASSERT_TRUE(listener.ok()) << listener.error().describe();
    listener_ = std::move(listener).value();
  }

  // Steps both, waiting on their descriptors alone, until `done`.
  bool until(const std::function<bool()>& done) {
    const net::Deadline deadline = net::Deadline::after(kClock, kWithin);
    for (;;) {
      bool busy = node_->step();
      busy = client_->step() || busy;
      if (done()) return true;  // it may take things: asked once for each step
      if (deadline.expired(kClock)) return false;
      if (busy) continue;
      pollfd fds[2] = {{node_->wait_fd(), POLLIN, 0}, {client_->wait_fd(), POLLIN, 0}};
      ::poll(fds, 2, deadline.poll_ms(kClock));
    }
  }
  bool accept() {
    return until([&] {
      if (accepted_ == nullptr) accepted_ = listener_->accept();
      return accepted_ != nullptr;
    });
  }
  void connect(const std::string& host = "127.0.0.1") {
    auto link = client_->connect(host, listener_->port());
    ASSERT_TRUE(link.ok());
    link_ = std::move(link).value();
    ASSERT_TRUE(accept());
  }
  // The next frame or the loss.
  Result<Frame> next(Link& link) {
    Result<Frame> got = Error::make(Errc::again, "");
    until([&] {
      got = link.receive();
      return got.ok() || got.code() != Errc::again;
    });
    return got;
  }
  void exchange() {
    ASSERT_TRUE(link_->send(frame_of(1)).ok());
    auto there = next(*accepted_);
    ASSERT_TRUE(there.ok()) << there.error().describe();
    EXPECT_EQ(there->req_id, 1U);
    ASSERT_TRUE(accepted_->send(frame_of(2, 100'000)).ok());
    auto back = next(*link_);
    ASSERT_TRUE(back.ok()) << back.error().describe();
    EXPECT_EQ(back->body, Bytes(100'000, std::byte{2}));
  }

  std::unique_ptr<SocketTransport> node_, client_;
  std::unique_ptr<LinkListener> listener_;
  std::unique_ptr<Link> link_, accepted_;
};

TEST_F(SocketTransportTest, FramesGoBothWays) {
  connect();
  EXPECT_EQ(link_->receive().code(), Errc::again);
  exchange();
  EXPECT_EQ(link_->peer(), "127.0.0.1:" + std::to_string(listener_->port()));
  EXPECT_EQ(accepted_->peer().substr(0, 10), "127.0.0.1:");
}

TEST_F(SocketTransportTest, Ipv6AndNames) {
  open({}, {}, "::1");
  connect("::1");
  exchange();
  EXPECT_EQ(accepted_->peer().substr(0, 6), "[::1]:");
  // Both families may come first for this name; the listener has one.
  open({}, {}, "127.0.0.1");
  connect("localhost");
  exchange();
}

TEST_F(SocketTransportTest, FramesSentBeforeTheConnectionIsUpArriveInOrder) {
  auto link = client_->connect("127.0.0.1", listener_->port());
  ASSERT_TRUE(link.ok());
  for (std::uint64_t i = 0; i < 1000; ++i)
    ASSERT_TRUE((*link)->send(frame_of(i, static_cast<std::size_t>(i * 5))).ok());
  ASSERT_TRUE(accept());
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto frame = next(*accepted_);
    ASSERT_TRUE(frame.ok());
    ASSERT_EQ(frame->req_id, i);
    ASSERT_EQ(frame->body.size(), i * 5);
  }
}

TEST_F(SocketTransportTest, WhatCannotBeReachedIsALostLink) {
  for (const std::string host : {"127.0.0.1", "no-such-host.invalid"}) {
    const UniqueFd reserved(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const std::uint16_t port = testing::free_port();
    auto link = client_->connect(host, port);
    ASSERT_TRUE(link.ok());
    EXPECT_TRUE((*link)->send(frame_of(1)).ok());
    EXPECT_EQ(next(**link).code(), Errc::connection_lost);
    EXPECT_TRUE((*link)->lost());
    EXPECT_EQ((*link)->send(frame_of(1)).error().code, Errc::connection_lost);
  }
}

// A backlog that is full answers no further handshake; wait_fd() must wake the loop for the limit.
TEST_F(SocketTransportTest, ConnectingEndsInTime) {
  const UniqueFd full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof at;
  ASSERT_EQ(::bind(full.get(), reinterpret_cast<sockaddr*>(&at), length), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  ASSERT_EQ(::getsockname(full.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
  open({}, {.connect_timeout = 300ms});
  std::vector<std::unique_ptr<Link>> links;
  for (int i = 0; i < 4; ++i)
    links.push_back(client_->connect("127.0.0.1", ntohs(at.sin_port)).value());
  EXPECT_TRUE(until([&] { return links.back()->lost(); }));
}

TEST_F(SocketTransportTest, AClosedLinkDeliversWhatWasSentBefore) {
  connect();
  for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(link_->send(frame_of(i)).ok());
  link_->close();
  EXPECT_EQ(link_->send(frame_of(1)).error().code, Errc::closed);
  EXPECT_EQ(link_->receive().code(), Errc::closed);
  for (std::uint64_t i = 0; i < 10; ++i) {
    EXPECT_FALSE(accepted_->lost());
    const auto frame = next(*accepted_);
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(frame->req_id, i);
  }
  EXPECT_EQ(next(*accepted_).code(), Errc::connection_lost);
  EXPECT_TRUE(accepted_->lost());
}

TEST_F(SocketTransportTest, LinksSurviveTheirTransport) {
  connect();
  exchange();
  node_.reset();
  EXPECT_EQ(accepted_->receive().code(), Errc::connection_lost);
  EXPECT_EQ(listener_->accept(), nullptr);
  accepted_.reset();
  listener_.reset();
  node_ = SocketTransport::open(kClock, {}).value();
}

TEST_F(SocketTransportTest, APeerThatDoesNotReadFillsTheQueueAndNoMore) {
  connect();
  std::size_t taken = 0;
  Status status;
  while (taken < 1000 && status.ok()) {
    status = link_->send(frame_of(taken, kFrameBodyBytesMax));
    if (status.ok()) ++taken;
  }
  EXPECT_EQ(status.error().code, Errc::exhausted);
  EXPECT_EQ(link_->send(frame_of(1, kFrameBodyBytesMax + 1)).error().code, Errc::too_large);
  // The node's transport takes in no more than its limit while nobody receives.
  for (int i = 0; i < 1000; ++i) node_->step();
  EXPECT_EQ(link_->send(frame_of(1, kFrameBodyBytesMax)).error().code, Errc::exhausted);
  for (std::size_t i = 0; i < taken; ++i) {
    const auto frame = next(*accepted_);
    ASSERT_TRUE(frame.ok());
    ASSERT_EQ(frame->req_id, i);
  }
}

TEST_F(SocketTransportTest, HostilePeersEndTheirLinkOnly) {
  connect();
  Bytes huge = encode_frame(frame_of(1));
  for (std::size_t i = 8; i < 12; ++i) huge[i] = std::byte{0xff};  // body_len
  Bytes wrong_sum = encode_frame(frame_of(1));
  wrong_sum.back() ^= std::byte{1};
  Bytes unknown = encode_frame(frame_of(1));
  unknown[4] = std::byte{99};
  Bytes http(40, std::byte{'G'});
  for (const Bytes& said : {huge, wrong_sum, unknown, http}) {
    const UniqueFd peer = raw_connect(listener_->port());
    raw_send(peer, said);
    std::unique_ptr<Link> link;
    ASSERT_TRUE(until([&] { return (link = listener_->accept()) != nullptr; }));
    EXPECT_EQ(next(*link).code(), Errc::protocol);
    EXPECT_EQ(link->send(frame_of(1)).error().code, Errc::connection_lost);
    exchange();
  }
  EXPECT_EQ(node_->counters().garbage, 4U);
}

TEST_F(SocketTransportTest, FramesBeforeGarbageAreDelivered) {
  const UniqueFd peer = raw_connect(listener_->port());
  Bytes said = encode_frame(frame_of(5));
  said.insert(said.end(), 30, std::byte{0});
  raw_send(peer, said);
  ASSERT_TRUE(accept());
  ASSERT_EQ(next(*accepted_)->req_id, 5U);
  EXPECT_EQ(next(*accepted_).code(), Errc::protocol);
}

TEST_F(SocketTransportTest, FramesCutAnywhereAreWhole) {
  const UniqueFd peer = raw_connect(listener_->port());
  ASSERT_TRUE(accept());
  Bytes stream;
  for (std::uint64_t i = 0; i < 50; ++i) {
    const Bytes one = encode_frame(frame_of(i, static_cast<std::size_t>(i)));
    stream.insert(stream.end(), one.begin(), one.end());
  }
  Prng prng(3);
  std::uint64_t seen = 0;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t piece = std::min<std::size_t>(1 + prng.below(60), stream.size() - at);
    raw_send(peer, ByteView(stream).subspan(at, piece));
    at += piece;
    node_->step();
    for (auto got = accepted_->receive(); got.ok(); got = accepted_->receive())
      EXPECT_EQ(got->req_id, seen++);
  }
  while (seen < 50) {
    const auto got = next(*accepted_);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->req_id, seen++);
  }
}

TEST_F(SocketTransportTest, ManyLinksAndRandomCloses) {
  Prng prng(11);
  struct Both {
    std::unique_ptr<Link> near, far;
    std::uint64_t sent = 0, got = 0;
  };
  std::vector<Both> all;
  for (int i = 0; i < 50; ++i) {
    connect();
    all.push_back({std::move(link_), std::move(accepted_)});
  }
  for (int round = 0; round < 2000; ++round) {
    Both& one = all[prng.below(all.size())];
    if (one.near != nullptr && one.near->send(frame_of(one.sent, prng.below(20000))).ok())
      ++one.sent;
    if (prng.chance(1, 200)) one.near.reset();
    node_->step();
    client_->step();
    for (Both& b : all) {
      while (b.far != nullptr) {
        const auto got = b.far->receive();
        if (!got.ok()) break;
        ASSERT_EQ(got->req_id, b.got++);
      }
    }
  }
  ASSERT_TRUE(until([&] {
    bool done = true;
    for (Both& b : all) {
      for (auto got = b.far->receive(); got.ok(); got = b.far->receive())
        EXPECT_EQ(got->req_id, b.got++);
      done = done && (b.near == nullptr ? b.far->lost() : b.got == b.sent);
    }
    return done;
  }));
}

TEST_F(SocketTransportTest, OutOfDescriptorsRefusesAndGoesOn) {
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 3; ++i) peers.push_back(raw_connect(listener_->port()));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(peers.back().get()) + 1;  // not one more than there are
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<UniqueFd> holes;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) holes.emplace_back(fd);
  const auto none = listener_->accept();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(node_->counters().refused, 3U);
  connect();
  exchange();
}

TEST_F(SocketTransportTest, ATakenPortIsSaidSo) {
  EXPECT_EQ(node_->listen("127.0.0.1", listener_->port()).code(), Errc::already_exists);
  EXPECT_EQ(node_->listen("localhost", 0).code(), Errc::invalid_argument);
}

class SocketTlsTest : public SocketTransportTest {
 protected:
  void SetUp() override {
    std::string reason;
    ASSERT_TRUE(testing::TlsFiles::make(dir_.path(), files_, &reason)) << reason;
    server_ = net::TlsContext::make_server({.ca_file = files_.ca,
                                            .certificate_file = files_.server_certificate,
                                            .key_file = files_.server_key,
                                            .only_tls13 = true})
                  .value();
    client_tls_ = net::TlsContext::make({.ca_file = files_.ca,
                                         .certificate_file = files_.client_certificate,
                                         .key_file = files_.client_key,
                                         .only_tls13 = true})
                      .value();
    open({.server_tls = server_}, {.client_tls = client_tls_});
  }
  // The link ends, and no frame of the client arrived.
  void expect_refused() {
    link_ = client_->connect("127.0.0.1", listener_->port()).value();
    ASSERT_TRUE(link_->send(frame_of(1)).ok());
    ASSERT_TRUE(accept());
    EXPECT_EQ(next(*accepted_).code(), Errc::connection_lost);
    EXPECT_EQ(next(*link_).code(), Errc::connection_lost);
  }

  testing::TempDir dir_;
  testing::TlsFiles files_;
  std::shared_ptr<const net::TlsContext> server_, client_tls_;
};

TEST_F(SocketTlsTest, FramesGoBothWays) {
  connect();
  exchange();
  for (std::uint64_t i = 0; i < 6; ++i)
    ASSERT_TRUE(link_->send(frame_of(i, kFrameBodyBytesMax)).ok());
  for (std::uint64_t i = 0; i < 6; ++i) {
    const auto frame = next(*accepted_);
    ASSERT_TRUE(frame.ok());
    EXPECT_EQ(frame->body, Bytes(kFrameBodyBytesMax, static_cast<std::byte>(i)));
  }
}

TEST_F(SocketTlsTest, AServerOfAnotherAuthorityGetsNothing) {
  auto tls = net::TlsContext::make({.ca_file = files_.other_ca,
                                    .certificate_file = files_.client_certificate,
                                    .key_file = files_.client_key})
                 .value();
  open({.server_tls = server_}, {.client_tls = tls});
  expect_refused();
}

TEST_F(SocketTlsTest, AClientWithoutACertificateIsRefused) {
  auto tls = net::TlsContext::make({.ca_file = files_.ca}).value();
  open({.server_tls = server_}, {.client_tls = tls});
  expect_refused();
}

TEST_F(SocketTlsTest, PlainPeersAreRefusedAndSilentOnesTimeOut) {
  open({.connect_timeout = 300ms, .server_tls = server_}, {});
  link_ = client_->connect("127.0.0.1", listener_->port()).value();
  ASSERT_TRUE(link_->send(frame_of(1)).ok());
  ASSERT_TRUE(accept());
  EXPECT_EQ(next(*accepted_).code(), Errc::connection_lost);
  accepted_.reset();
  const UniqueFd silent = raw_connect(listener_->port());
  ASSERT_TRUE(accept());
  EXPECT_EQ(next(*accepted_).code(), Errc::connection_lost);
  // The other way round: a node that speaks no TLS.
  open({}, {.connect_timeout = 300ms, .client_tls = client_tls_});
  link_ = client_->connect("127.0.0.1", listener_->port()).value();
  ASSERT_TRUE(link_->send(frame_of(1)).ok());
  EXPECT_EQ(next(*link_).code(), Errc::connection_lost);
}

}  // namespace
}  // namespace farlift::kv
