// Conformance: what an operation may reach, and what it delivers.
#include "core/digest/crc32c.h"
#include "core/fabric/conformance_harness.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

namespace farlift::fabric::conformance {
namespace {

constexpr std::size_t kSmall = 64u << 10;

// A refusal as this provider can tell it.
bool refused(const ConformanceProvider& p, const Status& status) {
  if (status.ok()) return false;
  return status.code() == Errc::access || (!p.exact_refusal && status.code() == Errc::flushed);
}

TEST_P(FabricConformance, MovesEverySizeExactly) {
  Pair pair(GetParam());
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{7}, std::size_t{47}, std::size_t{4095}, std::size_t{4096},
        kSmall, kSmall + 1, std::size_t{1} << 20, (std::size_t{3} << 20) + 17}) {
    SCOPED_TRACE(size);
    std::vector<std::byte>& memory = pair.memory(size + 64, std::byte{0xee});
    const auto region = pair.lend(std::span(memory).subspan(32, size), Access::remote_read_write);
    Buffer local(*pair.domain, size);
    local.fill(size);
    const Status wrote = pair.run(OpKind::write, *region, 0, local.bytes(), local);
    ASSERT_TRUE(wrote.ok()) << wrote.error().describe();
    ASSERT_EQ(std::memcmp(memory.data() + 32, local.bytes().data(), size), 0);
    for (std::size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(memory[i], std::byte{0xee});
      ASSERT_EQ(memory[32 + size + i], std::byte{0xee});
    }
    Buffer back(*pair.domain, size);
    const Status read = pair.run(OpKind::read, *region, 0, back.bytes(), back);
    ASSERT_TRUE(read.ok()) << read.error().describe();
    ASSERT_EQ(std::memcmp(back.bytes().data(), local.bytes().data(), size), 0);
  }
}

// Windows that lie side by side are each filled exactly, in any order of completion.
TEST_P(FabricConformance, FillsWindowsExactly) {
  Pair pair(GetParam());
  const std::vector<std::size_t> sizes{1, 100, 4096, 33333, 65536, 70001, 300000, 7};
  std::size_t total = 16;
  for (const std::size_t s : sizes) total += s + 16;
  std::vector<std::byte>& memory = pair.memory(total, std::byte{0xee});
  const auto region = pair.lend(memory, Access::remote_write);
  Buffer local(*pair.domain, total);
  local.fill(5);
  std::vector<std::uint64_t> contexts;
  std::size_t at = 16;
  for (const std::size_t s : sizes) {
    contexts.push_back(pair.post(OpKind::write, *region, at, local.part(at, s), local));
    at += s + 16;
  }
  for (const std::uint64_t c : contexts) ASSERT_TRUE(pair.wait(c).ok());
  at = 0;
  for (const std::size_t s : sizes) {
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(memory[at + i], std::byte{0xee});
    ASSERT_EQ(std::memcmp(memory.data() + at + 16, local.bytes().data() + at + 16, s), 0);
    at += 16 + s;
  }
}

TEST_P(FabricConformance, EnforcesRights) {
  struct Case {
    Access access;
    OpKind kind;
    bool allowed;
  };
  for (const Case& c :
       {Case{Access::remote_read, OpKind::read, true},
        Case{Access::remote_read, OpKind::write, false},
        Case{Access::remote_write, OpKind::read, false},
        Case{Access::remote_write, OpKind::write, true}, Case{Access::local, OpKind::read, false},
        Case{Access::local, OpKind::write, false}}) {
    SCOPED_TRACE(static_cast<int>(c.access) * 10 + static_cast<int>(c.kind));
    Pair pair(GetParam());
    std::vector<std::byte>& memory = pair.memory(kSmall, std::byte{0x11});
    const auto region = pair.lend(memory, c.access);
    Buffer local(*pair.domain, kSmall);
    local.set(0x22);
    const Status status = pair.run(c.kind, *region, 0, local.bytes(), local);
    if (c.allowed) {
      EXPECT_TRUE(status.ok()) << status.error().describe();
      continue;
    }
    EXPECT_TRUE(refused(GetParam(), status));
    EXPECT_TRUE(all_are(memory, 0x11));
    EXPECT_TRUE(c.kind == OpKind::write || local.is(0x22));
  }
}

