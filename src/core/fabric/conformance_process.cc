// Conformance: peers in processes of their own that die or stop.
#include "core/digest/crc32c.h"
#include "core/fabric/conformance_harness.h"

#include <algorithm>
#include <cstring>

namespace farlift::fabric::conformance {
namespace {

// A peer process with an endpoint and a region of `bulk_bytes`, and our initiator towards it.
struct RemoteTarget {
  explicit RemoteTarget(const ConformanceProvider& provider)
      : pair(provider), process(provider.name) {
    const auto opened = process.ask("open");
    address = address_from_hex(opened[1]);
    const auto region = process.ask("region " + std::to_string(provider.bulk_bytes) + " 3");
    key = RKey(std::stoull(region[2]));
    addr = RemoteAddr(std::stoull(region[3]));
    const auto added = pair.initiator->add_peer(address);
    EXPECT_TRUE(added.ok());
    peer = *added;
  }
  std::uint64_t post(OpKind kind, std::span<std::byte> local, Buffer& of) {
    return pair.post(kind, peer, key, addr, local, of);
  }
  bool landing() { return process.ask("first 0")[1] != "0"; }

  Pair pair;
  PeerProcess process;
  Address address;
  RKey key;
  RemoteAddr addr;
  PeerId peer;
};

TEST_P(FabricProcessConformance, MovesBytesBetweenProcesses) {
  RemoteTarget remote(GetParam());
  Buffer local(*remote.pair.domain, GetParam().bulk_bytes);
  local.fill(11);
  const Status wrote = remote.pair.wait(remote.post(OpKind::write, local.bytes(), local));
  ASSERT_TRUE(wrote.ok()) << wrote.error().describe();
  EXPECT_EQ(remote.process.ask("crc 0")[1], std::to_string(digest::crc32c(local.bytes()).raw()));
  Buffer back(*remote.pair.domain, GetParam().bulk_bytes);
  const Status read = remote.pair.wait(remote.post(OpKind::read, back.bytes(), back));
  ASSERT_TRUE(read.ok()) << read.error().describe();
  EXPECT_EQ(std::memcmp(back.bytes().data(), local.bytes().data(), local.bytes().size()), 0);
}

TEST_P(FabricProcessConformance, ADeadTargetIsAnErrorAndQuiet) {
  for (int round = 0; round < rounds(GetParam(), 6); ++round) {
    RemoteTarget remote(GetParam());
    Buffer local(*remote.pair.domain, GetParam().bulk_bytes);
    Buffer into(*remote.pair.domain, GetParam().bulk_bytes);
    local.set(0x77);
    std::vector<std::uint64_t> contexts;
    contexts.reserve(8);
    for (int i = 0; i < 8; ++i) {
      contexts.push_back(i % 4 == 3 ? remote.post(OpKind::read, into.bytes(), into)
                                    : remote.post(OpKind::write, local.bytes(), local));
    }
    if (round % 2 == 0) {
      ASSERT_TRUE(step_until(remote.pair, [&] { return remote.landing(); }));
    }
    remote.process.kill();
    for (const std::uint64_t c : contexts) {
      const Status status = remote.pair.wait(c);
      if (status.ok()) continue;
      // unsupported: it died before it had said what it is.
      EXPECT_TRUE(status.code() == Errc::connection_lost || status.code() == Errc::unreachable ||
                  status.code() == Errc::flushed || status.code() == Errc::unsupported)
          << status.error().describe();
      EXPECT_TRUE(status.error().quiet);
    }
    const Status after = remote.pair.wait(remote.post(OpKind::write, local.part(0, 4096), local));
    ASSERT_FALSE(after.ok());
    EXPECT_TRUE(after.error().quiet);
    // Other targets of the same initiator are not concerned.
    std::vector<std::byte>& memory = remote.pair.memory(4096);
    const auto region = remote.pair.lend(memory, Access::remote_write);
    EXPECT_TRUE(remote.pair.run(OpKind::write, *region, 0, local.part(0, 4096), local).ok());
  }
}

TEST_P(FabricProcessConformance, AStoppedTargetHoldsNobody) {
  RemoteTarget remote(GetParam());
  Buffer local(*remote.pair.domain, GetParam().bulk_bytes);
  local.set(0x77);
  std::vector<std::uint64_t> contexts;
  contexts.reserve(4);
  for (int i = 0; i < 4; ++i) contexts.push_back(remote.post(OpKind::write, local.bytes(), local));
  ASSERT_TRUE(step_until(remote.pair, [&] { return remote.landing(); }));
  remote.process.stop();
  // No timeout ends a transfer in progress, however long the peer is silent.
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < until) remote.pair.step();
  for (const std::uint64_t c : contexts)
    EXPECT_TRUE(!remote.pair.completed(c) || remote.pair.results[c].ok());
  std::vector<std::byte>& memory = remote.pair.memory(4096);
  const auto region = remote.pair.lend(memory, Access::remote_write);
  EXPECT_TRUE(remote.pair.run(OpKind::write, *region, 0, local.part(0, 4096), local).ok())
      << "a neighbour waits";
  remote.pair.initiator->abort(remote.peer);
  // Where the target has to say that it is done, no time limit stands in for its word.
  const auto patient = std::chrono::steady_clock::now() + std::chrono::milliseconds(2500);
  while (std::chrono::steady_clock::now() < patient) remote.pair.step();
  EXPECT_TRUE(remote.pair.run(OpKind::write, *region, 0, local.part(0, 4096), local).ok())
      << "a neighbour is harmed by the abort";
  remote.process.resume();
  for (const std::uint64_t c : contexts) {
    const Status status = remote.pair.wait(c);
    EXPECT_TRUE(status.ok() || status.code() == Errc::aborted) << status.error().describe();
    EXPECT_TRUE(status.ok() || status.error().quiet);
  }
  // The owner of the memory fences it in any case before it is used again.
  remote.process.ask("close 0");
  remote.process.ask("set 0 165");
  for (int i = 0; i < 20; ++i) ASSERT_EQ(remote.process.ask("is 0 165")[1], "1") << "late byte";
}

// Case B96's kernel: the initiator is frozen in the middle of a write; the target takes its memory
// back meanwhile.
TEST_P(FabricProcessConformance, AStoppedInitiatorCannotHoldAClose) {
  for (int round = 0; round < rounds(GetParam(), 6); ++round) {
    Pair pair(GetParam());
    PeerProcess process(GetParam().name);
    process.ask("open");
    const std::size_t size = GetParam().bulk_bytes;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
    const auto region = pair.lend(memory, Access::remote_read_write);
    process.ask("start write " + pair.target->address().hex() + " " +
                std::to_string(region->key().raw()) + " " + std::to_string(region->addr().raw()) +
                " " + std::to_string(size) + " 3 100000");
    ASSERT_TRUE(step_until(pair, [&] { return peek(memory.data()) != 0; }));
    process.stop();
    const auto before = std::chrono::steady_clock::now();
    if (pair.target_domain->info().fence_mode != FenceMode::mr) {
      ASSERT_TRUE(pair.target->close().ok());
    }
    ASSERT_TRUE(region->close().ok());
    EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10))
        << "close waited for the peer";
    std::memset(memory.data(), 0xa5, size);
    process.resume();
    const auto result = process.ask("result");
    EXPECT_NE(result[2], "0") << "writes went on after the close";
    EXPECT_TRUE(all_are(memory, 0xa5)) << "late byte";
  }
}

