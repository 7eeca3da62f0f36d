#include "core/fabric/soft/landed_log.h"

#include "core/digest/crc32c.h"

namespace farlift::fabric::soft {

void LandedLog::watch(bool on) noexcept {
  MutexLock lock(mutex_);
  runs_.clear();
  overflowed_ = false;
  watching_.store(on, std::memory_order_release);
}

bool LandedLog::add(Offset offset, std::span<const std::byte> landed) {
  const LandedRun run{offset, Length(landed.size()), digest::crc32c(landed)};
  MutexLock lock(mutex_);
  if (!watching_.load(std::memory_order_relaxed) || overflowed_) return false;
  if (merge(run)) return false;
  if (runs_.size() >= Registration::kLandedRunsMax) {
    runs_.clear();
    overflowed_ = true;
    return true;
  }
  runs_.push_back(run);
  return false;
}

bool LandedLog::merge(const LandedRun& run) {
  const std::uint64_t begin = run.offset.raw();
  const std::uint64_t end = begin + run.length.raw();
  for (std::size_t back = 0; back < kLookBack && back < runs_.size(); ++back) {
    LandedRun& earlier = runs_[runs_.size() - 1 - back];
    const std::uint64_t earlier_begin = earlier.offset.raw();
    const std::uint64_t earlier_end = earlier_begin + earlier.length.raw();
    if (earlier_end == begin) {
      earlier.crc = digest::crc32c_combine(earlier.crc, run.crc, run.length);
      earlier.length += run.length;
      return true;
    }
    if (end == earlier_begin) {
      earlier.crc = digest::crc32c_combine(run.crc, earlier.crc, earlier.length);
      earlier.offset = run.offset;
      earlier.length += run.length;
      return true;
    }
    if (begin < earlier_end && earlier_begin < end) return false;  // order matters from here back
  }
  return false;
}

std::optional<std::vector<LandedRun>> LandedLog::take() {
  MutexLock lock(mutex_);
  if (overflowed_ || !watching_.load(std::memory_order_relaxed)) {
    overflowed_ = false;
    return std::nullopt;
  }
  std::vector<LandedRun> out;
  out.swap(runs_);
  return out;
}

}  // namespace farlift::fabric::soft
