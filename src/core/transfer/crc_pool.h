// CrcPool: threads that hash, so that the fabric's threads need not (spec blob 6,
// fabric-crc-pool-threads).
//
// Invariants: at most kJobsMax jobs wait; a full pool is an answer, the caller then hashes by
//             itself.
// Threads:    try_submit() from any thread. The destructor runs what was accepted, then joins.
//             Errors: none.
#pragma once

#include "core/base/bounded_queue.h"

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace farlift::transfer {

class CrcPool {
 public:
  static constexpr std::size_t kJobsMax = 4096;
  static constexpr std::size_t kThreadsMax = 1024;

  explicit CrcPool(std::size_t threads);  // 1..kThreadsMax
  CrcPool(const CrcPool&) = delete;
  CrcPool& operator=(const CrcPool&) = delete;
  ~CrcPool();

  // The job must not throw. False: not accepted and not run.
  bool try_submit(std::function<void()> job);

 private:
  BoundedQueue<std::function<void()>> jobs_{kJobsMax};
  std::vector<std::thread> threads_;
};

}  // namespace farlift::transfer
