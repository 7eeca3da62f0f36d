// TargetProgress: the completion queue that all target endpoints of a domain share, and the thread
// that keeps reading it. libfabric's software providers move a target's bytes only inside such
// reads, whatever progress model they report.
//
// Invariants: exclusive() runs its function while nobody reads the queue: opening or closing an
//             endpoint under a reader crashes some providers. Where the queue has a progress
//             descriptor (tcp) readers sleep outside of it.
// Threads:    any. Errors: none; a queue that can neither block nor be waited for is polled with
//             short sleeps.
#pragma once

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/fabric/ofi/library.h"

#include <rdma/fi_eq.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

namespace farlift::fabric::ofi {

class TargetProgress {
 public:
  TargetProgress(UniqueFid<fid_cq> queue, bool blocks, int progress_fd, UniqueFd stop_event)
      : queue_(std::move(queue)),
        blocks_(blocks),
        progress_fd_(progress_fd),
        stop_event_(std::move(stop_event)) {}
  TargetProgress(const TargetProgress&) = delete;
  TargetProgress& operator=(const TargetProgress&) = delete;
  ~TargetProgress();

  fid_cq* queue() const noexcept { return queue_.get(); }

  void run_thread();  // starts the thread on the first call
  // One turn of progress in the caller's thread, at most that long. It ends early when one of the
  // descriptors becomes readable, if wakes_early().
  void turn(int timeout_ms, int fd = -1, int other_fd = -1);
  bool wakes_early() const noexcept { return progress_fd_ >= 0; }
  void exclusive(const std::function<void()>& work);
  void read_now() { read(0); }  // within exclusive()

 private:
  void read(int timeout_ms);
  void loop();

  const UniqueFid<fid_cq> queue_;
  const bool blocks_;
  const int progress_fd_;  // libfabric's
  const UniqueFd stop_event_;
  Mutex mutex_;
  CondVar changed_;
  std::uint32_t readers_ GUARDED_BY(mutex_) = 0;
  std::uint32_t waiting_ GUARDED_BY(mutex_) = 0;  // callers of exclusive(); they go first
  std::atomic<bool> stop_{false};
  std::thread thread_ GUARDED_BY(mutex_);
};

}  // namespace farlift::fabric::ofi
