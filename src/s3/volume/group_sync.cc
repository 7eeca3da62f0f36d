#include "s3/volume/group_sync.h"

#include <algorithm>

namespace farlift::s3::volume {

void GroupSync::wrote(std::uint64_t end) {
  MutexLock lock(mutex_);
  written_ = std::max(written_, end);
}

Status GroupSync::sync_alone() {
  std::uint64_t target = 0;
  {
    MutexLock lock(mutex_);
    if (superseded_) return {};
    if (failed_) return *failed_;
    target = written_;
  }
  const Status done = file_.sync();
  MutexLock lock(mutex_);
  ++syncs_;
  if (superseded_) return {};
  if (!done.ok()) {
    if (!failed_) failed_ = done.error();
    return *failed_;
  }
  // Another thread's sync may have consumed the error of ours.
  if (failed_) return *failed_;
  synced_ = std::max(synced_, target);
  return {};
}

Status GroupSync::wait(std::uint64_t end) {
  if (rule_ == SyncRule::always) return sync_alone();
  std::uint64_t target = 0;
  {
    MutexLock lock(mutex_);
    for (;;) {
      if (superseded_ || synced_ >= end) return {};
      if (failed_) return *failed_;
      if (!syncing_) break;
      changed_.wait(mutex_);
    }
    syncing_ = true;
    target = written_;
  }
  const Status done = file_.sync();
  MutexLock lock(mutex_);
  syncing_ = false;
  ++syncs_;
  if (done.ok()) {
    synced_ = std::max(synced_, target);
  } else if (!superseded_) {
    failed_ = done.error();
  }
  changed_.notify_all();
  if (superseded_ || synced_ >= end) return {};
  return failed_ ? *failed_ : Error::make(Errc::internal, "sync before write");
}

void GroupSync::superseded() {
  MutexLock lock(mutex_);
  superseded_ = true;
  changed_.notify_all();
}

Status GroupSync::health() const {
  MutexLock lock(mutex_);
  if (failed_ && !superseded_) return *failed_;
  return {};
}

std::uint64_t GroupSync::syncs() const {
  MutexLock lock(mutex_);
  return syncs_;
}

}  // namespace farlift::s3::volume
