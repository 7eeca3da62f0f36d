#include "core/transfer/crc_pool.h"

#include "core/base/assert.h"

#include <pthread.h>
#include <utility>

namespace farlift::transfer {

CrcPool::CrcPool(std::size_t threads) {
  ASSERT(threads >= 1 && threads <= kThreadsMax);
  threads_.reserve(threads);
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      (void)pthread_setname_np(pthread_self(), "farlift-crc");
      while (auto job = jobs_.pop()) (*job)();
    });
  }
}

CrcPool::~CrcPool() {
  jobs_.close();
  for (std::thread& thread : threads_) thread.join();
}

bool CrcPool::try_submit(std::function<void()> job) { return jobs_.try_push(std::move(job)).ok(); }

}  // namespace farlift::transfer
