// Conformance: what ends access, what does not, and many peers at once.
#include "core/base/prng.h"
#include "core/fabric/conformance_harness.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <thread>
#include <utility>

namespace farlift::fabric::conformance {
namespace {

constexpr std::size_t kPiece = 1u << 20;

// Runs the provider for a moment longer, so that something late would have its chance to land.
void linger(Pair& pair) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(20);
  while (std::chrono::steady_clock::now() < until) pair.step();
}

bool posts_fail_cleanly(const Status& s) {
  return s.ok() || s.code() == Errc::access || s.code() == Errc::flushed ||
         s.code() == Errc::connection_lost || s.code() == Errc::unreachable ||
         s.code() == Errc::aborted;
}

// Ends access as the provider's fence mode says it must be ended; nothing may land after it
// returned.
void fence(Pair& pair, Registration& region) {
  if (pair.target_domain->info().fence_mode != FenceMode::mr) {
    ASSERT_TRUE(pair.target->close().ok());
  }
  ASSERT_TRUE(region.close().ok());
}

TEST_P(FabricConformance, NothingLandsAfterTheFence) {
  int cut = 0;
  // On a busy machine whole rounds may pass with the copy done before the fence is called: more of
  // them then, until some were caught in the middle.
  const int enough = rounds(GetParam(), 60);
  const Patience patience;
  for (int round = 0; round < enough || (cut == 0 && !patience.over()); ++round) {
    Pair pair(GetParam());
    const std::size_t size = GetParam().bulk_bytes;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
    const auto region = pair.lend(memory, Access::remote_write);
    Buffer local(*pair.domain, size);
    local.set(0x77);
    std::vector<std::uint64_t> contexts;
    if (round % 2 == 0) {
      contexts.push_back(pair.post(OpKind::write, *region, 0, local.bytes(), local));
    } else {
      for (std::size_t at = 0; at + kPiece <= size; at += kPiece) {
        contexts.push_back(pair.post(OpKind::write, *region, at, local.part(at, kPiece), local));
      }
    }
    ASSERT_TRUE(step_until(pair, [&] { return peek(memory.data()) != 0; }));
    fence(pair, *region);
    std::memset(memory.data(), 0xa5, size);
    for (const std::uint64_t c : contexts) {
      const Status status = pair.wait(c);
      EXPECT_TRUE(posts_fail_cleanly(status)) << status.error().describe();
      cut += status.ok() ? 0 : 1;
    }
    linger(pair);
    ASSERT_TRUE(all_are(memory, 0xa5)) << "late byte in round " << round;
  }
  EXPECT_GT(cut, 0) << "no operation was caught in the middle: bulk_bytes is too small";
}

// A read that reports success read everything before the close.
TEST_P(FabricConformance, NothingIsReadAfterTheFence) {
  if (GetParam().open().value()->info().fence_mode != FenceMode::mr)
    return;  // elsewhere reads are fenced with the endpoint
  for (int round = 0; round < rounds(GetParam(), 60); ++round) {
    Pair pair(GetParam());
    const std::size_t size = GetParam().bulk_bytes / 2;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0x31});
    const auto region = pair.lend(memory, Access::remote_read);
    Buffer local(*pair.domain, size);
    Prng prng(static_cast<std::uint64_t>(round));
    const auto reuse = [&] {
      EXPECT_TRUE(region->close().ok());
      std::memset(memory.data(), 0x32, size);
    };
    const auto context = pair.post(OpKind::read, *region, 0, local.bytes(), local);
    std::thread closer;
    if (GetParam().one_thread) {
      for (std::uint64_t n = prng.below(20); n > 0 && !pair.completed(context); --n) pair.step();
      reuse();
    } else {
      closer = std::thread([&] {
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(prng.below(3000));
        while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
        reuse();
      });
    }
    const Status status = pair.wait(context);
    if (closer.joinable()) closer.join();
    if (status.ok()) {
      ASSERT_TRUE(local.is(0x31)) << "stale success in round " << round;
    } else {
      EXPECT_EQ(status.code(), Errc::access);
    }
  }
}

