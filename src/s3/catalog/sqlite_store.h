// SqliteStore: the catalog in one SQLite file (WAL). One connection writes, others read.
//
// Invariants: one process has the file open at a time (a lock beside it), since leases live in
// memory. Fids
//             that were reserved when a process ended are garbage for the next.
// Threads:    any. Errors: as store.h; open: busy (another process has it).
#pragma once

#include "s3/catalog/store.h"

#include <functional>
#include <memory>
#include <string>

namespace farlift::s3::catalog {

struct SqliteOptions {
  std::string path;              // of the file; made when missing
  bool sync_each_commit = true;  // false: a power failure may take the last commits, in order
  // Milliseconds since the epoch.
  std::function<std::int64_t()> now;
  // A fid that may still be written to is deleted a second time after this long.
  std::int64_t doubt_ms = 60'000;
  std::int64_t retry_ms = 5'000;  // after postpone()
};

Result<std::unique_ptr<Store>> open_sqlite_store(SqliteOptions options);

}  // namespace farlift::s3::catalog
