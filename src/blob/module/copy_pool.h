// CopyPool: threads that copy and hash payloads of inline commands, so that the server's main
// thread does not.
//
// Invariants: every accepted task runs exactly once. Threads: submit() from any. Errors: false
//             after stop() or when
// kTasksMax are waiting; the caller then does the work itself.
#pragma once

#include "core/base/bounded_queue.h"

#include <cstddef>
#include <functional>
#include <thread>
#include <vector>

namespace farlift::blob {

class CopyPool {
 public:
  using Task = std::function<void()>;
  static constexpr std::size_t kTasksMax = 65536;  // a connection has one at a time

  explicit CopyPool(std::size_t threads);
  ~CopyPool() { stop(); }
  bool submit(Task task) { return tasks_.try_push(std::move(task)).ok(); }
  void stop();  // runs what was accepted, then joins

 private:
  BoundedQueue<Task> tasks_{kTasksMax};
  std::vector<std::thread> threads_;
};

}  // namespace farlift::blob
