#include "core/fabric/ofi/target_progress.h"

#include "core/base/log.h"

#include <chrono>
#include <poll.h>
#include <unistd.h>

namespace farlift::fabric::ofi {
namespace {

constexpr int kTurnMs = 100;                              // of the thread, when nothing happens
constexpr auto kKnock = std::chrono::milliseconds(1);     // between two attempts to wake readers
constexpr auto kPollRest = std::chrono::milliseconds(1);  // cards: only connections need us

}  // namespace

TargetProgress::~TargetProgress() {
  stop_.store(true);
  std::thread thread;
  {
    MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread.joinable()) {
    if (blocks_) queue_->ops->signal(queue_.get());
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(stop_event_.get(), &one, sizeof one);
    changed_.notify_all();
    thread.join();
  }
}

void TargetProgress::run_thread() {
  MutexLock lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

void TargetProgress::loop() {
  while (!stop_.load()) turn(kTurnMs, stop_event_.get());
}

void TargetProgress::turn(int timeout_ms, int fd, int other_fd) {
  if (wakes_early() && timeout_ms != 0) {
    pollfd fds[3] = {{progress_fd_, POLLIN, 0}, {fd, POLLIN, 0}, {other_fd, POLLIN, 0}};
    if (::poll(fds, std::size(fds), timeout_ms) > 0 && fds[0].revents == 0) return;
    timeout_ms = 0;
  }
  {
    MutexLock lock(mutex_);
    while (waiting_ > 0) changed_.wait(mutex_);
    ++readers_;
  }
  read(timeout_ms);
  MutexLock lock(mutex_);
  if (--readers_ == 0) changed_.notify_all();
}

// Targets post nothing, so entries are only errors of broken connections; reading them frees their
// room.
void TargetProgress::read(int timeout_ms) {
  fi_cq_entry entries[16];
  ssize_t n = 0;
  if (blocks_ && timeout_ms > 0) {
    n = fi_cq_sread(queue_.get(), entries, std::size(entries), nullptr, timeout_ms);
  } else {
    n = fi_cq_read(queue_.get(), entries, std::size(entries));
    if (n == -FI_EAGAIN && timeout_ms > 0) {
      MutexLock lock(mutex_);
      if (waiting_ == 0) changed_.wait_for(mutex_, kPollRest);
    }
  }
  if (n == -FI_EAVAIL) {
    fi_cq_err_entry error{};
    (void)fi_cq_readerr(queue_.get(), &error, 0);
  }
}

void TargetProgress::exclusive(const std::function<void()>& work) {
  MutexLock lock(mutex_);
  ++waiting_;
  changed_.notify_all();
  while (readers_ > 0) {
    if (blocks_)
      queue_->ops->signal(queue_.get());  // one signal wakes one reader, and may meet none
    changed_.wait_for(mutex_, kKnock);
  }
  work();
  if (--waiting_ == 0) changed_.notify_all();
}

}  // namespace farlift::fabric::ofi
