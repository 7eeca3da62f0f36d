// PinnedBudget: the most bytes this process may hold registered with cards. Software rails pin
// nothing, so their budget is unlimited; a card's is derived from RLIMIT_MEMLOCK.
//
// Threads: any. Errors: exhausted when the budget has no room.
#pragma once

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/types.h"

#include <cstdint>
#include <utility>

namespace farlift::memory {

class PinnedBudget {
 public:
  static constexpr Length kUnlimited{UINT64_MAX};
  explicit PinnedBudget(Length limit) : limit_(limit) {}
  // 7/8 of the soft RLIMIT_MEMLOCK (the rest is left to the card's own queues), kUnlimited when it
  // is infinite.
  static Length from_rlimit() noexcept;

  class Reservation {
   public:
    Reservation() = default;
    Reservation(Reservation&& o) noexcept
        : budget_(std::exchange(o.budget_, nullptr)), length_(std::exchange(o.length_, Length())) {}
    Reservation& operator=(Reservation&& o) noexcept;
    ~Reservation();

   private:
    friend class PinnedBudget;
    Reservation(PinnedBudget* budget, Length length) noexcept : budget_(budget), length_(length) {}
    PinnedBudget* budget_ = nullptr;
    Length length_;
  };

  Result<Reservation> reserve(Length length);
  Length used() const;
  Length limit() const noexcept { return limit_; }

 private:
  const Length limit_;
  mutable Mutex mutex_;
  Length used_ GUARDED_BY(mutex_);
};

}  // namespace farlift::memory