// Closing one endpoint ends what came through it and leaves the domain's other endpoint alone.
TEST_P(FabricConformance, EndpointCloseSparesItsNeighbours) {
  for (int round = 0; round < rounds(GetParam(), 20); ++round) {
    Pair pair(GetParam());
    TargetOptions options;
    options.own_thread = !GetParam().pump_target;
    auto opened = pair.target_domain->open_target(options);
    ASSERT_TRUE(opened.ok());
    const auto second = *std::move(opened);
    ASSERT_TRUE(second->add_peer(pair.initiator->address()).ok());
    const PeerId other = *pair.initiator->add_peer(second->address());
    const std::size_t size = GetParam().bulk_bytes / 2;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
    std::vector<std::byte>& neighbour = pair.memory(size, std::byte{0});
    const auto region = pair.lend(memory, Access::remote_write);
    const auto kept = pair.lend(neighbour, Access::remote_write);
    Buffer local(*pair.domain, size);
    local.fill(9);
    local.bytes()[0] = std::byte{1};
    const auto doomed = pair.post(OpKind::write, *region, 0, local.bytes(), local);
    const auto lives =
        pair.post(OpKind::write, other, kept->key(), kept->addr(), local.bytes(), local);
    const auto step = [&] {
      if (GetParam().pump_target) static_cast<void>(second->progress(0));
      pair.step();
    };
    const auto limit = std::chrono::steady_clock::now() + kLong;
    while (peek(memory.data()) == 0 && std::chrono::steady_clock::now() < limit) step();
    ASSERT_TRUE(pair.target->close().ok());
    ASSERT_TRUE(pair.target->close().ok()) << "close is idempotent";
    std::memset(memory.data(), 0xa5, size);
    while (!(pair.completed(doomed) && pair.completed(lives)) &&
           std::chrono::steady_clock::now() < limit)
      step();
    ASSERT_TRUE(pair.completed(doomed) && pair.completed(lives));
    EXPECT_TRUE(posts_fail_cleanly(pair.results[doomed]));
    EXPECT_TRUE(pair.results[doomed].ok() || pair.results[doomed].error().quiet);
    ASSERT_TRUE(pair.results[lives].ok()) << pair.results[lives].error().describe();
    EXPECT_EQ(std::memcmp(neighbour.data(), local.bytes().data(), size), 0);
    linger(pair);
    ASSERT_TRUE(all_are(memory, 0xa5)) << "late byte in round " << round;
    EXPECT_FALSE(pair.target->progress(0).ok());
    // What comes now finds nobody.
    const auto late = pair.post(OpKind::write, *region, 0, local.part(0, 4096), local);
    EXPECT_FALSE(pair.wait(late).ok());
  }
}

TEST_P(FabricConformance, AbortEndsEverythingQuietly) {
  for (int round = 0; round < rounds(GetParam(), 30); ++round) {
    Pair pair(GetParam());
    const std::size_t size = GetParam().bulk_bytes;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
    const auto region = pair.lend(memory, Access::remote_read_write);
    Buffer local(*pair.domain, size);
    std::vector<std::byte>& other =
        pair.memory(kPiece);  // an aborted read may still be read from, never landed
    const auto readable = pair.lend(other, Access::remote_read);
    Buffer into(*pair.domain, kPiece);
    local.set(0x77);
    std::vector<std::uint64_t> contexts;
    for (std::size_t at = 0; at + kPiece <= size; at += kPiece) {
      contexts.push_back(pair.post(OpKind::write, *region, at, local.part(at, kPiece), local));
    }
    contexts.push_back(pair.post(OpKind::read, *readable, 0, into.bytes(), into));
    if (round % 3 != 0) {
      ASSERT_TRUE(step_until(pair, [&] { return peek(memory.data()) != 0; }));
    }
    pair.initiator->abort(pair.peer);
    for (const std::uint64_t c : contexts) {
      const Status status = pair.wait(c);
      EXPECT_TRUE(status.ok() || status.code() == Errc::aborted) << status.error().describe();
      EXPECT_TRUE(status.ok() || status.error().quiet);
    }
    if (!GetParam().abort_is_fence) fence(pair, *region);
    std::memset(memory.data(), 0xa5, size);
    into.set(0x5a);
    linger(pair);
    ASSERT_TRUE(all_are(memory, 0xa5)) << "late byte in round " << round;
    EXPECT_TRUE(into.is(0x5a));
    if (!GetParam().abort_is_fence) continue;
    // The peer is still there.
    const Status after = pair.run(OpKind::write, *region, 0, local.part(0, kPiece), local);
    EXPECT_TRUE(after.ok()) << after.error().describe();
  }
}

