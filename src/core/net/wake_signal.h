// WakeSignal: one thread tells others, once and for good, to stop waiting. It is a descriptor, so
// that poll(2) sees it.
//
// Invariants: once raised it stays raised; fd() is readable from then on and nobody drains it.
// Threads:    any.
// Errors:     make() fails only when the process is out of descriptors.
#pragma once

#include "core/base/result.h"
#include "core/base/unique_fd.h"

#include <atomic>
#include <memory>
#include <utility>

namespace farlift::net {

class WakeSignal {
 public:
  static Result<std::shared_ptr<WakeSignal>> make();

  explicit WakeSignal(UniqueFd event) noexcept : event_(std::move(event)) {}
  void raise() noexcept;
  bool raised() const noexcept { return raised_.load(std::memory_order_acquire); }
  int fd() const noexcept { return event_.get(); }

 private:
  const UniqueFd event_;
  std::atomic<bool> raised_{false};
};

}  // namespace farlift::net