TEST_P(FabricProcessConformance, ADeadInitiatorLeavesTheTargetWell) {
  for (int round = 0; round < rounds(GetParam(), 6); ++round) {
    Pair pair(GetParam());
    PeerProcess process(GetParam().name);
    process.ask("open");
    const std::size_t size = GetParam().bulk_bytes;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
    auto region = pair.lend(memory, Access::remote_read_write);
    process.ask(std::string("start ") + "write " + pair.target->address().hex() + " " +
                std::to_string(region->key().raw()) + " " + std::to_string(region->addr().raw()) +
                " " + std::to_string(size) + " 3 100000");
    ASSERT_TRUE(step_until(pair, [&] { return peek(memory.data()) != 0; }));
    process.kill();
    Buffer local(*pair.domain, 65536);
    local.fill(8);
    std::vector<std::byte>& other = pair.memory(65536);
    const auto neighbour = pair.lend(other, Access::remote_read_write);
    ASSERT_TRUE(pair.run(OpKind::write, *neighbour, 0, local.bytes(), local).ok());
    EXPECT_EQ(std::memcmp(other.data(), local.bytes().data(), other.size()), 0);
    if (pair.target_domain->info().fence_mode == FenceMode::mr) {
      ASSERT_TRUE(region->close().ok());
      std::memset(memory.data(), 0xa5, size);
      for (int i = 0; i < 5; ++i) pair.step();
      EXPECT_TRUE(all_are(memory, 0xa5));
    }
  }
}

}  // namespace
}  // namespace farlift::fabric::conformance
