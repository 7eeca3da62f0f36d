// The soft provider against peers that are not its own: strangers, breakers of the protocol, and
// full targets.
#include "core/fabric/soft/soft_peer_test_base.h"

#include <atomic>
#include <sys/eventfd.h>

namespace farlift::fabric::soft {
namespace {

TEST(SoftPeers, AListenerThatSpeaksSomethingElseIsUnsupported) {
  std::byte in[256];
  Stranger ends([&](int fd) { static_cast<void>(::recv(fd, in, sizeof in, 0)); });
  const Status ended = write_to(ends.address());
  EXPECT_EQ(ended.code(), Errc::unsupported) << ended.error().describe();
  EXPECT_TRUE(ended.error().quiet);
  std::byte in2[256];
  Stranger talks([&](int fd) {
    send_all(fd, std::as_bytes(std::span("-ERR unknown command\r\n", 22)));
    while (::recv(fd, in2, sizeof in2, 0) > 0) {
    }
  });
  const Status talked = write_to(talks.address());
  EXPECT_EQ(talked.code(), Errc::unsupported) << talked.error().describe();
  EXPECT_TRUE(talked.error().quiet);
}

TEST(SoftPeers, ASilentListenerIsUnreachableWithinTheDeadline) {
  std::byte in[256];
  Stranger silent([&](int fd) {
    while (::recv(fd, in, sizeof in, 0) > 0) {
    }
  });
  const Status status = write_to(silent.address(), std::chrono::milliseconds(300));
  EXPECT_EQ(status.code(), Errc::unreachable);
  EXPECT_TRUE(status.error().quiet);
}

// A target that took the operation and then says nothing more, as a stopped process does.
TEST(SoftPeers, AnAbortWaitsForTheTargetAndOnlyCloseGivesUp) {
  std::atomic<bool> leave{false};
  Stranger mute([&](int fd) {
    std::byte in[4096];
    std::size_t hello = 0;
    while (hello < kHelloBytes) {
      const ssize_t n = ::recv(fd, in, kHelloBytes - hello, 0);
      if (n <= 0) return;
      hello += static_cast<std::size_t>(n);
    }
    Hello mine;
    mine.status = HelloStatus::ok;
    send_all(fd, encoded<kHelloBytes>(mine));
    while (!leave.load()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  });
  const auto domain = open(false);
  const auto initiator = *domain->open_initiator({});
  const auto peer = initiator->add_peer(mute.address());
  std::vector<std::byte> local(8u << 20);
  ASSERT_TRUE(
      initiator->post({OpKind::write, *peer, RKey(1), RemoteAddr(), local, nullptr, 7}).ok());
  Completion done;
  const auto poll_for = [&](std::chrono::milliseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    std::size_t got = 0;
    while (got == 0 && std::chrono::steady_clock::now() < until) {
      got = initiator->poll({&done, 1});
      if (got == 0) initiator->wait(20);
    }
    return got;
  };
  EXPECT_EQ(poll_for(std::chrono::milliseconds(300)), 0u);
  initiator->abort(*peer);
  EXPECT_EQ(poll_for(std::chrono::milliseconds(2500)), 0u) << "its memory was given back";
  EXPECT_EQ(initiator->in_flight(), 1u);
  const auto before = std::chrono::steady_clock::now();
  initiator->close();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(20));
  EXPECT_EQ(stats(*domain).abort_limits, 1u);
  leave = true;
}

TEST(SoftPeers, ATargetThatLiesEndsItsOwnLinkOnly) {
  const auto lie = [](std::vector<std::byte> reply) {
    return [reply = std::move(reply)](int fd) {
      std::byte in[kHelloBytes];
      static_cast<void>(::recv(fd, in, sizeof in, MSG_WAITALL));
      send_all(fd, encoded<kHelloBytes>(Hello{}));
      static_cast<void>(::recv(fd, in, kRequestBytes, MSG_WAITALL));
      send_all(fd, reply);
      std::vector<std::byte> rest(1 << 20);
      while (::recv(fd, rest.data(), rest.size(), 0) > 0) {
      }
    };
  };
  // Answers for an operation that does not exist; data that nobody asked for; a proof that nobody
  // asked for; noise.
  for (const auto& reply :
       {encoded<kReplyBytes>(Reply{ReplyKind::done, ReplyStatus::ok, 0x123450003, Length()}),
        encoded<kReplyBytes>(Reply{ReplyKind::data, ReplyStatus::ok, 1u << 16, Length(100)}),
        encoded<kReplyBytes>(Reply{ReplyKind::host_proof, ReplyStatus::ok, 0, Length()}),
        std::vector<std::byte>(kReplyBytes)}) {
    Stranger liar(lie(reply));
    const Status status = write_to(liar.address());
    EXPECT_EQ(status.code(), Errc::protocol) << status.error().describe();
  }
}

TEST(SoftPeers, StrangersAreShownOutAndCounted) {
  const auto domain = open();
  const auto target = *domain->open_target({});
  const UniqueFd http = connect_to(target->address());
  ASSERT_TRUE(send_all(http.get(), std::as_bytes(std::span("GET / HTTP/1.1\r\n\r\n", 18))));
  EXPECT_TRUE(read_to_end(http.get()).empty());
  const UniqueFd other_version = connect_to(target->address());
  auto hello = encoded<kHelloBytes>(Hello{});
  hello[8] = std::byte{2};
  ASSERT_TRUE(send_all(other_version.get(), hello));
  EXPECT_TRUE(read_to_end(other_version.get()).empty());
  EXPECT_EQ(stats(*domain).links_foreign, 2u);
}

// Each of these ends the link of the peer that sent it, touches nothing, and leaves the target in
// service.
TEST(SoftPeers, BreakersOfTheProtocolLoseTheirLink) {
  const auto domain = open();
  const auto target = *domain->open_target({});
  std::vector<std::byte> memory(65536, std::byte{0x11});
  const auto region = *domain->register_memory({memory}, Access::remote_read_write);
  auto wrapped = encoded<kRequestBytes>(
      Request{RequestKind::write, 1, region->key(), RemoteAddr(8), Length(16), 0});
  std::memset(wrapped.data() + 32, 0xff, 8);  // the length
  auto pull = encoded<kRequestBytes>(
      Request{RequestKind::pull, 1, region->key(), RemoteAddr(), Length(16), 4096});
  auto noise = std::vector<std::byte>(kRequestBytes, std::byte{0x5a});
  auto ready = encoded<kRequestBytes>(
      Request{RequestKind::host_ready, 0, RKey(), RemoteAddr(), Length(1), 0});
  for (const auto& bytes : {wrapped, pull, noise, ready}) {
    const UniqueFd fd = connect_to(target->address());
    ASSERT_TRUE(send_all(fd.get(), encoded<kHelloBytes>(Hello{})));
    ASSERT_TRUE(send_all(fd.get(), bytes));
    EXPECT_EQ(read_to_end(fd.get()).size(), kHelloBytes);
  }
  EXPECT_EQ(memory, std::vector<std::byte>(65536, std::byte{0x11}));
  EXPECT_GE(stats(*domain).links_broken, 3u);
  const auto initiator = *domain->open_initiator({});
  const PeerId peer = *initiator->add_peer(target->address());
  std::vector<std::byte> local(100);
  EXPECT_TRUE(
      run(*initiator, {OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1})
          .ok());
}

// A process that is named but is not the one at the other end: the host lane is refused, the remote
// lane serves.
TEST(SoftPeers, AForeignProcessIsNotBelieved) {
  const auto domain = open();
  const auto target = *domain->open_target({});
  const UniqueFd fd = connect_to(target->address());
  // Everything true but the descriptor: this process does hold the other end, under another number.
  Token16 cell{};
  UniqueFd probe(::dup(2));
  Hello hello;
  hello.host_lane = true;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.cell_addr = reinterpret_cast<std::uint64_t>(cell.data());
  hello.socket_fd = static_cast<std::uint32_t>(probe.get());
  {
    // Boot id as the target knows it: taken from its answer to a first link.
    const UniqueFd first = connect_to(target->address());
    ASSERT_TRUE(send_all(first.get(), encoded<kHelloBytes>(Hello{})));
    std::vector<std::byte> answer(kHelloBytes);
    ASSERT_EQ(::recv(first.get(), answer.data(), answer.size(), MSG_WAITALL),
              static_cast<ssize_t>(kHelloBytes));
    hello.boot_id = decode_hello(answer)->boot_id;
  }
  ASSERT_TRUE(send_all(fd.get(), encoded<kHelloBytes>(hello)));
  std::vector<std::byte> answer(kHelloBytes);
  ASSERT_EQ(::recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(kHelloBytes));
  const auto theirs = decode_hello(answer);
  ASSERT_TRUE(theirs.ok());
  ASSERT_TRUE(theirs->host_lane);
  cell = theirs->challenge;
  ASSERT_TRUE(send_all(fd.get(), encoded<kRequestBytes>(Request{RequestKind::host_ready, 0, RKey(),
                                                                RemoteAddr(), Length(1), 0})));
  std::vector<std::byte> proof(kReplyBytes);
  ASSERT_EQ(::recv(fd.get(), proof.data(), proof.size(), MSG_WAITALL),
            static_cast<ssize_t>(kReplyBytes));
  EXPECT_EQ(decode_reply(proof)->status, ReplyStatus::access);
  EXPECT_EQ(stats(*domain).host_lane_refusals, 1u);
}

TEST(SoftPeers, AFullTargetSaysSo) {
  const auto domain = open();
  TargetOptions options;
  options.connections_max = 1;
  const auto target = *domain->open_target(options);
  std::vector<std::byte> memory(4096);
  const auto region = *domain->register_memory({memory}, Access::remote_write);
  std::vector<std::byte> local(4096);
  const auto first = *domain->open_initiator({});
  const PeerId peer = *first->add_peer(target->address());
  ASSERT_TRUE(
      run(*first, {OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1}).ok());
  const auto second = *domain->open_initiator({});
  const PeerId again = *second->add_peer(target->address());
  const Status refused =
      run(*second, {OpKind::write, again, region->key(), region->addr(), local, nullptr, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.code(), Errc::exhausted);
  EXPECT_EQ(stats(*domain).links_refused, 1u);
  EXPECT_TRUE(
      run(*first, {OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1}).ok());
}

// Strangers that connect and say nothing, or half of a hello, have a place until the deadline only.
TEST(SoftPeers, SilentLinksGiveTheirPlacesBack) {
  static const SystemClock clock;
  SoftOptions soft;
  soft.hello_deadline_ms = 100;
  const auto domain = *open_domain(soft, clock);
  TargetOptions options;
  options.connections_max = 6;
  const auto target = *domain->open_target(options);
  std::vector<std::byte> memory(4096);
  const auto region = *domain->register_memory({memory}, Access::remote_write);
  std::vector<std::byte> local(4096, std::byte{7});
  const auto initiator = *domain->open_initiator({});
  const PeerId peer = *initiator->add_peer(target->address());
  const Operation write{OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1};
  ASSERT_TRUE(run(*initiator, write).ok());
  std::vector<std::unique_ptr<Initiator>> later;
  for (int round = 0; round < 3; ++round) {
    const UniqueFd silent = connect_to(target->address());
    const UniqueFd halfway = connect_to(target->address());
    const auto hello = encoded<kHelloBytes>(Hello{});
    ASSERT_TRUE(send_all(halfway.get(), std::span(hello).first(kHelloBytes - 1)));
    EXPECT_TRUE(read_to_end(silent.get()).empty());
    EXPECT_TRUE(read_to_end(halfway.get()).empty());
    // The link that said hello long ago is untouched, and there is room for others again.
    EXPECT_TRUE(run(*initiator, write).ok());
    later.push_back(*domain->open_initiator({}));
    Operation theirs = write;
    theirs.peer = *later.back()->add_peer(target->address());
    EXPECT_TRUE(run(*later.back(), theirs).ok()) << "round " << round;
  }
  EXPECT_EQ(stats(*domain).links_silent, 6u);
  EXPECT_EQ(stats(*domain).links_refused, 0u);
  EXPECT_EQ(memory, local);
}

// A peer that asks for reads and never takes the answers holds its own link only, and bounded
// memory.
TEST(SoftPeers, AReaderThatNeverReadsHoldsNobody) {
  const auto domain = open(false);
  const auto target = *domain->open_target({});
  std::vector<std::byte> memory(4u << 20);
  const auto region = *domain->register_memory({memory}, Access::remote_read_write);
  const UniqueFd fd = connect_to(target->address());
  ASSERT_TRUE(send_all(fd.get(), encoded<kHelloBytes>(Hello{})));
  const auto read = encoded<kRequestBytes>(
      Request{RequestKind::read, 1, region->key(), RemoteAddr(), Length(4u << 20), 0});
  int sent = 0;
  while (sent < 20000 &&
         ::send(fd.get(), read.data(), read.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
    ++sent;
  const auto initiator = *domain->open_initiator({});
  const PeerId peer = *initiator->add_peer(target->address());
  std::vector<std::byte> local(100000);
  EXPECT_TRUE(
      run(*initiator, {OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1})
          .ok());
  EXPECT_TRUE(region->close().ok());
  EXPECT_TRUE(target->close().ok());
}

// Threads that wait for their own descriptor leave together, the leader and those it woke among
// them: whoever stays must serve what comes.
TEST(SoftPeers, WhoeverStaysInProgressServes) {
  const auto domain = open();
  TargetOptions options;
  options.own_thread = false;
  std::vector<std::byte> memory(4096);
  const auto region = *domain->register_memory({memory}, Access::remote_write);
  std::vector<std::byte> local(4096);
  for (int round = 0; round < 100; ++round) {
    const auto target = *domain->open_target(options);
    constexpr std::size_t kThreads = 4;
    UniqueFd events[kThreads];
    std::vector<std::thread> threads;
    for (auto& event : events) {
      event = UniqueFd(::eventfd(0, EFD_CLOEXEC));
      threads.emplace_back([&target, fd = event.get()] {
        for (;;) {
          const auto left = target->progress(-1, fd);
          if (!left.ok() || *left) return;
        }
      });
    }
    const std::uint64_t one = 1;
    for (std::size_t i = 0; i + 1 < kThreads; ++i) {
      const auto& event = events[(i + static_cast<std::size_t>(round)) % kThreads];
      ASSERT_EQ(::write(event.get(), &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }
    InitiatorOptions patient;
    patient.connect_deadline = std::chrono::milliseconds(kLongMs);
    const auto initiator = *domain->open_initiator(patient);
    const PeerId peer = *initiator->add_peer(target->address());
    EXPECT_TRUE(
        run(*initiator, {OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1})
            .ok())
        << "nobody serves in round " << round;
    EXPECT_TRUE(target->close().ok());
    for (auto& thread : threads) thread.join();
  }
}

TEST(SoftPeers, IPv6AndListenRules) {
  static const SystemClock clock;
  SoftOptions options;
  for (const char* ip :
       {"0.0.0.0", "::", "224.0.0.1", "fe80::1", "localhost", "", "::ffff:127.0.0.1"}) {
    options.listen_ip = ip;
    EXPECT_EQ(open_domain(options, clock).code(), Errc::invalid_argument) << ip;
  }
  options.listen_ip = "::1";
  const auto domain = *open_domain(options, clock);
  auto opened = domain->open_target({});
  if (!opened.ok()) GTEST_SKIP() << "no IPv6 loopback here";
  const auto target = *std::move(opened);
  EXPECT_EQ(target->address().size(), 28u);
  std::vector<std::byte> memory(65536);
  const auto region = *domain->register_memory({memory}, Access::remote_write);
  const auto initiator = *domain->open_initiator({});
  const PeerId peer = *initiator->add_peer(target->address());
  std::vector<std::byte> local(65536, std::byte{3});
  EXPECT_TRUE(
      run(*initiator, {OpKind::write, peer, region->key(), region->addr(), local, nullptr, 1})
          .ok());
  EXPECT_EQ(memory, local);
  const auto v4 = SocketAddress::parse("127.0.0.1", 4000)->encode();
  EXPECT_EQ(initiator->add_peer(v4).code(), Errc::unsupported);
  EXPECT_EQ(domain->admit_peer(v4).code(), Errc::unsupported);
}

}  // namespace
}  // namespace farlift::fabric::soft
