#include "s3/volume/volume.h"

#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <vector>

namespace farlift::s3::volume {
namespace {

constexpr std::uint64_t kNsPerS = 1'000'000'000;
constexpr std::size_t kCompareBytes = 1u << 20;

}  // namespace

std::uint64_t system_wall_clock() noexcept {
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
}

std::string Volume::data_name(VolumeId id) { return std::to_string(id.raw()) + ".dat"; }
std::string Volume::index_name(VolumeId id) { return std::to_string(id.raw()) + ".fli"; }

Status Volume::make_file(disk::Directory& directory, VolumeId id) {
  const std::string fresh = data_name(id) + ".new";
  TRY_ASSIGN(const auto file, directory.open(fresh, disk::OpenMode::create_empty));
  const Superblock super{id, secure_random_u64(), 0};
  TRY(file->write_at(encode_superblock(super), Offset(0)));
  TRY(file->sync());
  TRY(directory.rename(fresh, data_name(id)));
  return directory.sync();
}

Result<std::shared_ptr<Volume>> Volume::open(disk::Directory& directory, VolumeId id,
                                             const VolumeOptions& options, bool create) {
  std::shared_ptr<Volume> volume(new Volume(directory, id, options));
  Status loaded = volume->load();
  if (!loaded.ok() && loaded.error().code == Errc::not_found && create) {
    TRY(make_file(directory, id));
    loaded = volume->load();
  }
  if (!loaded.ok()) return loaded.error();
  return volume;
}

Status Volume::load() {
  auto opened = directory_.open(data_name(id_), disk::OpenMode::read_write);
  bool read_only = false;
  if (!opened.ok() && opened.code() == Errc::permission) {
    read_only = true;
    opened = directory_.open(data_name(id_), disk::OpenMode::read_only);
  }
  if (!opened.ok()) return opened.error();
  std::unique_ptr<disk::File> file = std::move(opened).value();
  std::array<std::byte, kSuperBytes> super_bytes;
  TRY(file->read_exactly_at(super_bytes, Offset(0)));
  TRY_ASSIGN(const Superblock super, decode_superblock(super_bytes));
  if (super.volume != id_) return Error::make(Errc::corrupt, "volume file of another number");
  TRY_ASSIGN(const Length size, file->size());
  auto index = load_index(directory_, index_name(id_), super);
  IndexImage start;
  bool short_file = false;
  if (index.ok() && index->covered <= size.raw()) {
    start = std::move(index).value();
  } else if (index.ok()) {
    short_file = true;  // what was durable is gone: somebody cut the file
    logf(LogLevel::error, "volume %u: the file ends %llu bytes early, needles are lost", id_.raw(),
         static_cast<unsigned long long>(index->covered - size.raw()));
  } else if (index.code() != Errc::not_found) {
    logf(LogLevel::warning, "volume %u: index not used (%s), reading the needles", id_.raw(),
         index.error().describe().c_str());
  }
  const std::uint64_t indexed = start.covered;
  TRY_ASSIGN(Recovered found, recover(*file, super, std::move(start)));
  if (found.torn > 0) {
    logf(LogLevel::warning, "volume %u: %llu bytes of an unfinished write cut off", id_.raw(),
         static_cast<unsigned long long>(found.torn));
    if (!read_only) TRY(file->resize(Length(found.image.covered)));
  }
  if (found.damaged > 0) {
    logf(LogLevel::error, "volume %u: %llu damaged places", id_.raw(),
         static_cast<unsigned long long>(found.damaged));
  }
  // What is indexed may have been read from memory only: durable before anybody hears of it.
  if (!read_only) TRY(file->sync());
  MutexLock append_lock(append_mutex_);
  MutexLock lock(index_mutex_);
  read_only_ = read_only;
  writable_ = !read_only;
  image_ = std::move(found.image);
  damaged_ = found.damaged + (short_file ? 1 : 0);
  saved_ = indexed;
  deletions_ = static_cast<std::uint64_t>(
      std::count_if(image_.index.begin(), image_.index.end(),
                    [](const auto& item) { return item.second.deleted; }));
  generation_ = std::make_shared<Generation>(std::move(file), super, options_.sync, image_.covered);
  return {};
}

Status Volume::check_writable_locked(Length length) {
  if (read_only_) return Error::make(Errc::unsupported, "the volume is read-only");
  if (lost_) return Error::make(Errc::io, "the volume needs a restart");
  std::shared_ptr<Generation> generation;
  std::uint64_t end = 0;
  {
    MutexLock lock(index_mutex_);
    generation = generation_;
    end = image_.covered;
  }
  TRY(generation->sync.health());
  if (end >= options_.size_max.raw() || length.raw() > options_.size_max.raw() - end)
    return Error::make(Errc::exhausted, "the volume is full");
  TRY_ASSIGN(const Length left, directory_.free_space());
  if (left.raw() < options_.keep_free.raw() || left.raw() - options_.keep_free.raw() < length.raw())
    return Error::make(Errc::exhausted, "the disk is full");
  return {};
}

Status Volume::check_writable(Length length) {
  MutexLock append_lock(append_mutex_);
  const Status status = check_writable_locked(length);
  MutexLock lock(index_mutex_);
  writable_ = status.ok();
  return status;
}

void Volume::set_read_only(bool on) {
  MutexLock append_lock(append_mutex_);
  read_only_ = on;
  MutexLock lock(index_mutex_);
  writable_ = !on;
}

Result<std::uint64_t> Volume::write_record(Generation& generation, std::uint64_t at,
                                           const RecordFrame& frame,
                                           std::span<const std::byte> data) {
  const std::array<std::span<const std::byte>, 3> pieces = {frame.head, data, frame.tail};
  const Status written = generation.file->write_at(pieces, Offset(at));
  if (!written.ok()) {
    // Whatever part of it is there must not be found by the next start.
    if (!generation.file->resize(Length(at)).ok()) {
      lost_ = true;
      return Error::make(Errc::aborted, "append", written.error().os);
    }
    return written.error();
  }
  const std::uint64_t end = at + frame.head.size() + data.size() + frame.tail.size();
  generation.sync.wrote(end);
  return end;
}

Status Volume::durable(Generation& generation, std::uint64_t end) {
  const Status synced = generation.sync.wait(end);
  if (!synced.ok()) {
    logf(LogLevel::error, "volume %u: %s; no writes until its file is rewritten", id_.raw(),
         synced.error().describe().c_str());
    return Error::make(Errc::aborted, "sync volume", synced.error().os);
  }
  return {};
}

Result<Stored> Volume::again(const Needle& there, const NeedleMeta& meta,
                             std::span<const std::byte> data, Crc32c crc) {
  const std::uint8_t mask = kFlagCompressed | kFlagManifest;
  bool same = there.length().raw() == data.size() && there.crc() == crc &&
              (there.flags() & mask) == (meta.flags & mask);
  std::vector<std::byte> buffer(std::min(kCompareBytes, data.size()));
  for (std::size_t at = 0; same && at < data.size(); at += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min(buffer.size(), data.size() - at));
    TRY(there.read(Offset(at), piece));
    same = std::memcmp(piece.data(), data.data() + at, piece.size()) == 0;
  }
  if (!same) return Error::make(Errc::already_exists, "another needle under this id");
  const std::uint64_t end = there.entry_.offset + there.entry_.record_bytes();
  TRY(durable(*there.generation_, end));
  return Stored{Length(data.size()), crc, true};
}

