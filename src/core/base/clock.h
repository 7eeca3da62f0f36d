// Clock: where time comes from, so that a simulation can own it. Always a constructor argument,
// never a global.
//
// Threads: now() may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace farlift {

using Duration = std::chrono::nanoseconds;
// Nanoseconds on a monotonic scale that starts anywhere; only differences mean something.
using Instant = std::chrono::time_point<std::chrono::steady_clock, std::chrono::nanoseconds>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant now() const noexcept = 0;
};

// CLOCK_MONOTONIC.
class SystemClock final : public Clock {
 public:
  Instant now() const noexcept override { return std::chrono::steady_clock::now(); }
};

// Moves only when told; for tests. Not thread-safe.
class ManualClock final : public Clock {
 public:
  Instant now() const noexcept override { return now_; }
  void advance(Duration by) noexcept { now_ += by; }

 private:
  Instant now_{};
};

}  // namespace farlift
