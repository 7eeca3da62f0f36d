// Assistant: a second thread of a connection, which lands the bytes of a large transfer beside the
// thread that waits for the reply.
//
// Invariants: touches the endpoint only from land() until shortly after stop_landing(); the
//             endpoint outlives the Assistant. The thread starts with the first job.
// Threads:    one caller at a time (the holder of the connection).
// Errors:     none; where no thread or descriptor is to be had the caller does all the work.
#pragma once

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/fabric/fabric.h"

#include <thread>

namespace farlift::client {

class Assistant {
 public:
  Assistant() = default;
  ~Assistant();
  Assistant(const Assistant&) = delete;
  Assistant& operator=(const Assistant&) = delete;

  // Drives `endpoint` from the second thread until stop_landing(), which does not wait: the thread
  // leaves at once, and a landing that the peer did not ask for is the provider's to refuse.
  void land(fabric::TargetEndpoint& endpoint);
  void stop_landing();

 private:
  bool start();
  void run();

  Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  fabric::TargetEndpoint* endpoint_ GUARDED_BY(mutex_) = nullptr;
  UniqueFd event_;  // readable: look at the members again
  std::thread thread_;
};

}  // namespace farlift::client