Result<Stored> Volume::append(const NeedleKey& key, const NeedleMeta& meta,
                              std::span<const std::byte> data, std::optional<Crc32c> expected) {
  if (data.empty() || data.size() > kDataMax || meta.name.size() > 255 || meta.mime.size() > 255)
    return Error::make(Errc::invalid_argument, "needle length");
  BlockCrcs crcs;
  const Crc32c crc = crc_by_blocks(data, crcs);
  if (expected && *expected != crc) return Error::make(Errc::checksum, "data of another CRC");
  std::shared_ptr<const BlockCrcs> blocks;
  if (crcs.size() > 1) blocks = std::make_shared<const BlockCrcs>(std::move(crcs));
  std::shared_ptr<Generation> generation;
  std::uint64_t end = 0;
  std::optional<Needle> there;
  {
    MutexLock append_lock(append_mutex_);
    std::uint64_t at = 0;
    {
      MutexLock lock(index_mutex_);
      generation = generation_;
      at = image_.covered;
      const auto found = image_.index.find(key.id);
      if (found != image_.index.end()) {
        if (found->second.deleted || found->second.cookie != key.cookie)
          return Error::make(Errc::already_exists, "needle id was used");
        there = Needle(shared_from_this(), generation_, key, found->second);
      }
    }
    if (!there) {
      TRY(check_writable_locked(Length(data.size())));
      const std::uint64_t now = options_.now();
      const RecordFrame frame =
          encode_record(generation->super, Offset(at), key, meta, Length(data.size()), crc, now);
      TRY_ASSIGN(end, write_record(*generation, at, frame, data));
      const std::span<const std::byte> head_bytes(frame.head);
      TRY_ASSIGN(const RecordHead head, decode_head(head_bytes));
      TRY_ASSIGN(const RecordTail tail,
                 decode_tail(generation->super, Offset(at), head, head_bytes, frame.tail));
      MutexLock lock(index_mutex_);
      apply(image_, at, head, tail);
      image_.index[key.id].blocks = std::move(blocks);
      image_.covered = end;
    }
  }
  if (there) return again(*there, meta, data, crc);
  TRY(durable(*generation, end));
  return Stored{Length(data.size()), crc, false};
}

