// Conformance: what a fence returned from. The peer goes on sending from a thread of its own, and
// the first look at the memory is taken at once, where bytes landed last: whoever writes the whole
// of it first covers up what came late.
#include "core/base/adaptive_spin.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/fabric/conformance_harness.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>

namespace farlift::fabric::conformance {
namespace {

constexpr int kWritten = 0x77;  // over zeros
constexpr int kLent = 0x31;
constexpr int kReused = 0x32;
constexpr std::size_t kPage = 4096;

// How far a part was written whose bytes land in order. About twenty looks: far quicker than the
// piece that may still be landing. Of bytes in another order it is some place that tells little.
std::size_t frontier(std::span<const std::byte> part) noexcept {
  std::size_t written = 0;
  std::size_t end = part.size();
  while (written < end) {
    const std::size_t middle = written + (end - written) / 2;
    if (peek(part.data() + middle) == kWritten) {
      written = middle + 1;
    } else {
      end = middle;
    }
  }
  return written;
}

// A wait that keeps its CPU: who yields comes back when the copying threads rest, which is when
// nothing is to be caught. Now and then it must, where CPUs are few.
class Turn {
 public:
  void spin() {
    AdaptiveSpin::breathe();
    const auto now = std::chrono::steady_clock::now();
    if (now < ends_) return;
    std::this_thread::yield();
    ends_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
  }

 private:
  std::chrono::steady_clock::time_point ends_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(2);
};

std::size_t written_bytes(std::span<const std::byte> bytes) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    const auto page = bytes.subspan(at, std::min(kPage, bytes.size() - at));
    count += all_are(page, kWritten)
                 ? page.size()
                 : static_cast<std::size_t>(std::ranges::count(page, std::byte{kWritten}));
  }
  return count;
}

// One write, or several beside each other, to memory that is fenced in the middle of it.
class FencedWrites {
 public:
  FencedWrites(const ConformanceProvider& provider, std::size_t parts, bool watched = false)
      : memory_(provider.bulk_bytes, std::byte{0}),
        pair_(provider),
        region_(pair_.lend(memory_, Access::remote_write)),
        local_(*pair_.domain, memory_.size()),
        part_bytes_(memory_.size() / parts) {
    region_->watch(watched);
    local_.set(kWritten);
    for (std::size_t i = 0; i < parts; ++i) {
      contexts_.push_back(pair_.post(OpKind::write, *region_, i * part_bytes_,
                                     local_.part(i * part_bytes_, part_bytes_), local_));
    }
  }
  ~FencedWrites() { join(); }

  Registration& region() noexcept { return *region_; }
  const std::vector<std::byte>& memory() const noexcept { return memory_; }

  // Starts the peer, and returns once the byte at `place` landed; false when it never did.
  bool run_until_landed(std::size_t place) {
    if (!pair_.provider.one_thread && !pair_.provider.pump_target)
      sender_ = std::thread([this] { run_to_the_end(); });
    const auto limit = std::chrono::steady_clock::now() + kLong;
    Turn turn;
    while (peek(memory_.data() + place) == 0) {
      if (std::chrono::steady_clock::now() > limit) return false;
      if (sender_.joinable()) {
        turn.spin();
      } else {
        pair_.step();
      }
    }
    return true;
  }

  // Ends access as the fence mode says, and looks at once.
  void fence() {
    if (pair_.target_domain->info().fence_mode != FenceMode::mr) {
      ASSERT_TRUE(pair_.target->close().ok());
    }
    ASSERT_TRUE(region_->close().ok());
    frontiers_ = frontiers();
    snapshot_ = memory_;
  }

  // Lets the peer send the rest, and looks again. Returns how many writes were cut short.
  int look_again() {
    if (sender_.joinable()) {
      join();
    } else {
      run_to_the_end();
    }
    EXPECT_EQ(frontiers_, frontiers()) << "bytes landed after the fence";
    EXPECT_EQ(std::memcmp(snapshot_.data(), memory_.data(), memory_.size()), 0)
        << "bytes landed after the fence";
    int cut = 0;
    for (std::size_t i = 0; i < contexts_.size(); ++i) {
      const auto found = pair_.results.find(contexts_[i]);
      if (found == pair_.results.end()) {
        ADD_FAILURE() << "operation never completed";
      } else if (found->second.ok()) {
        EXPECT_EQ(frontiers_[i], part_bytes_) << "success before the last byte had landed";
      } else {
        ++cut;
      }
    }
    return cut;
  }

 private:
  void join() {
    if (sender_.joinable()) sender_.join();
  }

