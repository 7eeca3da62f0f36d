#include "blob/client/assistant.h"

#include <cstdint>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace farlift::client {
namespace {

constexpr int kLandingWaitMs = 1000;

void raise(const UniqueFd& event) noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(::write(event.get(), &one, sizeof one));  // EAGAIN: raised already
}

void lower(const UniqueFd& event) noexcept {
  std::uint64_t count = 0;
  static_cast<void>(::read(event.get(), &count, sizeof count));  // EAGAIN: was not raised
}

}  // namespace

Assistant::~Assistant() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    endpoint_ = nullptr;
  }
  raise(event_);
  changed_.notify_all();
  thread_.join();
}

bool Assistant::start() {
  if (thread_.joinable()) return true;
  if (!event_) event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event_) return false;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {  // no thread to be had: the caller manages alone
    return false;
  }
  return true;
}

void Assistant::land(fabric::TargetEndpoint& endpoint) {
  if (!start()) return;
  {
    MutexLock lock(mutex_);
    endpoint_ = &endpoint;
  }
  changed_.notify_all();
}

void Assistant::stop_landing() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    endpoint_ = nullptr;
  }
  raise(event_);
}

void Assistant::run() {
  mutex_.lock();
  for (;;) {
    if (stopping_) break;
    if (endpoint_ != nullptr) {
      fabric::TargetEndpoint* const endpoint = endpoint_;
      mutex_.unlock();
      const Result<bool> raised = endpoint->progress(kLandingWaitMs, event_.get());
      if (raised.ok() && *raised) lower(event_);
      mutex_.lock();
      // A failed endpoint is reported to the thread that waits for the reply; spinning on it helps
      // nobody.
      if (!raised.ok() && endpoint_ == endpoint) endpoint_ = nullptr;
    } else {
      changed_.wait(mutex_);
    }
  }
  mutex_.unlock();
}

}  // namespace farlift::client
