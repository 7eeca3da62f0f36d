// The tcp provider (libfabric's own wire) on loopback, against the libfabric that is installed.
// What every fabric must do is in the conformance suite; this is what is particular to libfabric.
#include "core/base/unique_fd.h"
#include "core/fabric/ofi/ofi_test_base.h"
#include "core/fabric/self_test.h"

#include <atomic>
#include <cstring>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace farlift::fabric::ofi {
namespace {

TEST_F(OfiTcp, domains_are_listed_and_loopback_is_among_them) {
  const auto listed = list_domains(OfiOptions{});
  ASSERT_TRUE(listed.ok()) << listed.error().describe();
  bool loopback = false;
  for (const DomainDescription& d : listed.value()) {
    EXPECT_TRUE(d.provider == "net" || d.provider == "tcp") << d.provider;
    loopback |= d.interface_name == "lo";
  }
  EXPECT_TRUE(loopback);
}

TEST_F(OfiTcp, a_nonexistent_interface_is_named_in_the_error) {
  OfiOptions o;
  o.interface_name = "nosuch0";
  std::string why;
  const auto opened = open_domain(o, kClock, &why);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.code(), Errc::not_found);
  EXPECT_NE(why.find("'nosuch0'"), std::string::npos) << why;
  EXPECT_NE(why.find("'lo'"), std::string::npos) << why;
}

TEST_F(OfiTcp, an_address_that_is_not_ours_or_not_numeric_is_refused) {
  OfiOptions o;
  o.listen_ip = "not-an-address";
  std::string why;
  EXPECT_EQ(open_domain(o, kClock, &why).code(), Errc::invalid_argument);
  EXPECT_NE(why.find("not-an-address"), std::string::npos) << why;
}

