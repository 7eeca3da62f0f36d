// Store: all volumes of one directory, and the thread that looks after them: it writes index files,
// compacts, and rewrites a volume whose sync failed.
//
// Invariants: one process has the directory open at a time; a volume file that cannot be used does
//             not keep the others from serving.
// Threads:    any.
// Errors:     open: busy (another process), those of the disk. find: not_found. assign:
//             exhausted (kVolumesMax), those of the disk.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/disk/disk.h"
#include "s3/volume/volume.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace farlift::s3::volume {

inline constexpr std::size_t kVolumesMax = 4096;

struct StoreOptions {
  VolumeOptions volume;
  // Compact when this many hundredths of a file are garbage; 0: never by itself.
  std::uint32_t compact_percent = 30;
  Length compact_min{16u << 20};  // and at least this much is
  Length index_every{64u << 20};  // appended bytes that a start would have to read
  Duration upkeep_every = std::chrono::seconds(5);  // zero: nothing happens by itself
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(std::unique_ptr<disk::Directory> directory,
                                             StoreOptions options);
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  ~Store();  // close()

  Result<std::shared_ptr<Volume>> find(VolumeId id) const;
  // The volume, made if there is none.
  Result<std::shared_ptr<Volume>> assign(VolumeId id);
  std::vector<std::shared_ptr<Volume>> volumes() const;  // by id
  Result<Length> free_space() { return directory_->free_space(); }
  const disk::DirectoryInfo& disk() const noexcept { return directory_->info(); }
  // Files that look like volumes and could not be used.
  std::size_t broken() const noexcept { return broken_; }

  // What the thread does now and then, now.
  void upkeep();
  // Ends the thread and writes the index files. No volume must be in use any more for it to be the
  // last word; nothing breaks otherwise.
  void close();

 private:
  Store(std::unique_ptr<disk::Directory> directory, StoreOptions options)
      : directory_(std::move(directory)), options_(std::move(options)) {}
  Status load();
  void look_after(Volume& volume);
  void run();

  const std::unique_ptr<disk::Directory> directory_;
  const StoreOptions options_;
  std::size_t broken_ = 0;  // set by open()

  mutable Mutex mutex_;
  std::map<VolumeId, std::shared_ptr<Volume>> volumes_ GUARDED_BY(mutex_);

  Mutex stop_mutex_;
  CondVar stopped_;
  bool stopping_ GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace farlift::s3::volume
