// Deadline: when a wait ends, on the scale of a Clock; or never.
//
// Invariants: after() saturates, so a huge duration is "never" in practice and not in the past.
// Threads:    plain value.
#pragma once

#include "core/base/clock.h"

#include <algorithm>
#include <limits>

namespace farlift::net {

class Deadline {
 public:
  static constexpr Deadline never() noexcept { return Deadline(Instant::max()); }
  static constexpr Deadline at(Instant when) noexcept { return Deadline(when); }
  static Deadline after(const Clock& clock, Duration in) noexcept {
    const Instant now = clock.now();
    return Deadline(in >= Instant::max() - now ? Instant::max()
                                               : now + std::max(in, Duration::zero()));
  }

  constexpr bool is_never() const noexcept { return when_ == Instant::max(); }
  bool expired(const Clock& clock) const noexcept { return !is_never() && clock.now() >= when_; }

  // Nothing left is zero, never negative.
  Duration left(const Clock& clock) const noexcept {
    if (is_never()) return Duration::max();
    return std::max(when_ - clock.now(), Duration::zero());
  }

  // For poll(2): rounded up so that a wait is never cut short into a busy loop; -1 is forever.
  int poll_ms(const Clock& clock) const noexcept {
    if (is_never()) return -1;
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left(clock)).count();
    return static_cast<int>(std::min<long long>(ms, std::numeric_limits<int>::max()));
  }

 private:
  explicit constexpr Deadline(Instant when) noexcept : when_(when) {}
  Instant when_;
};

}  // namespace farlift::net
