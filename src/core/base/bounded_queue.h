// BoundedQueue: many producers, many consumers, a named maximum. A full queue is an answer, never
// an allocation.
//
// Invariants: at most `limit` items are held; after close() nothing enters, and pop() drains what
//             is there.
// Threads:    any. Errors: try_push() on a full queue is Errc::exhausted, on a closed one
//             Errc::closed; the item stays with the caller.
#pragma once

#include "core/base/mutex.h"
#include "core/base/result.h"

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace farlift {

template <class T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t limit) : limit_(limit) {}

  Status try_push(T&& item) {
    MutexLock lock(mutex_);
    if (closed_) return Error::make(Errc::closed, "queue");
    if (items_.size() >= limit_) return Error::make(Errc::exhausted, "queue");
    items_.push_back(std::move(item));
    ready_.notify_one();
    return {};
  }

  // Waits for an item; nullopt once the queue is closed and empty.
  std::optional<T> pop() {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) ready_.wait(mutex_);
    return take();
  }

  std::optional<T> try_pop() {
    MutexLock lock(mutex_);
    return take();
  }

  void close() {
    MutexLock lock(mutex_);
    closed_ = true;
    ready_.notify_all();
  }

  std::size_t size() const {
    MutexLock lock(mutex_);
    return items_.size();
  }

 private:
  std::optional<T> take() REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> item(std::move(items_.front()));
    items_.pop_front();
    return item;
  }

  const std::size_t limit_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<T> items_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace farlift
