// The soft provider inside one process: both lanes, refusals that stay alone, rotation, landing
// checksums.
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/fabric/soft/soft.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <unordered_set>
#include <vector>

namespace farlift::fabric::soft {
namespace {

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> out(size);
  Prng prng(seed);
  for (auto& b : out) b = static_cast<std::byte>(prng.next());
  return out;
}

// What a test runs on: true is the host lane.
class SoftLane : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    SoftOptions options;
    options.host_lane = GetParam();
    auto opened = open_domain(options, clock_);
    ASSERT_TRUE(opened.ok());
    domain_ = *std::move(opened);
    auto target = domain_->open_target({});
    ASSERT_TRUE(target.ok()) << target.error().describe();
    target_ = *std::move(target);
    auto initiator = domain_->open_initiator({});
    ASSERT_TRUE(initiator.ok());
    initiator_ = *std::move(initiator);
    auto peer = initiator_->add_peer(target_->address());
    ASSERT_TRUE(peer.ok()) << peer.error().describe();
    peer_ = *peer;
  }

  Status run(OpKind kind, const Registration& r, std::uint64_t offset, std::span<std::byte> local) {
    return run(kind, r.key(), r.addr() + Offset(offset), local);
  }
  Status run(OpKind kind, RKey key, RemoteAddr addr, std::span<std::byte> local) {
    const Status posted = initiator_->post({kind, peer_, key, addr, local, nullptr, 7});
    if (!posted.ok()) return posted;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (std::chrono::steady_clock::now() < limit) {
      Completion completion;
      if (initiator_->poll({&completion, 1}) == 1) {
        EXPECT_EQ(completion.context, 7u);
        return completion.status;
      }
      initiator_->wait(1000);
    }
    return Error::make(Errc::timeout, "test");
  }

  SystemClock clock_;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<TargetEndpoint> target_;
  std::unique_ptr<Initiator> initiator_;
  PeerId peer_;
};

INSTANTIATE_TEST_SUITE_P(Lanes, SoftLane, ::testing::Bool(), [](const auto& p) {
  return p.param ? std::string("host") : std::string("remote");
});

TEST_P(SoftLane, WritesAndReadsBackEverySize) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{47}, std::size_t{4096}, std::size_t{65536},
        std::size_t{1 << 20}, std::size_t{(5 << 20) + 13}}) {
    std::vector<std::byte> memory(size + 32, std::byte{0xee});
    auto registered =
        domain_->register_memory({{memory.data() + 16, size}}, Access::remote_read_write);
    ASSERT_TRUE(registered.ok());
    auto source = pattern(size, size);
    const Status wrote = run(OpKind::write, **registered, 0, source);
    ASSERT_TRUE(wrote.ok()) << size << " " << wrote.error().describe();
    ASSERT_EQ(std::memcmp(memory.data() + 16, source.data(), size), 0);
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(memory[i], std::byte{0xee});
      ASSERT_EQ(memory[size + 16 + i], std::byte{0xee});
    }
    std::vector<std::byte> back(size);
    const Status read = run(OpKind::read, **registered, 0, back);
    ASSERT_TRUE(read.ok()) << size << " " << read.error().describe();
    ASSERT_EQ(back, source);
  }
  const SoftStats s = stats(*domain_);
  if (GetParam()) {
    EXPECT_EQ(s.host_links, 1u) << "this machine does not allow the host lane";
    EXPECT_GT(s.writes_host, 0u);
    EXPECT_GT(s.reads_host, 0u);
  } else {
    EXPECT_EQ(s.host_links, 0u);
    EXPECT_GT(s.writes_remote, 0u);
    EXPECT_GT(s.reads_remote, 0u);
  }
}

TEST_P(SoftLane, RefusesAloneAndRotates) {
  std::vector<std::byte> memory(1 << 20);
  auto registered = domain_->register_memory({memory}, Access::remote_read_write);
  ASSERT_TRUE(registered.ok());
  auto source = pattern(1 << 20, 3);
  EXPECT_EQ(run(OpKind::write, RKey((*registered)->key().raw() ^ 1), RemoteAddr(), source).code(),
            Errc::access);
  EXPECT_EQ(run(OpKind::write, **registered, 1, source).code(), Errc::access);
  EXPECT_EQ(run(OpKind::write, **registered, UINT64_MAX - 100, source).code(), Errc::access);
  EXPECT_EQ(run(OpKind::read, **registered, UINT64_MAX - 100, source).code(), Errc::access);
  EXPECT_TRUE(run(OpKind::write, **registered, 0, source).ok());
  const RKey old = (*registered)->key();
  ASSERT_TRUE((*registered)->close().ok());
  EXPECT_EQ(run(OpKind::write, old, RemoteAddr(), source).code(), Errc::access);
  EXPECT_EQ(run(OpKind::read, old, RemoteAddr(), source).code(), Errc::access);
  auto again = domain_->register_memory({memory}, Access::remote_write);
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(run(OpKind::write, **again, 0, source).ok());
  EXPECT_EQ(run(OpKind::read, **again, 0, source).code(), Errc::access);
  EXPECT_EQ(stats(*domain_).links_connected, 1u);
}

TEST_P(SoftLane, ReportsTheChecksumOfWhatLanded) {
  std::vector<std::byte> memory(3 << 20);
  auto registered = domain_->register_memory({memory}, Access::remote_write);
  ASSERT_TRUE(registered.ok());
  (*registered)->watch(true);
  auto source = pattern(memory.size(), 9);
  ASSERT_TRUE(run(OpKind::write, **registered, 0, source).ok());
  const auto runs = (*registered)->landed();
  ASSERT_TRUE(runs.has_value());
  Crc32c crc = digest::crc32c({});
  std::uint64_t at = 0;
  for (const LandedRun& r : *runs) {
    ASSERT_EQ(r.offset.raw(), at);
    crc = digest::crc32c_combine(crc, r.crc, r.length);
    at += r.length.raw();
  }
  EXPECT_EQ(at, memory.size());
  EXPECT_EQ(crc, digest::crc32c(source));
}

TEST(SoftKeys, stand_below_the_dc_key_and_do_not_come_again) {
  SystemClock clock;
  SoftOptions options;
  options.dc_key = 0xffeeddcc;
  auto domain = open_domain(options, clock).value();
  std::vector<std::byte> memory(64);
  std::unordered_set<std::uint64_t> seen;
  std::uint64_t neighbours = 0;
  std::uint64_t last = 0;
  for (int i = 0; i < 20'000; ++i) {
    auto registration = domain->register_memory({memory}, Access::remote_write).value();
    const std::uint64_t key = registration->key().raw();
    ASSERT_EQ(key >> 32, 0xffeeddccu);
    ASSERT_NE(key & 0xffffffffu, 0u);
    ASSERT_TRUE(seen.insert(key).second) << "key came twice";
    neighbours += key == last + 1;
    last = key;
  }
  EXPECT_LE(neighbours, 2u);  // not a counter
}

}  // namespace
}  // namespace farlift::fabric::soft
