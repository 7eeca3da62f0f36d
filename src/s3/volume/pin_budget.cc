#include "s3/volume/pin_budget.h"

#include <algorithm>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

namespace farlift::s3::volume {
namespace {

constexpr std::uint64_t kLeftToOthers = 8u << 20;

std::uint64_t page_bytes() noexcept {
  static const auto kPage = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return kPage;
}

}  // namespace

Length PinBudget::rule(std::uint64_t memlock, bool unlimited, std::uint64_t ram) noexcept {
  if (unlimited) return Length(std::min(kMax.raw(), ram / 16));
  const std::uint64_t less = memlock > kLeftToOthers ? memlock - kLeftToOthers : 0;
  return Length(std::clamp(less, kMin.raw(), kMax.raw()));
}

Length PinBudget::from_rlimit() noexcept {
  rlimit limit{};
  struct sysinfo info {};
  std::uint64_t ram = std::uint64_t{4} << 30;
  if (::sysinfo(&info) == 0) ram = std::uint64_t{info.totalram} * info.mem_unit;
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return kMin;
  return rule(limit.rlim_cur, limit.rlim_cur == RLIM_INFINITY, ram);
}

Length PinBudget::cost(std::uint64_t address, Length length) noexcept {
  const std::uint64_t page = page_bytes();
  return Length((address % page + length.raw() + page - 1) / page * page);
}

PinBudget::Pass& PinBudget::Pass::operator=(Pass&& other) noexcept {
  if (this != &other) {
    leave();
    budget_ = std::exchange(other.budget_, nullptr);
    cost_ = other.cost_;
    use_ = other.use_;
  }
  return *this;
}

void PinBudget::Pass::leave() noexcept {
  PinBudget* const budget = std::exchange(budget_, nullptr);
  if (budget == nullptr) return;
  MutexLock lock(budget->mutex_);
  budget->used_ -= cost_;
  if (use_ == PinUse::receive) budget->received_ -= cost_;
  budget->counters_.pinned_bytes = budget->used_.raw();
  budget->admit();
}

Length PinBudget::limit_now() const {
  return clock_.now() < penalty_until_ ? Length(limit_.raw() / 2) : limit_;
}

bool PinBudget::half_is_full(const Waiter& waiter) const {
  return waiter.use == PinUse::receive && (received_ + waiter.cost).raw() > limit_now().raw() / 2;
}

bool PinBudget::fits(const Waiter& waiter) const { return (used_ + waiter.cost) <= limit_now(); }

void PinBudget::take(const Waiter& waiter) {
  used_ += waiter.cost;
  if (waiter.use == PinUse::receive) received_ += waiter.cost;
  counters_.pinned_bytes = used_.raw();
  counters_.pinned_peak = std::max(counters_.pinned_peak, used_.raw());
}

void PinBudget::admit() {
  bool any = false;
  for (auto at = line_.begin(); at != line_.end();) {
    Waiter& waiter = **at;
    if (half_is_full(waiter)) {
      ++at;  // others may pass: it waits for receive buffers, not for them
      continue;
    }
    if (!fits(waiter)) break;
    take(waiter);
    waiter.admitted = true;
    any = true;
    at = line_.erase(at);
  }
  if (any) changed_.notify_all();
}

Result<PinBudget::Pass> PinBudget::enter(Length cost, PinUse use, Instant deadline) {
  MutexLock lock(mutex_);
  if (cost.raw() > (use == PinUse::receive ? limit_.raw() / 2 : limit_.raw())) {
    ++counters_.budget_refused;
    return Error::make(Errc::too_large, "pinned budget");
  }
  Waiter waiter{cost, use, false};
  line_.push_back(&waiter);
  admit();
  if (!waiter.admitted) ++counters_.budget_waits;
  while (!waiter.admitted) {
    const Instant now = clock_.now();
    if (now >= deadline) {
      line_.remove(&waiter);
      ++counters_.budget_refused;
      admit();  // it may have been what the next ones waited behind
      return Error::make(Errc::timeout, "pinned budget");
    }
    // A penalty ends by itself: nobody would tell us.
    changed_.wait_for(mutex_, std::min<Duration>(deadline - now, std::chrono::seconds(1)));
    admit();
  }
  return Pass(this, cost, use);
}

void PinBudget::registration_failed() {
  MutexLock lock(mutex_);
  penalty_until_ = clock_.now() + kPenalty;
  ++counters_.registration_failures;
}

Length PinBudget::limit() const {
  MutexLock lock(mutex_);
  return limit_now();
}

Length PinBudget::slice_max() const {
  return Length(
      std::min(kSliceMax.raw(), std::max<std::uint64_t>(limit().raw() / 2, page_bytes())));
}

PinCounters PinBudget::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

}  // namespace farlift::s3::volume
