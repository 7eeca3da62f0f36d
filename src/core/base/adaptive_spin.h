// AdaptiveSpin: how long polling before sleeping is worth it. A wake-up of a sleeping thread costs
// tens of microseconds on a virtual machine, so an answer that is about to come is waited for
// awake; where answers keep coming later than that, polling stops for a while and is then tried
// again.
//
//   const Duration budget = spin.budget();
//   ... poll for at most `budget`, and call AdaptiveSpin::breathe() between two polls ...
//   spin.count(came_in_time);
//
// Polling is for a thread that has a core to itself. Where threads share cores a poller would keep
// the very thread off the core that is to answer it: breathe() hands the core over for a moment,
// and a WaitingThread tells when so many threads of the process wait for answers that each should
// sleep.
//
// Invariants: after kMissesMax misses in a row the next kRests budgets are zero. On a machine with
//             one core the budget is always zero: the answer could not come while we poll.
// Threads:    any. Errors: none.
#pragma once

#include "core/base/clock.h"

#include <atomic>
#include <cstdint>
#include <sched.h>
#include <thread>

namespace farlift {

// Asked of the system once: it costs a system call or more.
inline unsigned core_count() noexcept {
  static const unsigned kCount = std::thread::hardware_concurrency();
  return kCount;
}

// A thread that waits for one answer from outside the process, polling or asleep.
class WaitingThread {
 public:
  WaitingThread() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  ~WaitingThread() { count_.fetch_sub(1, std::memory_order_relaxed); }
  WaitingThread(const WaitingThread&) = delete;
  WaitingThread& operator=(const WaitingThread&) = delete;
  // True while every waiting thread can have a core, and leave one to whoever is to answer it.
  static bool may_poll(unsigned cores = core_count()) noexcept {
    return count_.load(std::memory_order_relaxed) * 2 <= cores;
  }

 private:
  static inline std::atomic<unsigned> count_{0};  // NOLINT(readability-identifier-naming): a member
};

class AdaptiveSpin {
 public:
  static constexpr std::uint32_t kMissesMax = 4;
  static constexpr std::uint32_t kRests = 64;

  explicit AdaptiveSpin(Duration longest, unsigned cores = core_count()) noexcept
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

  // Between two polls: whoever else wants this core gets it first.
  static void breathe() noexcept { ::sched_yield(); }

 private:
  const Duration longest_;
  std::atomic<std::uint32_t> misses_{0};
  std::atomic<std::uint32_t> rests_{0};
};

}  // namespace farlift
