// AdaptiveSpin: how long polling before sleeping is worth it. A wake-up of a sleeping thread costs
// tens of microseconds on a virtual machine, so an answer that is about to come is waited for
// awake; where answers keep coming later than that, polling stops for a while and is then tried
// again.
//
//   const Duration budget = spin.budget();
//   ... poll for at most `budget` ...
//   spin.count(came_in_time);
//
// Invariants: after kMissesMax misses in a row the next kRests budgets are zero. On a machine with
//             one core the budget is always zero: the answer could not come while we poll.
// Threads:    any. Errors: none.
#pragma once

#include "core/base/clock.h"

#include <atomic>
#include <cstdint>
#include <thread>

namespace farlift {

class AdaptiveSpin {
 public:
  static constexpr std::uint32_t kMissesMax = 4;
  static constexpr std::uint32_t kRests = 64;

  explicit AdaptiveSpin(Duration longest,
                        unsigned cores = std::thread::hardware_concurrency()) noexcept
      : longest_(cores > 1 ? longest : Duration(0)) {}

  // Zero: do not poll, and do not count().
  Duration budget() noexcept {
    if (longest_.count() == 0) return longest_;
    std::uint32_t rests = rests_.load(std::memory_order_relaxed);
    if (rests == 0) return longest_;
    // Two threads may take the same rest; one more or less does not matter.
    rests_.store(rests - 1, std::memory_order_relaxed);
    return Duration(0);
  }

  void count(bool came_in_time) noexcept {
    if (came_in_time) {
      misses_.store(0, std::memory_order_relaxed);
      return;
    }
    const std::uint32_t misses = misses_.load(std::memory_order_relaxed) + 1;
    if (misses >= kMissesMax) rests_.store(kRests, std::memory_order_relaxed);
    misses_.store(misses >= kMissesMax ? kMissesMax - 1 : misses, std::memory_order_relaxed);
  }

 private:
  const Duration longest_;
  std::atomic<std::uint32_t> misses_{0};
  std::atomic<std::uint32_t> rests_{0};
};

}  // namespace farlift
