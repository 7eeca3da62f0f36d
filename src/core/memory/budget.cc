#include "core/memory/budget.h"

#include "core/base/assert.h"

#include <sys/resource.h>

namespace farlift::memory {

Length PinnedBudget::from_rlimit() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return Length(limit.rlim_cur / 8 * 7);
}

Result<PinnedBudget::Reservation> PinnedBudget::reserve(Length length) {
  MutexLock lock(mutex_);
  if (length > limit_ - used_) return Error::make(Errc::exhausted, "pinned-byte budget");
  used_ += length;
  return Reservation(this, length);
}

Length PinnedBudget::used() const {
  MutexLock lock(mutex_);
  return used_;
}

PinnedBudget::Reservation& PinnedBudget::Reservation::operator=(Reservation&& o) noexcept {
  std::swap(budget_, o.budget_);
  std::swap(length_, o.length_);
  return *this;
}

PinnedBudget::Reservation::~Reservation() {
  if (budget_ == nullptr) return;
  MutexLock lock(budget_->mutex_);
  ASSERT(length_ <= budget_->used_);
  budget_->used_ -= length_;
}

}  // namespace farlift::memory
