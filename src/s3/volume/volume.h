// Volume: one file of needles, appended to and never changed in place.
//
//   TRY_ASSIGN(auto volume, Volume::open(directory, VolumeId(3), options, clock));
//   TRY_ASSIGN(const Stored stored, volume->append(key, meta, data, {}));   // durable when ok
//   TRY_ASSIGN(const Needle needle, volume->find(key));
//   TRY(needle.read(0, buffer));                                             // checked bytes
//
// Invariants
//   Durable:   append() and remove() return ok only when a crash at any later moment leaves their
//              effect in place (GroupSync, recovery.h).
//   Immutable: a needle's bytes never change. Appending the same bytes under the same key again is
//              the first append; other bytes, or a key that was deleted, are refused.
//   Checked:   no byte leaves by Needle::read() that was not compared with a CRC.
//   All or nothing: an append that failed is not in the file (it is cut off again), except where
//              the error is that of a sync: then nobody knows, and the volume takes no more writes
//              until compact() has made everything durable in a new file.
//
// Threads: any. A Needle keeps the file it points into alive through compaction and deletion.
// Errors:  not_found; permission (another cookie: a wrong fid never gives bytes); already_exists;
//          exhausted (disk or volume full, kept reserve); unsupported (the volume is read-only);
//          checksum; io and the disk's own. aborted, from append() and remove() only: whether it is
//          done is not known; with every other code it certainly is not.
#pragma once

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/disk/disk.h"
#include "s3/volume/group_sync.h"
#include "s3/volume/index.h"
#include "s3/volume/recovery.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace farlift::s3::volume {

// Nanoseconds since 1970; what records carry.
using WallClock = std::function<std::uint64_t()>;
std::uint64_t system_wall_clock() noexcept;

struct VolumeOptions {
  SyncRule sync = SyncRule::batch;
  Length size_max{30ull << 30};            // a longer volume takes no more appends
  Length keep_free{64u << 20};             // of the disk: deletions must stay possible
  std::uint32_t deletion_memory_s = 3600;  // compaction forgets older deletions
  WallClock now = system_wall_clock;
};

// A file and its sync; replaced as a whole by compaction.
struct Generation {
  Generation(std::unique_ptr<disk::File> f, const Superblock& s, SyncRule rule,
             std::uint64_t durable)
      : file(std::move(f)), super(s), sync(*file, rule, durable) {}
  const std::unique_ptr<disk::File> file;
  const Superblock super;
  GroupSync sync;
};

class Volume;

class Needle {
 public:
  const NeedleKey& key() const noexcept { return key_; }
  Length length() const noexcept { return Length(entry_.data_size); }
  Crc32c crc() const noexcept { return entry_.crc; }
  std::uint8_t flags() const noexcept { return entry_.flags; }
  std::uint32_t append_s() const noexcept { return entry_.append_s; }
  bool plain() const noexcept { return (entry_.flags & (kFlagCompressed | kFlagManifest)) == 0; }

  // Fills `into` with the data from `offset`, each byte checked, and returns the CRC of `into`.
  // out_of_range; checksum: the data is damaged, `into` is then undefined.
  Result<Crc32c> read(Offset offset, std::span<std::byte> into) const;
  // Reads all of the data, now, and compares.
  Status verify() const;
  Result<NeedleMeta> meta() const;

 private:
  friend class Volume;
  Needle(std::shared_ptr<Volume> volume, std::shared_ptr<Generation> generation, NeedleKey key,
         Entry entry)
      : volume_(std::move(volume)),
        generation_(std::move(generation)),
        key_(key),
        entry_(std::move(entry)) {}
  std::uint64_t data_at() const noexcept { return entry_.offset + kHeaderBytes + kDataSizeBytes; }
  Result<std::shared_ptr<const BlockCrcs>> blocks() const;
  Result<std::shared_ptr<const BlockCrcs>> verified() const;
  Result<Crc32c> read_edge(const BlockCrcs& blocks, std::uint64_t offset,
                           std::span<std::byte> into) const;
  Result<Crc32c> read_whole(const BlockCrcs& blocks, std::uint64_t first,
                            std::span<std::byte> into) const;
  Error damaged() const;

  std::shared_ptr<Volume> volume_;
  std::shared_ptr<Generation> generation_;
  NeedleKey key_;
  Entry entry_;
};