TEST_P(FabricConformance, RefusesEveryRangeOutside) {
  struct Case {
    std::uint64_t offset;
    std::size_t length;
  };
  const Case cases[] = {{1, kSmall},
                        {kSmall, 1},
                        {kSmall - 1, 2},
                        {kSmall + 1, 1},
                        {0, kSmall + 1},
                        {UINT64_MAX, 1},
                        {UINT64_MAX, 2},
                        {UINT64_MAX - kSmall + 1, kSmall},
                        {UINT64_MAX - 100, kSmall},
                        {1ull << 63, 16}};
  for (const OpKind kind : {OpKind::write, OpKind::read}) {
    for (const Case& c : cases) {
      SCOPED_TRACE(c.offset);
      Pair pair(GetParam());
      std::vector<std::byte>& memory = pair.memory(3 * kSmall, std::byte{0x11});
      const auto region =
          pair.lend(std::span(memory).subspan(kSmall, kSmall), Access::remote_read_write);
      Buffer local(*pair.domain, c.length);
      local.set(0x22);
      EXPECT_TRUE(refused(GetParam(), pair.run(kind, *region, c.offset, local.bytes(), local)));
      EXPECT_TRUE(all_are(memory, 0x11));
      EXPECT_TRUE(local.is(0x22));
    }
  }
}

TEST_P(FabricConformance, RefusesWrongKeysAndNeverRepeatsOne) {
  std::vector<std::byte> memory(kSmall, std::byte{0x11});
  {
    Pair pair(GetParam());
    std::set<std::uint64_t> keys;
    std::vector<std::unique_ptr<Registration>> regions;
    for (int i = 0; i < rounds(GetParam(), 1000); ++i) {
      regions.push_back(pair.lend(std::span(memory).first(4096), Access::remote_write));
      EXPECT_TRUE(keys.insert(regions.back()->key().raw()).second) << "duplicate key";
    }
  }
  for (const std::uint64_t flip : {1ull, 1ull << 7, 1ull << 31}) {
    for (const OpKind kind : {OpKind::write, OpKind::read}) {
      Pair pair(GetParam());
      const auto region = pair.lend(memory, Access::remote_read_write);
      Buffer local(*pair.domain, kSmall);
      local.set(0x22);
      const auto context = pair.post(kind, pair.peer, RKey(region->key().raw() ^ flip),
                                     region->addr(), local.bytes(), local);
      EXPECT_TRUE(refused(GetParam(), pair.wait(context)));
      EXPECT_TRUE(all_are(memory, 0x11));
    }
  }
}

TEST_P(FabricConformance, RotationKillsTheOldKeyAndMintsANewOne) {
  std::vector<std::byte> memory(kSmall);
  std::set<std::uint64_t> keys;
  for (int round = 0; round < rounds(GetParam(), 20); ++round) {
    Pair pair(GetParam());
    auto region = pair.lend(memory, Access::remote_read_write);
    const RKey old = region->key();
    const RemoteAddr old_addr = region->addr();
    EXPECT_TRUE(keys.insert(old.raw()).second);
    Buffer local(*pair.domain, kSmall);
    local.set(0x33);
    EXPECT_TRUE(pair.run(OpKind::write, *region, 0, local.bytes(), local).ok());
    ASSERT_TRUE(region->close().ok());
    ASSERT_TRUE(region->close().ok()) << "close is idempotent";
    auto fresh = pair.lend(memory, Access::remote_read_write);
    EXPECT_NE(fresh->key(), old);
    local.set(0x44);
    EXPECT_TRUE(pair.run(OpKind::write, *fresh, 0, local.bytes(), local).ok());
    local.set(0x55);
    const auto late = pair.post(round % 2 == 0 ? OpKind::write : OpKind::read, pair.peer, old,
                                old_addr, local.bytes(), local);
    EXPECT_TRUE(refused(GetParam(), pair.wait(late)));
    EXPECT_TRUE(all_are(memory, 0x44));
  }
}

// Not one byte, whatever the initiator remembers of the key from operations that were allowed.
TEST_P(FabricConformance, AClosedKeyDeliversNothing) {
  for (const std::size_t size : {std::size_t{4096}, std::size_t{3} << 20}) {
    SCOPED_TRACE(size);
    std::vector<std::byte> memory(size, std::byte{0x61});
    Pair pair(GetParam());
    auto region = pair.lend(memory, Access::remote_read);
    const RKey old = region->key();
    const RemoteAddr old_addr = region->addr();
    Buffer local(*pair.domain, size);
    ASSERT_TRUE(pair.run(OpKind::read, *region, 0, local.bytes(), local).ok());
    ASSERT_TRUE(local.is(0x61));
    ASSERT_TRUE(region->close().ok());
    std::memset(memory.data(), 0x62, size);
    local.set(0x63);
    const auto late = pair.post(OpKind::read, pair.peer, old, old_addr, local.bytes(), local);
    EXPECT_TRUE(refused(GetParam(), pair.wait(late)));
    EXPECT_TRUE(local.is(0x63)) << "bytes were delivered under a closed key";
  }
}

