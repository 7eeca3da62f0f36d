// GroupSync: many writers of one file wait for one sync. Whoever comes first syncs for all whose
// bytes are written by then; the others wait for it or for the next.
//
// Invariants: wait(end) is ok only after a sync of the file that began when all bytes before `end`
//             were written has succeeded, or after superseded(). A failed sync is final: everything
//             not durable by then fails, now and later, until superseded() (core/disk/disk.h).
// Threads:    any. Errors: wait: that of the sync that failed.
#pragma once

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/disk/disk.h"

#include <cstdint>
#include <optional>

namespace farlift::s3::volume {

enum class SyncRule : std::uint8_t {
  always,  // a sync for each write
  batch,   // a sync for all writes that wait
};

class GroupSync {
 public:
  // Everything before `durable` is on disk already.
  GroupSync(disk::File& file, SyncRule rule, std::uint64_t durable) noexcept
      : file_(file), rule_(rule), written_(durable), synced_(durable) {}

  void wrote(std::uint64_t end);  // all bytes before `end` are written
  Status wait(std::uint64_t end);
  // All that was written here is durable somewhere else.
  void superseded();
  Status health() const;  // the failure, once there was one
  std::uint64_t syncs() const;

 private:
  Status sync_alone();
  disk::File& file_;
  const SyncRule rule_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::uint64_t written_ GUARDED_BY(mutex_);
  std::uint64_t synced_ GUARDED_BY(mutex_);
  std::uint64_t syncs_ GUARDED_BY(mutex_) = 0;
  bool syncing_ GUARDED_BY(mutex_) = false;
  bool superseded_ GUARDED_BY(mutex_) = false;
  std::optional<Error> failed_ GUARDED_BY(mutex_);
};

}  // namespace farlift::s3::volume