struct Stored {
  Length length;
  Crc32c crc;
  bool was_there = false;  // the same bytes had been appended before
};

struct VolumeStats {
  VolumeId id;
  std::uint64_t needles = 0;
  std::uint64_t deletions = 0;
  Length size;     // of the file
  Length garbage;  // what compaction would give back
  std::uint16_t revision = 0;
  bool writable = false;
  bool sync_failed = false;  // compact() heals it
  std::uint64_t syncs = 0;
  std::uint64_t damaged = 0;    // seen at the start or by a read
  std::uint64_t unindexed = 0;  // bytes that the index file does not cover
};

class Volume : public std::enable_shared_from_this<Volume> {
 public:
  // Opens the volume's file, or makes one when `create`. `directory` outlives the volume.
  static Result<std::shared_ptr<Volume>> open(disk::Directory& directory, VolumeId id,
                                              const VolumeOptions& options, bool create);
  static std::string data_name(VolumeId id);
  static std::string index_name(VolumeId id);
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  VolumeId id() const noexcept { return id_; }
  // checksum: `data` does not have the CRC that was expected. invalid_argument: no data, or more
  // than the layout holds.
  Result<Stored> append(const NeedleKey& key, const NeedleMeta& meta,
                        std::span<const std::byte> data, std::optional<Crc32c> expected);
  // The length of what was deleted.
  Result<Length> remove(const NeedleKey& key);
  Result<Needle> find(const NeedleKey& key);
  // Ok when append() of that much would be tried.
  Status check_writable(Length length);
  void set_read_only(bool on);

  // Writes the index file. Everything it covers is synced before.
  Status save();
  // Copies what lives to a new file and puts it in place; also what heals a failed sync.
  Status compact();

  VolumeStats stats() const;

 private:
  friend class Needle;
  struct Compaction;
  Volume(disk::Directory& directory, VolumeId id, VolumeOptions options)
      : directory_(directory), id_(id), options_(std::move(options)) {}
  static Status make_file(disk::Directory& directory, VolumeId id);
  Status load();

  Status check_writable_locked(Length length) REQUIRES(append_mutex_);
  // Where the record ends.
  Result<std::uint64_t> write_record(Generation& generation, std::uint64_t at,
                                     const RecordFrame& frame, std::span<const std::byte> data)
      REQUIRES(append_mutex_);
  Result<Stored> again(const Needle& there, const NeedleMeta& meta, std::span<const std::byte> data,
                       Crc32c crc);
  Status durable(Generation& generation, std::uint64_t end);
  std::shared_ptr<const BlockCrcs> blocks_of(const NeedleKey& key, std::uint64_t offset);
  void remember_blocks(const NeedleKey& key, std::uint64_t offset,
                       std::shared_ptr<const BlockCrcs> blocks);
  void count_damage() noexcept;
  Status copy_live(Compaction& work) EXCLUDES(append_mutex_, index_mutex_);
  Status copy_rest(Compaction& work) REQUIRES(append_mutex_);
  Status copy_record(Compaction& work, std::uint64_t id, const Entry& entry);
  Status put_in_place(Compaction& work) REQUIRES(append_mutex_);

  disk::Directory& directory_;
  const VolumeId id_;
  const VolumeOptions options_;

  // Before append_mutex_: one compaction, one save at a time.
  Mutex upkeep_mutex_;
  // Appends go one after the other; before index_mutex_.
  Mutex append_mutex_;
  bool read_only_ GUARDED_BY(append_mutex_) = false;
  // A rename that may or may not survive a crash: nothing can be promised any more.
  bool lost_ GUARDED_BY(append_mutex_) = false;

  mutable Mutex index_mutex_;
  std::shared_ptr<Generation> generation_ GUARDED_BY(index_mutex_);
  IndexImage image_ GUARDED_BY(index_mutex_);         // covered: the end of the file
  std::uint64_t saved_ GUARDED_BY(index_mutex_) = 0;  // what the index file covers
  std::uint64_t deletions_ GUARDED_BY(index_mutex_) = 0;
  std::uint64_t damaged_ GUARDED_BY(index_mutex_) = 0;
  bool writable_ GUARDED_BY(index_mutex_) = true;  // as last seen, for stats()
};

// The CRCs of a needle's blocks, and that of all of it.
Crc32c crc_by_blocks(std::span<const std::byte> data, BlockCrcs& blocks);

}  // namespace farlift::s3::volume
