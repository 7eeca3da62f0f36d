#include "blob/module/copy_pool.h"

#include <pthread.h>

namespace farlift::blob {

CopyPool::CopyPool(std::size_t threads) {
  for (std::size_t i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      pthread_setname_np(pthread_self(), "farlift-copy");
      while (auto task = tasks_.pop()) (*task)();
    });
  }
}

void CopyPool::stop() {
  tasks_.close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace farlift::blob
