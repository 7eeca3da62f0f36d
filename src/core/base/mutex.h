// Mutex, MutexLock, CondVar: std::mutex with clang's thread-safety attributes, so that the tidy
// build proves which lock guards which member.
//
// Threads: any. Errors: none.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define FARLIFT_TS(x) __attribute__((x))
#else
#define FARLIFT_TS(x)
#endif

#define GUARDED_BY(m) FARLIFT_TS(guarded_by(m))
#define REQUIRES(...) FARLIFT_TS(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) FARLIFT_TS(locks_excluded(__VA_ARGS__))

namespace farlift {

class FARLIFT_TS(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  void lock() FARLIFT_TS(acquire_capability()) { mutex_.lock(); }
  void unlock() FARLIFT_TS(release_capability()) { mutex_.unlock(); }
  bool try_lock() FARLIFT_TS(try_acquire_capability(true)) { return mutex_.try_lock(); }
  std::mutex& native() { return mutex_; }

 private:
  std::mutex mutex_;
};

class FARLIFT_TS(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& m) FARLIFT_TS(acquire_capability(m)) : mutex_(m) { mutex_.lock(); }
  ~MutexLock() FARLIFT_TS(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

class CondVar {
 public:
  // The mutex is held by the caller, released while waiting, and held again on return. Wakes may be
  // spurious.
  void wait(Mutex& m) REQUIRES(m) {
    std::unique_lock<std::mutex> lock(m.native(), std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when the time ran out.
  bool wait_for(Mutex& m, std::chrono::nanoseconds time) REQUIRES(m) {
    std::unique_lock<std::mutex> lock(m.native(), std::adopt_lock);
    const bool signalled = cv_.wait_for(lock, time) == std::cv_status::no_timeout;
    lock.release();
    return signalled;
  }
  void notify_one() { cv_.notify_one(); }
  void notify_all() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace farlift