  // The peer's thread, where it has one: nobody else uses `pair_`'s initiator meanwhile.
  void run_to_the_end() {
    step_until(pair_, [&] {
      return std::all_of(contexts_.begin(), contexts_.end(),
                         [&](std::uint64_t c) { return pair_.completed(c); });
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < until) pair_.step();
  }

  std::vector<std::size_t> frontiers() const {
    std::vector<std::size_t> out(contexts_.size());
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = frontier(std::span(memory_).subspan(i * part_bytes_, part_bytes_));
    return out;
  }

  std::vector<std::byte> memory_;  // outlives the endpoints, see Pair::memory()
  Pair pair_;
  std::unique_ptr<Registration> region_;
  Buffer local_;
  const std::size_t part_bytes_;
  std::vector<std::uint64_t> contexts_;
  std::vector<std::size_t> frontiers_;
  std::vector<std::byte> snapshot_;
  std::thread sender_;
};

TEST_P(FabricConformance, WhatAFenceReturnedFromStaysAsItIs) {
  int cut = 0;
  const int enough = rounds(GetParam(), 24);
  const Patience patience;
  for (int round = 0; round < enough || (cut == 0 && !patience.over()); ++round) {
    FencedWrites writes(GetParam(), round % 2 == 0 ? 1 : 4);
    Prng prng(static_cast<std::uint64_t>(round));
    ASSERT_TRUE(writes.run_until_landed(prng.below(GetParam().bulk_bytes / 2)));
    ASSERT_NO_FATAL_FAILURE(writes.fence());
    cut += writes.look_again();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
  EXPECT_GT(cut, 0) << "no operation was caught in the middle: bulk_bytes is too small";
}

// The record of what landed is part of the landing: complete when close() returns.
TEST_P(FabricConformance, TheRecordOfLandingsIsCompleteAfterTheClose) {
  const auto probe = GetParam().open();
  ASSERT_TRUE(probe.ok());
  if (!(*probe)->info().reports_landed_crc || (*probe)->info().fence_mode != FenceMode::mr) return;
  for (int round = 0; round < rounds(GetParam(), 8); ++round) {
    FencedWrites writes(GetParam(), round % 2 == 0 ? 1 : 4, true);
    Prng prng(static_cast<std::uint64_t>(round));
    ASSERT_TRUE(writes.run_until_landed(prng.below(GetParam().bulk_bytes / 2)));
    ASSERT_NO_FATAL_FAILURE(writes.fence());
    const auto runs = writes.region().landed();
    writes.look_again();
    ASSERT_TRUE(runs.has_value());
    std::uint64_t recorded = 0;
    for (const LandedRun& run : *runs) {
      recorded += run.length.raw();
      EXPECT_EQ(
          digest::crc32c(std::span(writes.memory()).subspan(run.offset.raw(), run.length.raw())),
          run.crc);
    }
    EXPECT_EQ(written_bytes(writes.memory()), recorded);
    const auto late = writes.region().landed();
    EXPECT_TRUE(late.has_value() && late->empty()) << "recorded after the close";
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

// Reads of one piece each, one after the other: whichever the close meets is short enough to
// succeed, and must have been read before it. The owner writes against the direction of the copy.
TEST_P(FabricConformance, NoReadThatSucceedsSawTheMemoryReused) {
  const auto probe = GetParam().open();
  ASSERT_TRUE(probe.ok());
  if ((*probe)->info().fence_mode != FenceMode::mr) return;
  constexpr std::size_t kReads = 4;
  for (int round = 0; round < rounds(GetParam(), 60); ++round) {
    Pair pair(GetParam());
    std::vector<std::byte>& memory = pair.memory(GetParam().bulk_bytes / 32, std::byte{kLent});
    const auto region = pair.lend(memory, Access::remote_read);
    std::vector<std::unique_ptr<Buffer>> locals;
    std::vector<std::uint64_t> contexts(kReads);
    for (std::size_t i = 0; i < kReads; ++i) {
      locals.push_back(std::make_unique<Buffer>(*pair.domain, memory.size()));
      contexts[i] = pair.post(OpKind::read, *region, 0, locals[i]->bytes(), *locals[i]);
    }
    const auto reuse = [&] {
      EXPECT_TRUE(region->close().ok());
      for (std::size_t at = memory.size(); at >= kPage; at -= kPage)
        memory[at - 1] = std::byte{kReused};
    };
    Prng prng(static_cast<std::uint64_t>(round));
    std::uint64_t steps_before = GetParam().one_thread ? 1 + prng.below(20) : 0;
    const auto step = [&] {
      if (steps_before > 0 && --steps_before == 0) reuse();
      pair.step();
    };
    std::atomic<bool> reading{false};
    std::thread closer;
    if (!GetParam().one_thread) {
      closer = std::thread([&] {
        Turn turn;
        while (!reading.load()) turn.spin();
        const auto until =
            std::chrono::steady_clock::now() + std::chrono::microseconds(prng.below(500));
        while (std::chrono::steady_clock::now() < until) turn.spin();
        reuse();
      });
    }
    const auto limit = std::chrono::steady_clock::now() + kLong;
    bool open = true;
    for (std::size_t i = 0; open; i = (i + 1) % kReads) {
      while (!pair.completed(contexts[i]) && std::chrono::steady_clock::now() < limit) step();
      reading.store(true);
      const Status status = pair.wait(contexts[i]);
      EXPECT_TRUE(status.ok() || status.code() == Errc::access) << status.error().describe();
      EXPECT_TRUE(!status.ok() || locals[i]->is(kLent))
          << "success with bytes from after the close";
      open = status.ok() && !HasFailure();
      if (open) contexts[i] = pair.post(OpKind::read, *region, 0, locals[i]->bytes(), *locals[i]);
    }
    if (closer.joinable()) closer.join();
    ASSERT_FALSE(HasFailure()) << "round " << round;
  }
}

}  // namespace
}  // namespace farlift::fabric::conformance