TEST_P(FabricConformance, RemovingAPeerAbortsIt) {
  Pair pair(GetParam());
  const std::size_t size = GetParam().bulk_bytes;
  std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
  const auto region = pair.lend(memory, Access::remote_write);
  Buffer local(*pair.domain, size);
  local.set(0x77);
  const PeerId again = *pair.initiator->add_peer(pair.target->address());
  const auto context = pair.post(OpKind::write, *region, 0, local.bytes(), local);
  pair.initiator->remove_peer(again);
  ASSERT_TRUE(step_until(pair, [&] { return peek(memory.data()) != 0; }))
      << "one reference is left: it goes on";
  pair.initiator->remove_peer(pair.peer);
  const Status status = pair.wait(context);
  EXPECT_TRUE(status.ok() || status.code() == Errc::aborted);
  if (!GetParam().abort_is_fence) fence(pair, *region);
  std::memset(memory.data(), 0xa5, size);
  linger(pair);
  EXPECT_TRUE(all_are(memory, 0xa5));
  const Status late = pair.initiator->post({OpKind::write, pair.peer, region->key(), region->addr(),
                                            local.bytes(), local.registration(), 99});
  EXPECT_FALSE(late.ok());
}

TEST_P(FabricConformance, ClosingTheInitiatorEndsItsOperations) {
  for (int round = 0; round < rounds(GetParam(), 20); ++round) {
    Pair pair(GetParam());
    const std::size_t size = GetParam().bulk_bytes;
    std::vector<std::byte>& memory = pair.memory(size, std::byte{0});
    const auto region = pair.lend(memory, Access::remote_write);
    Buffer local(*pair.domain, size);
    local.set(0x77);
    pair.post(OpKind::write, *region, 0, local.bytes(), local);
    ASSERT_TRUE(step_until(pair, [&] { return peek(memory.data()) != 0; }));
    pair.initiator->close();
    // The local buffer is ours again: what it holds from now on must not arrive.
    local.set(0x13);
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
    fence(pair, *region);
    EXPECT_TRUE(std::memchr(memory.data(), 0x13, size) == nullptr);
    EXPECT_EQ(pair.initiator->in_flight(), 0u);
  }
}

TEST_P(FabricConformance, NobodyListensThere) {
  if (!GetParam().socket_addresses) return;
  Pair pair(GetParam());
  // The initiator's own address is a port that is taken and does not listen.
  // Where such a port is silent instead, the deadline ends it: a short one, then.
  InitiatorOptions options;
  options.connect_deadline = std::chrono::seconds(1);
  auto opened = pair.domain->open_initiator(options);
  ASSERT_TRUE(opened.ok());
  const auto nobody = std::exchange(pair.initiator, *std::move(opened));
  const auto peer = pair.initiator->add_peer(nobody->address());
  ASSERT_TRUE(peer.ok()) << peer.error().describe();
  Buffer local(*pair.domain, 4096);
  const auto context = pair.post(OpKind::write, *peer, RKey(1), RemoteAddr(), local.bytes(), local);
  const Status status = pair.wait(context);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.code(), Errc::unreachable);
  EXPECT_TRUE(status.error().quiet);
}

TEST_P(FabricConformance, SixtyFourInitiatorsToOneTarget) {
  Pair pair(GetParam());
  const int peers = rounds(GetParam(), 64);
  constexpr std::size_t kEach = 300000;
  std::vector<std::byte>& memory = pair.memory(static_cast<std::size_t>(peers) * kEach);
  const auto region = pair.lend(memory, Access::remote_read_write);
  std::vector<std::unique_ptr<Initiator>> initiators;
  std::vector<std::unique_ptr<Buffer>> locals;
  for (int i = 0; i < peers; ++i) {
    InitiatorOptions options;
    options.connect_deadline = kLong;
    auto opened = pair.domain->open_initiator(options);
    ASSERT_TRUE(opened.ok());
    initiators.push_back(*std::move(opened));
    ASSERT_TRUE(pair.target->add_peer(initiators.back()->address()).ok());
    locals.push_back(std::make_unique<Buffer>(*pair.domain, kEach));
    locals.back()->fill(static_cast<std::uint64_t>(i));
    const auto peer = initiators.back()->add_peer(pair.target->address());
    ASSERT_TRUE(peer.ok());
    const Status posted =
        initiators.back()->post({OpKind::write, *peer, region->key(),
                                 region->addr() + Offset(static_cast<std::uint64_t>(i) * kEach),
                                 locals.back()->bytes(), locals.back()->registration(), 1});
    ASSERT_TRUE(posted.ok());
  }
  int done = 0;
  const bool in_time = step_until(pair, [&] {
    for (auto& initiator : initiators) {
      Completion completion;
      if (initiator->poll({&completion, 1}) == 1) {
        ++done;
        EXPECT_TRUE(completion.status.ok()) << completion.status.error().describe();
      }
    }
    return done == peers;
  });
  ASSERT_TRUE(in_time) << done;
  for (int i = 0; i < peers; ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * kEach;
    ASSERT_EQ(
        std::memcmp(memory.data() + at, locals[static_cast<std::size_t>(i)]->bytes().data(), kEach),
        0)
        << i;
  }
}

