// Volume::compact(): what lives is copied to a new file, which then takes the old one's name. Most
// of it while appends go on; what was appended or deleted meanwhile is carried over at the end,
// with appends held.
#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "s3/volume/volume.h"

#include <algorithm>
#include <array>
#include <vector>

namespace farlift::s3::volume {
namespace {

constexpr std::size_t kCopyBytes = 1u << 20;
constexpr std::uint64_t kNsPerS = 1'000'000'000;

}  // namespace

struct Volume::Compaction {
  std::shared_ptr<Generation> from;
  std::unique_ptr<disk::File> file;
  Superblock super;
  std::uint64_t end = kSuperBytes;
  std::uint64_t seen_end = 0;  // of the old file when the copying began
  std::uint32_t forget_before_s = 0;
  IndexImage image;  // of the new file
  std::vector<std::byte> buffer = std::vector<std::byte>(kCopyBytes);
  std::uint64_t damaged = 0;

  std::string name;
};

// A record with new position and check, and the same data, bytes and CRC both, even where they do
// not fit each other: damage stays damage.
Status Volume::copy_record(Compaction& work, std::uint64_t id, const Entry& entry) {
  const NeedleKey key{id, entry.cookie};
  NeedleMeta meta;
  std::uint64_t append_ns = entry.append_s * kNsPerS;
  auto record = read_record(*work.from->file, work.from->super, entry.offset,
                            entry.offset + entry.record_bytes(), false);
  if (record.ok() && record->head.key == key && record->head.size == entry.size) {
    meta = record->tail.meta;
    append_ns = record->tail.append_ns;
  } else if (!record.ok() && record.code() != Errc::corrupt) {
    return record.error();
  } else {
    // The index knows where the data is and what CRC it must have; its name and type are lost.
    ++work.damaged;
    meta.flags = entry.flags & (kFlagCompressed | kFlagManifest);
  }
  const RecordFrame frame = encode_record(work.super, Offset(work.end), key, meta,
                                          Length(entry.data_size), entry.crc, append_ns);
  TRY(work.file->write_at(frame.head, Offset(work.end)));
  const std::uint64_t source = entry.offset + kHeaderBytes + kDataSizeBytes;
  const std::uint64_t target = work.end + frame.head.size();
  digest::Crc32cStream crc;
  for (std::uint64_t at = 0; at < entry.data_size;) {
    const auto piece =
        std::span(work.buffer)
            .first(std::min<std::uint64_t>(work.buffer.size(), entry.data_size - at));
    TRY(work.from->file->read_exactly_at(piece, Offset(source + at)));
    crc.update(piece);
    TRY(work.file->write_at(piece, Offset(target + at)));
    at += piece.size();
  }
  if (crc.value() != entry.crc) ++work.damaged;
  TRY(work.file->write_at(frame.tail, Offset(target + entry.data_size)));
  TRY_ASSIGN(const RecordHead head, decode_head(frame.head));
  TRY_ASSIGN(const RecordTail tail,
             decode_tail(work.super, Offset(work.end), head, frame.head, frame.tail));
  apply(work.image, work.end, head, tail);
  work.image.index[id].blocks = entry.blocks;
  work.end += head.record_bytes();
  work.image.covered = work.end;
  return {};
}

Status Volume::copy_live(Compaction& work) {
  std::vector<std::pair<std::uint64_t, Entry>> live;
  {
    MutexLock lock(index_mutex_);
    for (const auto& [id, entry] : image_.index) {
      if (!entry.deleted || entry.append_s >= work.forget_before_s) live.emplace_back(id, entry);
    }
  }
  std::sort(live.begin(), live.end(),
            [](const auto& a, const auto& b) { return a.second.offset < b.second.offset; });
  for (const auto& [id, entry] : live) TRY(copy_record(work, id, entry));
  // Most of the waiting, while appends go on.
  return work.file->sync();
}

Status Volume::copy_rest(Compaction& work) {
  std::vector<std::pair<std::uint64_t, Entry>> rest;
  {
    MutexLock lock(index_mutex_);
    for (const auto& [id, entry] : image_.index) {
      const auto copied = work.image.index.find(id);
      const bool there = copied != work.image.index.end();
      // New since, or deleted since: the deletion of a copied needle must be told.
      if (there ? entry.deleted != copied->second.deleted
                : !entry.deleted || entry.append_s >= work.forget_before_s)
        rest.emplace_back(id, entry);
    }
  }
  std::sort(rest.begin(), rest.end(),
            [](const auto& a, const auto& b) { return a.second.offset < b.second.offset; });
  for (const auto& [id, entry] : rest) TRY(copy_record(work, id, entry));
  return work.file->sync();
}

Status Volume::put_in_place(Compaction& work) {
  TRY(directory_.rename(work.name, data_name(id_)));
  auto fresh = std::make_shared<Generation>(std::move(work.file), work.super, options_.sync,
                                            work.image.covered);
  const Status named = directory_.sync();
  // After a crash the name may stand for either file: appends to one of them could be lost.
  if (!named.ok()) lost_ = true;
  MutexLock lock(index_mutex_);
  for (auto& [id, entry] : work.image.index) {
    const auto old = image_.index.find(id);
    if (old != image_.index.end() && old->second.blocks != nullptr)
      entry.blocks = old->second.blocks;
  }
  image_ = std::move(work.image);
  saved_ = kSuperBytes;
  deletions_ = static_cast<std::uint64_t>(
      std::count_if(image_.index.begin(), image_.index.end(),
                    [](const auto& item) { return item.second.deleted; }));
  // Whoever waits for the old file's sync has what they wait for in the new one.
  if (named.ok()) generation_->sync.superseded();
  generation_ = std::move(fresh);
  return named;
}

Status Volume::compact() {
  Compaction work;
  {
    MutexLock upkeep(upkeep_mutex_);
    {
      MutexLock append_lock(append_mutex_);
      if (read_only_ || lost_) return Error::make(Errc::unsupported, "the volume is read-only");
      MutexLock lock(index_mutex_);
      work.from = generation_;
      work.seen_end = image_.covered;
    }
    const auto now_s = static_cast<std::uint32_t>(options_.now() / kNsPerS);
    work.forget_before_s = now_s - std::min(now_s, options_.deletion_memory_s);
    work.super = {id_, secure_random_u64(),
                  static_cast<std::uint16_t>(work.from->super.revision + 1)};
    work.name = data_name(id_) + ".new";
    TRY_ASSIGN(work.file, directory_.open(work.name, disk::OpenMode::create_empty));
    Status copied = work.file->write_at(encode_superblock(work.super), Offset(0));
    if (copied.ok()) copied = copy_live(work);
    if (copied.ok()) {
      MutexLock append_lock(append_mutex_);
      copied = copy_rest(work);
      if (copied.ok()) copied = put_in_place(work);
    }
    if (!copied.ok()) {
      directory_.remove(work.name).ignore();  // the next compaction empties it anyhow
      return copied;
    }
    if (work.damaged > 0) {
      logf(LogLevel::error, "volume %u: %llu damaged needles carried over", id_.raw(),
           static_cast<unsigned long long>(work.damaged));
    }
  }
  return save();
}

}  // namespace farlift::s3::volume