TEST_P(FabricConformance, NeighboursOfAFaultCarryOn) {
  for (int round = 0; round < rounds(GetParam(), 20); ++round) {
    Pair pair(GetParam());
    constexpr std::size_t kOps = 24;
    std::vector<std::byte>& memory = pair.memory(kOps * kSmall, std::byte{0x11});
    const auto region = pair.lend(memory, Access::remote_read_write);
    Buffer local(*pair.domain, kOps * kSmall);
    local.fill(static_cast<std::uint64_t>(round));
    std::vector<std::uint64_t> contexts;
    for (std::size_t i = 0; i < kOps; ++i) {
      const RKey key = i % 5 == 2 ? RKey(region->key().raw() ^ 2) : region->key();
      contexts.push_back(pair.post(OpKind::write, pair.peer, key,
                                   region->addr() + Offset(i * kSmall),
                                   local.part(i * kSmall, kSmall), local));
    }
    for (std::size_t i = 0; i < kOps; ++i) {
      const Status status = pair.wait(contexts[i]);
      const auto* there = memory.data() + i * kSmall;
      if (i % 5 == 2) {
        EXPECT_TRUE(refused(GetParam(), status));
        EXPECT_TRUE(all_are({there, kSmall}, 0x11));
      } else if (GetParam().exact_refusal || status.ok()) {
        ASSERT_TRUE(status.ok()) << status.error().describe();
        EXPECT_EQ(std::memcmp(there, local.bytes().data() + i * kSmall, kSmall), 0);
      } else {
        EXPECT_TRUE(refused(GetParam(), status));
      }
    }
  }
}

// A write that is reported has landed: looked at in the instant of its completion.
TEST_P(FabricConformance, CompletionIsDelivery) {
  Pair pair(GetParam());
  const std::size_t sizes[] = {64, kSmall, 300000};
  std::vector<std::byte>& memory = pair.memory(300000);
  const auto region = pair.lend(memory, Access::remote_write);
  Buffer local(*pair.domain, memory.size());
  for (int i = 0; i < rounds(GetParam(), 1000); ++i) {
    const std::size_t size = sizes[i % 3];
    const auto part = local.part(0, size);
    std::memset(part.data(), 1 + i % 250, size);
    ASSERT_TRUE(pair.run(OpKind::write, *region, 0, part, local).ok());
    ASSERT_EQ(std::memcmp(memory.data(), part.data(), size), 0) << "round " << i;
  }
}

// The local buffer is the caller's again with the completion: changing it at once changes nothing
// at the target.
TEST_P(FabricConformance, SourceIsFreeAfterCompletion) {
  Pair pair(GetParam());
  constexpr std::size_t kSize = 1u << 20;
  std::vector<std::byte>& memory = pair.memory(kSize);
  const auto region = pair.lend(memory, Access::remote_write);
  Buffer local(*pair.domain, kSize);
  for (int i = 0; i < rounds(GetParam(), 100); ++i) {
    local.fill(static_cast<std::uint64_t>(i));
    const Crc32c sent = digest::crc32c(local.bytes());
    ASSERT_TRUE(pair.run(OpKind::write, *region, 0, local.bytes(), local).ok());
    local.set(0xff);
    ASSERT_EQ(digest::crc32c(memory), sent) << "round " << i;
  }
}

TEST_P(FabricConformance, ReportsLandedChecksums) {
  Pair pair(GetParam());
  constexpr std::size_t kSize = (3u << 20) + 5;
  std::vector<std::byte>& memory = pair.memory(kSize);
  const auto region = pair.lend(memory, Access::remote_write);
  region->watch(true);
  Buffer local(*pair.domain, kSize);
  local.fill(77);
  std::vector<std::uint64_t> contexts;
  for (std::size_t at = 0; at < kSize; at += 200000) {
    const std::size_t n = std::min<std::size_t>(200000, kSize - at);
    contexts.push_back(pair.post(OpKind::write, *region, at, local.part(at, n), local));
  }
  for (const std::uint64_t c : contexts) ASSERT_TRUE(pair.wait(c).ok());
  const auto runs = region->landed();
  if (!pair.target_domain->info().reports_landed_crc) {
    EXPECT_FALSE(runs.has_value());
    return;
  }
  ASSERT_TRUE(runs.has_value());
  auto sorted = *runs;
  std::sort(sorted.begin(), sorted.end(),
            [](const LandedRun& a, const LandedRun& b) { return a.offset < b.offset; });
  Crc32c crc = digest::crc32c({});
  std::uint64_t at = 0;
  for (const LandedRun& run : sorted) {
    ASSERT_EQ(run.offset.raw(), at);
    crc = digest::crc32c_combine(crc, run.crc, run.length);
    at += run.length.raw();
  }
  EXPECT_EQ(at, kSize);
  EXPECT_EQ(crc, digest::crc32c(local.bytes()));
  const auto again = region->landed();
  ASSERT_TRUE(again.has_value());
  EXPECT_TRUE(again->empty()) << "taken once";
}