TEST_P(FabricConformance, OneInitiatorToSixtyFourTargets) {
  Pair pair(GetParam());
  const int peers = rounds(GetParam(), 64);
  constexpr std::size_t kEach = 200000;
  Buffer local(*pair.domain, kEach);
  local.fill(1);
  struct Peer {
    std::vector<std::byte> memory = std::vector<std::byte>(kEach);
    std::unique_ptr<Registration> region;
    std::unique_ptr<TargetEndpoint> target;
  };
  std::vector<std::unique_ptr<Peer>> all;
  std::vector<std::uint64_t> contexts;
  for (int i = 0; i < peers; ++i) {
    auto p = std::make_unique<Peer>();
    p->region = pair.lend(p->memory, Access::remote_write);
    TargetOptions options;
    options.own_thread = !GetParam().pump_target;
    auto opened = pair.target_domain->open_target(options);
    ASSERT_TRUE(opened.ok());
    p->target = *std::move(opened);
    ASSERT_TRUE(p->target->add_peer(pair.initiator->address()).ok());
    const auto peer = pair.initiator->add_peer(p->target->address());
    ASSERT_TRUE(peer.ok());
    contexts.push_back(
        pair.post(OpKind::write, *peer, p->region->key(), p->region->addr(), local.bytes(), local));
    all.push_back(std::move(p));
  }
  const bool in_time = step_until(pair, [&] {
    if (GetParam().pump_target) {
      for (auto& p : all) static_cast<void>(p->target->progress(0));
    }
    return std::all_of(contexts.begin(), contexts.end(),
                       [&](std::uint64_t c) { return pair.completed(c); });
  });
  ASSERT_TRUE(in_time);
  for (std::size_t i = 0; i < all.size(); ++i) {
    ASSERT_TRUE(pair.results[contexts[i]].ok()) << pair.results[contexts[i]].error().describe();
    ASSERT_EQ(std::memcmp(all[i]->memory.data(), local.bytes().data(), kEach), 0);
  }
}

// wait_fd() alone is enough for an event loop.
TEST_P(FabricConformance, EventLoopsNeedOnlyTheDescriptor) {
  Pair pair(GetParam());
  if (pair.initiator->wait_fd() < 0 || GetParam().pump_target) return;
  std::vector<std::byte>& memory = pair.memory(8 * kPiece);
  const auto region = pair.lend(memory, Access::remote_read_write);
  Buffer local(*pair.domain, memory.size());
  local.fill(4);
  const std::size_t sizes[] = {16, 60000, kPiece, 8 * kPiece};
  for (int i = 0; i < rounds(GetParam(), 40); ++i) {
    const auto part = local.part(0, sizes[i % 4]);
    const OpKind kind = i % 8 < 4 ? OpKind::write : OpKind::read;
    ASSERT_TRUE(
        pair.initiator
            ->post({kind, pair.peer, region->key(), region->addr(), part, local.registration(), 1})
            .ok());
    Completion done;
    std::size_t n = 0;
    while (n == 0) {
      pollfd p{pair.initiator->wait_fd(), POLLIN, 0};
      ASSERT_EQ(::poll(&p, 1, static_cast<int>(std::chrono::milliseconds(kLong).count())), 1)
          << "slept through round " << i;
      n = pair.initiator->poll({&done, 1});
    }
    ASSERT_TRUE(done.status.ok()) << done.status.error().describe();
  }
}

}  // namespace
}  // namespace farlift::fabric::conformance
