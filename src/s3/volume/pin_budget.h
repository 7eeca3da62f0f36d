// PinBudget: how much memory this process has registered with the fabric at once (spec s3 10). Who
// wants more than is free waits in turn until its deadline.
//
// Invariants: admitted bytes never exceed the limit of the moment of admission, those of receive
//             buffers never half of it; the first in line is not overtaken, except by readers while
//             only that half keeps a writer waiting.
// Threads:    any.
// Errors:     timeout: the deadline passed in line; too_large: it could never be admitted.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/types.h"

#include <cstdint>
#include <list>
#include <utility>

namespace farlift::s3::volume {

enum class PinUse : std::uint8_t { push, receive };

struct PinCounters {
  std::uint64_t pinned_bytes = 0;
  std::uint64_t pinned_peak = 0;
  std::uint64_t budget_waits = 0;
  std::uint64_t budget_refused = 0;
  std::uint64_t registration_failures = 0;
};

class PinBudget {
 public:
  static constexpr Length kMin{8u << 20};
  static constexpr Length kMax{1u << 30};
  static constexpr Length kSliceMax{8u << 20};
  static constexpr Duration kPenalty = std::chrono::seconds(60);

  // Soft RLIMIT_MEMLOCK less 8 MiB, between kMin and kMax; unlimited: RAM/16, at most kMax.
  static Length from_rlimit() noexcept;
  static Length rule(std::uint64_t memlock, bool unlimited, std::uint64_t ram) noexcept;
  // Pages touched by a range.
  static Length cost(std::uint64_t address, Length length) noexcept;

  PinBudget(Length limit, const Clock& clock) : limit_(limit), clock_(clock) {}

  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), cost_(other.cost_), use_(other.use_) {}
    Pass& operator=(Pass&& other) noexcept;
    ~Pass() { leave(); }
    void leave() noexcept;

   private:
    friend class PinBudget;
    Pass(PinBudget* budget, Length cost, PinUse use) noexcept
        : budget_(budget), cost_(cost), use_(use) {}
    PinBudget* budget_ = nullptr;
    Length cost_;
    PinUse use_ = PinUse::push;
  };

  Result<Pass> enter(Length cost, PinUse use, Instant deadline);
  // The fabric refused a registration for want of memory: half the limit for a while.
  void registration_failed();

  Length limit() const;
  // The longest piece of a push that is registered at once.
  Length slice_max() const;
  PinCounters counters() const;

 private:
  struct Waiter {
    Length cost;
    PinUse use;
    bool admitted = false;
  };
  Length limit_now() const REQUIRES(mutex_);
  bool fits(const Waiter& waiter) const REQUIRES(mutex_);
  bool half_is_full(const Waiter& waiter) const REQUIRES(mutex_);
  void admit() REQUIRES(mutex_);
  void take(const Waiter& waiter) REQUIRES(mutex_);

  const Length limit_;
  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::list<Waiter*> line_ GUARDED_BY(mutex_);
  Length used_ GUARDED_BY(mutex_);
  Length received_ GUARDED_BY(mutex_);
  Instant penalty_until_ GUARDED_BY(mutex_){};
  PinCounters counters_ GUARDED_BY(mutex_);
};

}  // namespace farlift::s3::volume
