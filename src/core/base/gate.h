// Gate: how a service stops. Work enters and leaves; close() refuses new work and waits until what
// entered has left.
//
// Invariants: after close() returns nobody is inside and nobody will enter.
// Threads:    any; close() may be called more than once.
#pragma once

#include "core/base/mutex.h"

#include <cstdint>
#include <utility>

namespace farlift {

class Gate {
 public:
  // Proof of having entered; leaving is its destructor.
  class Pass {
   public:
    Pass() = default;
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&& other) noexcept {
      if (this != &other) {
        leave();
        gate_ = std::exchange(other.gate_, nullptr);
      }
      return *this;
    }
    ~Pass() { leave(); }
    explicit operator bool() const noexcept { return gate_ != nullptr; }

   private:
    friend class Gate;
    explicit Pass(Gate* gate) noexcept : gate_(gate) {}
    void leave() noexcept {
      if (gate_ != nullptr) std::exchange(gate_, nullptr)->leave();
    }
    Gate* gate_ = nullptr;
  };

  // An empty Pass when the gate is closed.
  [[nodiscard]] Pass enter() {
    MutexLock lock(mutex_);
    if (closed_) return Pass();
    ++inside_;
    return Pass(this);
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    while (inside_ > 0) empty_.wait(mutex_);
  }

  bool closed() const {
    MutexLock lock(mutex_);
    return closed_;
  }

 private:
  void leave() noexcept {
    MutexLock lock(mutex_);
    if (--inside_ == 0) empty_.notify_all();
  }

  mutable Mutex mutex_;
  CondVar empty_;
  std::uint64_t inside_ GUARDED_BY(mutex_) = 0;
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace farlift