TEST_P(FabricConformance, AddressRules) {
  if (!GetParam().socket_addresses) return;
  Pair pair(GetParam());
  const auto check = [&](const std::string& hex, Errc expected) {
    SCOPED_TRACE(hex);
    const Address address = address_from_hex(hex);
    const auto added = pair.initiator->add_peer(address);
    EXPECT_FALSE(added.ok());
    EXPECT_EQ(added.ok() ? Errc::internal : added.code(), expected);
    const Status admitted = pair.domain->admit_peer(address);
    EXPECT_EQ(admitted.ok() ? Errc::internal : admitted.code(), expected);
  };
  check("02001f907f000001000000000000", Errc::unsupported);  // 14 bytes
  check(std::string(64, '0'), Errc::unsupported);            // 32 bytes
  check("0a001f90" + std::string(8, '0') + std::string(31, '0') + "1" + std::string(8, '0'),
        Errc::unsupported);                                            // ::1
  check("02001f9000000000" + std::string(16, '0'), Errc::permission);  // 0.0.0.0
  check("02001f90e0000001" + std::string(16, '0'), Errc::permission);  // 224.0.0.1
  check("02001f90ffffffff" + std::string(16, '0'), Errc::permission);  // 255.255.255.255
  check("02001f90a9fe0001" + std::string(16, '0'), Errc::permission);  // 169.254.0.1
  check("020000007f000001" + std::string(16, '0'), Errc::permission);  // port 0
  const auto again = pair.initiator->add_peer(pair.target->address());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(*again, pair.peer) << "the same address has the same id";
  EXPECT_TRUE(pair.domain->admit_peer(pair.target->address()).ok());
  pair.domain->release_peer(pair.target->address());
}

TEST_P(FabricConformance, BoundsWhatIsInFlight) {
  Pair pair(GetParam());
  std::vector<std::byte>& memory = pair.memory(kSmall);
  const auto region = pair.lend(memory, Access::remote_write);
  InitiatorOptions options;
  options.in_flight_max = 4;
  options.connect_deadline = kLong;
  auto bounded = pair.domain->open_initiator(options);
  ASSERT_TRUE(bounded.ok());
  pair.initiator = *std::move(bounded);
  ASSERT_TRUE(pair.target->add_peer(pair.initiator->address()).ok());
  pair.peer = *pair.initiator->add_peer(pair.target->address());
  Buffer local(*pair.domain, kSmall);
  std::size_t posted = 0;
  Status last;
  for (; posted < 5; ++posted) {
    last = pair.initiator->post({OpKind::write, pair.peer, region->key(), region->addr(),
                                 local.bytes(), local.registration(), 1000 + posted});
    if (!last.ok()) break;
  }
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.code(), Errc::again);
  EXPECT_EQ(pair.initiator->in_flight(), posted);
  ASSERT_LE(posted, 4u);
  ASSERT_TRUE(step_until(pair, [&] { return pair.results.size() == posted; }));
  EXPECT_EQ(pair.initiator->in_flight(), 0u);
}

TEST_P(FabricConformance, WakesFromAnotherThread) {
  Pair pair(GetParam());
  for (int i = 0; i < 10; ++i) {
    std::thread other([&] { pair.initiator->wake(); });
    if (GetParam().one_thread) other.join();  // then at least one after the other
    pair.initiator->wait(static_cast<int>(
        std::chrono::milliseconds(kLong).count()));  // hangs (and times out) without the wake
    if (other.joinable()) other.join();
    Completion none;
    EXPECT_EQ(pair.initiator->poll({&none, 1}), 0u);
  }
}

}  // namespace
}  // namespace farlift::fabric::conformance
