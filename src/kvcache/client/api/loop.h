// Loop: lets any number of threads wait for one Client (client.h). Whoever waits first leads: it
// steps the client and sleeps in poll(2) on its descriptors; the others sleep until their operation
// is done or the place of the leader is free. A single caller never meets another thread.
//
// Invariants: the client is touched under the mutex only, and sleeps happen outside of it. What is
//             started while the leader sleeps wakes it; nobody leads while it tells its progress.
//             close() waits until nobody leads, destroys
//             the client (endpoints close first, operations end as timeout), then lets everybody
//             go.
// Threads:    any. Errors: none of its own; after close() start() is not called.
#pragma once

#include "core/base/adaptive_spin.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/unique_fd.h"
#include "kvcache/client/client.h"

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace farlift::kv::client {

class Loop {
 public:
  // `clock` outlives the loop; what the client refers to outlives close().
  static Result<std::unique_ptr<Loop>> make(std::unique_ptr<Client> client, const Clock& clock,
                                            Duration spin);
  ~Loop();  // close()

  // One call: `total` parts, each told by part_done() from inside a callback of the client.
  class Call {
   public:
    explicit Call(std::size_t total) : total_(total) {}
    void part_done() noexcept { ++done_; }

   private:
    friend class Loop;
    std::size_t total_;
    std::size_t done_ = 0;
    Instant told_{};  // when progress was
  };
  using Progress = std::function<void(std::size_t done, std::size_t total)>;

  // Starts the call and returns when all its parts are done. False: closed before it began.
  bool run(Call& call, const std::function<void(Client&)>& start, const Progress& progress = {});
  // Without waiting for anything.
  bool with(const std::function<void(Client&)>& use);
  // Under the mutex, closed or not.
  void exclude(const std::function<void()>& action);

  void close();
  bool closed() const noexcept { return closing_.load(std::memory_order_acquire); }

 private:
  Loop(std::unique_ptr<Client> client, const Clock& clock, Duration spin, UniqueFd wake)
      : clock_(clock), spin_(spin), wake_(std::move(wake)), client_(std::move(client)) {}
  bool finished(const Call& call) const noexcept { return call.done_ >= call.total_; }
  bool spin(Call& call) REQUIRES(mutex_);
  void wait_outside(const Progress& progress) REQUIRES(mutex_);
  bool due(const Call& call, const Progress& progress) const REQUIRES(mutex_);
  void tell(Call& call, const Progress& progress) REQUIRES(mutex_);
  void wake() noexcept;

  const Clock& clock_;
  AdaptiveSpin spin_;
  const UniqueFd wake_;
  std::atomic<bool> closing_{false};
  std::atomic<std::uint32_t> entering_{0};

  Mutex mutex_;
  CondVar changed_;
  std::unique_ptr<Client> client_ GUARDED_BY(mutex_);
  bool leading_ GUARDED_BY(mutex_) = false;
  bool asleep_ GUARDED_BY(mutex_) = false;
};

}  // namespace farlift::kv::client
