#include "kvcache/client/api/loop.h"

#include "core/base/assert.h"

#include <algorithm>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace farlift::kv::client {
namespace {

constexpr Duration kProgressEvery = std::chrono::milliseconds(100);
constexpr Duration kSleepMax = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<Loop>> Loop::make(std::unique_ptr<Client> client, const Clock& clock,
                                         Duration spin) {
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return Error::from_errno("kv loop event");
  return std::unique_ptr<Loop>(new Loop(std::move(client), clock, spin, std::move(wake)));
}

Loop::~Loop() { close(); }

void Loop::wake() noexcept {
  const std::uint64_t one = 1;
  // Full means that it is readable already.
  [[maybe_unused]] const auto written = ::write(wake_.get(), &one, sizeof one);
}

bool Loop::run(Call& call, const std::function<void(Client&)>& start, const Progress& progress) {
  entering_.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  entering_.fetch_sub(1, std::memory_order_relaxed);
  if (closing_.load(std::memory_order_relaxed)) return false;
  if (progress) call.told_ = clock_.now();
  start(*client_);
  if (asleep_) wake();
  while (!finished(call)) {
    if (leading_ || closing_.load(std::memory_order_relaxed)) {
      if (progress) {
        (void)changed_.wait_for(mutex_, kProgressEvery);
        tell(call, progress);
      } else {
        changed_.wait(mutex_);
      }
      continue;
    }
    leading_ = true;
    while (!finished(call) && !closing_.load(std::memory_order_relaxed) && !due(call, progress)) {
      if (client_->step()) {
        changed_.notify_all();  // calls of others may be done
        if (entering_.load(std::memory_order_relaxed) > 0) {
          mutex_.unlock();
          std::this_thread::yield();
          mutex_.lock();
        }
      } else if (!spin(call)) {
        wait_outside(progress);
      }
    }
    leading_ = false;
    changed_.notify_all();
    tell(call, progress);  // however long it takes, somebody else may lead
  }
  if (progress) {
    mutex_.unlock();
    progress(call.total_, call.total_);
    mutex_.lock();
  }
  return true;
}

// Polls for a while before sleeping; true: something came, or somebody wants in.
bool Loop::spin(Call& call) {
  const Duration budget = spin_.budget();
  if (budget.count() == 0) return false;
  const Instant until = clock_.now() + budget;
  bool came = false;
  while (!came && clock_.now() < until) {
    if (entering_.load(std::memory_order_relaxed) > 0 || closing_.load(std::memory_order_relaxed)) {
      return true;
    }
    came = client_->step();
  }
  spin_.count(came);
  if (came) changed_.notify_all();
  return came || finished(call);
}

void Loop::wait_outside(const Progress& progress) {
  std::vector<pollfd> fds;
  for (const int fd : client_->wait_fds()) fds.push_back({fd, POLLIN, 0});
  fds.push_back({wake_.get(), POLLIN, 0});
  const Instant now = clock_.now();
  const Instant next = client_->next_deadline();
  Duration time = next <= now ? Duration(0) : std::min<Duration>(next - now, kSleepMax);
  if (progress) time = std::min(time, kProgressEvery);
  timespec limit{};
  limit.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000);
  limit.tv_nsec = static_cast<long>(time.count() % 1'000'000'000);
  asleep_ = true;
  mutex_.unlock();
  (void)::ppoll(fds.data(), fds.size(), &limit, nullptr);
  if (fds.back().revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
  }
  mutex_.lock();
  asleep_ = false;
}

bool Loop::due(const Call& call, const Progress& progress) const {
  return progress && !finished(call) && clock_.now() - call.told_ >= kProgressEvery;
}

void Loop::tell(Call& call, const Progress& progress) {
  if (!due(call, progress)) return;
  call.told_ = clock_.now();
  const std::size_t done = call.done_;
  mutex_.unlock();
  progress(done, call.total_);
  mutex_.lock();
}

bool Loop::with(const std::function<void(Client&)>& use) {
  entering_.fetch_add(1, std::memory_order_relaxed);
  MutexLock lock(mutex_);
  entering_.fetch_sub(1, std::memory_order_relaxed);
  if (client_ == nullptr || closing_.load(std::memory_order_relaxed)) return false;
  use(*client_);
  return true;
}

void Loop::exclude(const std::function<void()>& action) {
  MutexLock lock(mutex_);
  action();
}

void Loop::close() {
  MutexLock lock(mutex_);
  closing_.store(true, std::memory_order_release);
  if (asleep_) wake();
  changed_.notify_all();
  while (leading_) changed_.wait(mutex_);
  client_.reset();  // endpoints first, then everything is reported
  changed_.notify_all();
}

}  // namespace farlift::kv::client