Result<Length> Volume::remove(const NeedleKey& key) {
  std::shared_ptr<Generation> generation;
  std::uint64_t end = 0;
  Length length;
  {
    MutexLock append_lock(append_mutex_);
    if (read_only_) return Error::make(Errc::unsupported, "the volume is read-only");
    if (lost_) return Error::make(Errc::io, "the volume needs a restart");
    std::uint64_t at = 0;
    {
      MutexLock lock(index_mutex_);
      generation = generation_;
      at = image_.covered;
      const auto found = image_.index.find(key.id);
      if (found == image_.index.end() || found->second.deleted)
        return Error::make(Errc::not_found, "needle");
      if (found->second.cookie != key.cookie) return Error::make(Errc::permission, "needle cookie");
      length = Length(found->second.data_size);
    }
    TRY(generation->sync.health());
    const RecordFrame frame =
        encode_record(generation->super, Offset(at), key, {}, Length(0), Crc32c(), options_.now());
    TRY_ASSIGN(end, write_record(*generation, at, frame, {}));
    TRY_ASSIGN(const RecordHead head, decode_head(frame.head));
    TRY_ASSIGN(const RecordTail tail,
               decode_tail(generation->super, Offset(at), head, frame.head, frame.tail));
    MutexLock lock(index_mutex_);
    apply(image_, at, head, tail);
    image_.covered = end;
    ++deletions_;
  }
  TRY(durable(*generation, end));
  return length;
}

Result<Needle> Volume::find(const NeedleKey& key) {
  MutexLock lock(index_mutex_);
  const auto found = image_.index.find(key.id);
  if (found == image_.index.end() || found->second.deleted)
    return Error::make(Errc::not_found, "needle");
  if (found->second.cookie != key.cookie) return Error::make(Errc::permission, "needle cookie");
  return Needle(shared_from_this(), generation_, key, found->second);
}

std::shared_ptr<const BlockCrcs> Volume::blocks_of(const NeedleKey& key, std::uint64_t offset) {
  MutexLock lock(index_mutex_);
  const auto found = image_.index.find(key.id);
  if (found == image_.index.end() || found->second.offset != offset) return nullptr;
  return found->second.blocks;
}

void Volume::remember_blocks(const NeedleKey& key, std::uint64_t offset,
                             std::shared_ptr<const BlockCrcs> blocks) {
  MutexLock lock(index_mutex_);
  const auto found = image_.index.find(key.id);
  if (found != image_.index.end() && found->second.offset == offset)
    found->second.blocks = std::move(blocks);
}

void Volume::count_damage() noexcept {
  MutexLock lock(index_mutex_);
  ++damaged_;
}

Status Volume::save() {
  MutexLock upkeep(upkeep_mutex_);
  IndexImage image;
  std::shared_ptr<Generation> generation;
  {
    MutexLock append_lock(append_mutex_);
    if (read_only_ || lost_) return Error::make(Errc::unsupported, "the volume is read-only");
    MutexLock lock(index_mutex_);
    if (saved_ == image_.covered) return {};
    image = image_;
    generation = generation_;
  }
  TRY(durable(*generation, image.covered));
  TRY(save_index(directory_, index_name(id_), generation->super, image));
  MutexLock lock(index_mutex_);
  saved_ = image.covered;
  return {};
}

VolumeStats Volume::stats() const {
  MutexLock lock(index_mutex_);
  VolumeStats out;
  out.id = id_;
  out.deletions = deletions_;
  out.needles = image_.index.size() - deletions_;
  out.size = Length(image_.covered);
  out.garbage = Length(image_.garbage);
  out.revision = generation_->super.revision;
  out.sync_failed = !generation_->sync.health().ok();
  out.writable = writable_ && !out.sync_failed;
  out.syncs = generation_->sync.syncs();
  out.damaged = damaged_;
  out.unindexed = image_.covered - std::min(saved_, image_.covered);
  return out;
}

}  // namespace farlift::s3::volume