TEST_F(OfiTcp, an_interface_by_name) {
  OfiOptions o;
  o.interface_name = "lo";
  std::string why;
  const auto opened = open_domain(o, kClock, &why);
  ASSERT_TRUE(opened.ok()) << why;
  EXPECT_EQ(opened.value()->info().interface_name, "lo");
  auto endpoint = opened.value()->open_target(TargetOptions{});
  ASSERT_TRUE(endpoint.ok());
  sockaddr_in in{};
  ASSERT_EQ(endpoint.value()->address().size(), sizeof in);
  std::memcpy(&in, endpoint.value()->address().bytes().data(), sizeof in);
  EXPECT_EQ(in.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
}

TEST_F(OfiTcp, what_was_granted) {
  const DomainInfo& info = domain_->info();
  EXPECT_TRUE(info.provider == "net" || info.provider == "tcp") << info.provider;
  EXPECT_EQ(info.fence_mode, FenceMode::endpoint);
  EXPECT_FALSE(info.virtual_addressing);
  EXPECT_FALSE(info.local_registration_required);
  EXPECT_FALSE(info.reports_landed_crc);
  EXPECT_GT(info.in_flight_max, 0u);
  EXPECT_GE(info.operation_length_max.raw(), std::uint64_t{4} << 30);
}

TEST_F(OfiTcp, write_and_read_back) {
  auto memory = pattern(1 << 20, 1);
  auto source = pattern(1 << 20, 2);
  std::vector<std::byte> back(1 << 20);
  auto lent = lend(memory, Access::remote_read_write);
  auto passive = target();
  auto active = initiator();
  const PeerId peer = active->add_peer(passive->address()).value();
  ASSERT_TRUE(
      active->post(operation(OpKind::write, peer, lent->key(), lent->addr(), source, 7)).ok());
  EXPECT_TRUE(collect(*active, 1).at(7).ok());
  EXPECT_EQ(memory, source);
  ASSERT_TRUE(active->post(operation(OpKind::read, peer, lent->key(), lent->addr(), back, 8)).ok());
  EXPECT_TRUE(collect(*active, 1).at(8).ok());
  EXPECT_EQ(back, source);
  EXPECT_EQ(active->in_flight(), 0u);
}

// The library looks keys up for a peer without the lock under which it adds and removes them:
// without our care the process crashes here within a second.
TEST_F(OfiTcp, registrations_come_and_go_while_peers_write) {
  std::vector<std::byte> memory(4096);
  const auto region = lend(memory, Access::remote_write);
  const auto endpoint = target();
  const auto from = initiator();
  const auto peer = from->add_peer(endpoint->address());
  ASSERT_TRUE(peer.ok());
  const std::jthread lender([&](const std::stop_token& stop) {
    std::vector<std::byte> more(64 * 64);
    while (!stop.stop_requested()) {
      std::vector<std::unique_ptr<Registration>> lent;
      for (std::size_t i = 0; i < 64; ++i)
        lent.push_back(lend(std::span(more).subspan(i * 64, 64), Access::remote_write));
    }
  });
  std::vector<std::byte> local(64);
  const auto own = lend(local, Access::local);
  for (std::uint64_t i = 0; i < 20'000; i += 16) {
    for (std::uint64_t k = i; k < i + 16; ++k) {
      ASSERT_TRUE(
          from->post(operation(OpKind::write, *peer, region->key(), region->addr(), local, k))
              .ok());
    }
    for (const auto& [context, status] : collect(*from, 16)) ASSERT_TRUE(status.ok()) << context;
  }
}

TEST_F(OfiTcp, keys_are_random_and_never_repeat) {
  std::vector<std::byte> memory(4096);
  std::map<std::uint64_t, int> seen;
  int large = 0;
  for (int i = 0; i < 1000; ++i) {
    auto lent = lend(memory, Access::remote_read);
    EXPECT_EQ(++seen[lent->key().raw()], 1);
    large += lent->key().raw() > UINT32_MAX;
  }
  EXPECT_GT(large, 900);  // drawn from all 64 bits
}

// The caller's descriptor ends a wait for progress: with slices between looks at it, an answer that
// comes by another way would be seen late.
TEST_F(OfiTcp, the_callers_descriptor_ends_a_wait_for_progress) {
  TargetOptions o;
  o.own_thread = false;
  auto passive = domain_->open_target(o).value();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  EXPECT_FALSE(passive->progress(0, read_end.get()).value());
  std::thread writer([&] { EXPECT_EQ(::write(write_end.get(), "x", 1), 1); });
  EXPECT_TRUE(passive->progress(-1, read_end.get()).value());
  writer.join();
  EXPECT_TRUE(passive->progress(0, read_end.get()).value());
}

TEST_F(OfiTcp, nobody_connects_to_an_initiator) {
  auto active = initiator();
  const UniqueFd stranger(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in in{};
  std::memcpy(&in, active->address().bytes().data(), sizeof in);
  const int rc = ::connect(stranger.get(), reinterpret_cast<sockaddr*>(&in), sizeof in);
  ASSERT_EQ(rc, -1);
  pollfd fd{stranger.get(), POLLOUT, 0};
  EXPECT_TRUE(errno == EINPROGRESS && ::poll(&fd, 1, 300) == 0);  // its packets are dropped
}

TEST_F(OfiTcp, peer_addresses_that_must_never_be_targets) {
  const auto v4 = [](std::uint32_t ip, std::uint16_t port) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(ip);
    in.sin_port = htons(port);
    return Address::from_bytes(std::as_bytes(std::span(&in, 1))).value();
  };
  EXPECT_EQ(domain_->admit_peer(v4(0, 1)).code(), Errc::permission);
  EXPECT_EQ(domain_->admit_peer(v4(0xffffffff, 1)).code(), Errc::permission);
  EXPECT_EQ(domain_->admit_peer(v4(0xe0000001, 1)).code(), Errc::permission);
  EXPECT_EQ(domain_->admit_peer(v4(0xa9fea9fe, 1)).code(), Errc::permission);
  EXPECT_EQ(domain_->admit_peer(v4(0x7f000001, 0)).code(), Errc::permission);
  sockaddr_in6 in6{};
  in6.sin6_family = AF_INET6;
  in6.sin6_addr = in6addr_loopback;
  in6.sin6_port = htons(1);
  const Address v6 = Address::from_bytes(std::as_bytes(std::span(&in6, 1))).value();
  EXPECT_EQ(domain_->admit_peer(v6).code(), Errc::unsupported);
  const std::byte odd[15] = {};
  EXPECT_EQ(domain_->admit_peer(Address::from_bytes(odd).value()).code(), Errc::unsupported);
  const Address fine = v4(0x7f000001, 1);
  EXPECT_TRUE(domain_->admit_peer(fine).ok());
  EXPECT_TRUE(domain_->admit_peer(fine).ok());
  domain_->release_peer(fine);
  domain_->release_peer(fine);
}

TEST_F(OfiTcp, peers_are_reference_counted) {
  auto passive = target();
  auto active = initiator();
  const PeerId first = active->add_peer(passive->address()).value();
  EXPECT_EQ(active->add_peer(passive->address()).value(), first);
  active->remove_peer(first);
  std::vector<std::byte> memory(64);
  std::vector<std::byte> local(64, std::byte{1});
  auto lent = lend(memory, Access::remote_write);
  ASSERT_TRUE(
      active->post(operation(OpKind::write, first, lent->key(), lent->addr(), local, 1)).ok());
  EXPECT_TRUE(collect(*active, 1).at(1).ok());
  active->remove_peer(first);
  EXPECT_EQ(
      active->post(operation(OpKind::write, first, lent->key(), lent->addr(), local, 2)).code(),
      Errc::invalid_argument);
}

TEST_F(OfiTcp, in_flight_max_is_an_answer) {
  InitiatorOptions o;
  o.in_flight_max = 2;
  auto active = initiator(o);
  auto passive = target();
  std::vector<std::byte> memory(4096);
  std::vector<std::byte> local(4096);
  auto lent = lend(memory, Access::remote_write);
  const PeerId peer = active->add_peer(passive->address()).value();
  ASSERT_TRUE(
      active->post(operation(OpKind::write, peer, lent->key(), lent->addr(), local, 1)).ok());
  ASSERT_TRUE(
      active->post(operation(OpKind::write, peer, lent->key(), lent->addr(), local, 2)).ok());
  EXPECT_EQ(
      active->post(operation(OpKind::write, peer, lent->key(), lent->addr(), local, 3)).code(),
      Errc::again);
  EXPECT_EQ(collect(*active, 2).size(), 2u);
  EXPECT_TRUE(
      active->post(operation(OpKind::write, peer, lent->key(), lent->addr(), local, 3)).ok());
  EXPECT_EQ(collect(*active, 1).size(), 1u);
}

TEST_F(OfiTcp, wake_ends_a_wait_and_is_remembered) {
  auto active = initiator();
  active->wake();
  active->wait(-1);  // returns at once
  std::atomic<bool> back{false};
  std::thread waker([&] {
    while (!back.load()) {
      active->wake();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  active->wait(-1);
  back.store(true);
  waker.join();
}

TEST_F(OfiTcp, target_without_a_thread_moves_only_inside_progress) {
  TargetOptions o;
  o.own_thread = false;
  auto opened = domain_->open_target(o);
  ASSERT_TRUE(opened.ok());
  TargetEndpoint& passive = *opened.value();
  std::vector<std::byte> memory(1 << 20);
  auto source = pattern(1 << 20, 11);
  auto lent = lend(memory, Access::remote_write);
  auto active = initiator();
  const PeerId peer = active->add_peer(passive.address()).value();
  std::thread server([&] {
    for (;;) {
      const auto moved = passive.progress(20);
      if (!moved.ok()) {
        EXPECT_EQ(moved.code(), Errc::closed);
        return;
      }
    }
  });
  ASSERT_TRUE(
      active->post(operation(OpKind::write, peer, lent->key(), lent->addr(), source, 1)).ok());
  EXPECT_TRUE(collect(*active, 1).at(1).ok());
  EXPECT_EQ(memory, source);
  ASSERT_TRUE(passive.close().ok());
  server.join();
}

TEST_F(OfiTcp, the_self_test_passes_on_this_rail) {
  const SelfTestReport report = self_test(*domain_, kClock);
  for (const SelfTestStep& step : report.steps)
    EXPECT_TRUE(step.passed) << step.name << ": " << step.detail;
  EXPECT_TRUE(report.passed);
  EXPECT_EQ(report.steps.size(), 7u);
}

TEST_F(OfiTcp, a_listen_address_of_another_family_is_refused) {
  TargetOptions o;
  o.listen_ip = "::1";
  EXPECT_EQ(domain_->open_target(o).code(), Errc::invalid_argument);
  o.listen_ip = "no address";
  EXPECT_EQ(domain_->open_target(o).code(), Errc::invalid_argument);
}

TEST_F(OfiTcp, ipv6) {
  OfiOptions o;
  o.listen_ip = "::1";
  std::string why;
  auto opened = open_domain(o, kClock, &why);
  if (!opened.ok()) GTEST_SKIP() << "no IPv6 loopback here: " << why;
  const SelfTestReport report = self_test(*opened.value(), kClock);
  for (const SelfTestStep& step : report.steps)
    EXPECT_TRUE(step.passed) << step.name << ": " << step.detail;
}

}  // namespace
}  // namespace farlift::fabric::ofi
