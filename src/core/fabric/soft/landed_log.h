// LandedLog: which runs of a registration landed, in landing order, each with the CRC-32C of what
// is in the memory.
//
// Invariants: neighbouring runs are merged unless something that overlaps them landed in between;
//             at most Registration::kLandedRunsMax runs are kept, then the log says "overflowed"
//             until it is taken.
// Threads:    any. add() reads the memory of the run: call it while the run cannot be unregistered.
#pragma once

#include "core/base/mutex.h"
#include "core/fabric/fabric.h"

#include <atomic>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace farlift::fabric::soft {

class LandedLog {
 public:
  bool watching() const noexcept { return watching_.load(std::memory_order_acquire); }
  void watch(bool on) noexcept;
  // True when this run was the first that did not fit.
  bool add(Offset offset, std::span<const std::byte> landed);
  std::optional<std::vector<LandedRun>> take();

 private:
  static constexpr std::size_t kLookBack = 8;  // runs of parallel landings that may interleave
  bool merge(const LandedRun& run) REQUIRES(mutex_);

  std::atomic<bool> watching_{false};
  Mutex mutex_;
  std::vector<LandedRun> runs_ GUARDED_BY(mutex_);
  bool overflowed_ GUARDED_BY(mutex_) = false;
};

}  // namespace farlift::fabric::soft
