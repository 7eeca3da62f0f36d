#include "core/base/log.h"
#include "core/digest/crc32c.h"
#include "s3/volume/volume.h"

#include <algorithm>
#include <array>
#include <vector>

namespace farlift::s3::volume {
namespace {

// Read and checked while still in the cache.
constexpr std::size_t kStrideBytes = 1u << 20;
static_assert(kStrideBytes % kBlockBytes == 0);

}  // namespace

Crc32c crc_by_blocks(std::span<const std::byte> data, BlockCrcs& blocks) {
  Crc32c all;
  for (std::size_t at = 0; at < data.size(); at += kBlockBytes) {
    const auto block = data.subspan(at, std::min<std::size_t>(kBlockBytes, data.size() - at));
    blocks.push_back(digest::crc32c(block));
    all = digest::crc32c_combine(all, blocks.back(), Length(block.size()));
  }
  return all;
}

Error Needle::damaged() const {
  logf(LogLevel::error, "volume %u: needle %llx at %llu is damaged", volume_->id().raw(),
       static_cast<unsigned long long>(key_.id), static_cast<unsigned long long>(entry_.offset));
  volume_->count_damage();
  return Error::make(Errc::checksum, "needle data");
}

Result<std::shared_ptr<const BlockCrcs>> Needle::blocks() const {
  if (entry_.data_size <= kBlockBytes) return std::make_shared<const BlockCrcs>(1, entry_.crc);
  if (entry_.blocks != nullptr) return entry_.blocks;
  return verified();
}

Result<std::shared_ptr<const BlockCrcs>> Needle::verified() const {
  if (auto known = volume_->blocks_of(key_, entry_.offset)) return known;
  auto blocks = std::make_shared<BlockCrcs>();
  std::vector<std::byte> buffer(std::min<std::size_t>(kStrideBytes, entry_.data_size));
  Crc32c all;
  for (std::uint64_t at = 0; at < entry_.data_size;) {
    const auto piece =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), entry_.data_size - at));
    const Status got = generation_->file->read_exactly_at(piece, Offset(data_at() + at));
    if (!got.ok()) return got.error().code == Errc::corrupt ? damaged() : got.error();
    all = digest::crc32c_combine(all, crc_by_blocks(piece, *blocks), Length(piece.size()));
    at += piece.size();
  }
  if (all != entry_.crc) return damaged();
  std::shared_ptr<const BlockCrcs> shared = std::move(blocks);
  volume_->remember_blocks(key_, entry_.offset, shared);
  return shared;
}

Status Needle::verify() const {
  std::vector<std::byte> buffer(std::min<std::size_t>(kStrideBytes, entry_.data_size));
  for (std::uint64_t at = 0; at < entry_.data_size; at += buffer.size()) {
    const auto piece =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), entry_.data_size - at));
    TRY(read(Offset(at), piece));
  }
  return {};
}

// Part of one block: read whole, checked, and cut out.
Result<Crc32c> Needle::read_edge(const BlockCrcs& blocks, std::uint64_t offset,
                                 std::span<std::byte> into) const {
  const std::uint64_t block = offset / kBlockBytes;
  const std::uint64_t begin = block * kBlockBytes;
  const std::uint64_t length = std::min<std::uint64_t>(kBlockBytes, entry_.data_size - begin);
  std::vector<std::byte> buffer(length);
  const Status got = generation_->file->read_exactly_at(buffer, Offset(data_at() + begin));
  if (!got.ok()) return got.error().code == Errc::corrupt ? damaged() : got.error();
  if (digest::crc32c(buffer) != blocks[block]) return damaged();
  return digest::crc32c_copy(
      into, std::span<const std::byte>(buffer).subspan(offset - begin, into.size()));
}

// Whole blocks from number `first` on, the needle's last and short one among them.
Result<Crc32c> Needle::read_whole(const BlockCrcs& blocks, std::uint64_t first,
                                  std::span<std::byte> into) const {
  Crc32c all;
  for (std::size_t at = 0; at < into.size(); at += kStrideBytes) {
    const auto piece = into.subspan(at, std::min<std::size_t>(kStrideBytes, into.size() - at));
    const Status got =
        generation_->file->read_exactly_at(piece, Offset(data_at() + first * kBlockBytes + at));
    if (!got.ok()) return got.error().code == Errc::corrupt ? damaged() : got.error();
    BlockCrcs seen;
    const Crc32c crc = crc_by_blocks(piece, seen);
    const auto expected = blocks.begin() + static_cast<std::ptrdiff_t>(first + at / kBlockBytes);
    if (!std::equal(seen.begin(), seen.end(), expected)) return damaged();
    all = digest::crc32c_combine(all, crc, Length(piece.size()));
  }
  return all;
}

Result<Crc32c> Needle::read(Offset offset, std::span<std::byte> into) const {
  if (!fits(offset, Length(into.size()), length()))
    return Error::make(Errc::out_of_range, "needle range");
  if (into.empty()) return Crc32c();
  TRY_ASSIGN(const auto known, blocks());
  Crc32c all;
  std::uint64_t at = offset.raw();
  const std::uint64_t end = at + into.size();
  while (at < end) {
    const std::uint64_t block_end =
        std::min<std::uint64_t>((at / kBlockBytes + 1) * kBlockBytes, entry_.data_size);
    const auto rest = into.last(end - at);
    std::uint64_t length = 0;
    Result<Crc32c> crc = Crc32c();
    if (at % kBlockBytes != 0 || end < block_end) {
      length = std::min(end, block_end) - at;
      crc = read_edge(*known, at, rest.first(length));
    } else {
      // As many whole blocks as there are.
      length = end == entry_.data_size ? end - at : (end - at) / kBlockBytes * kBlockBytes;
      crc = read_whole(*known, at / kBlockBytes, rest.first(length));
    }
    if (!crc.ok()) return crc;
    all = digest::crc32c_combine(all, *crc, Length(length));
    at += length;
  }
  return all;
}

Result<NeedleMeta> Needle::meta() const {
  NeedleMeta plain_meta;
  plain_meta.flags = entry_.flags & (kFlagCompressed | kFlagManifest);
  if ((entry_.flags & (kFlagName | kFlagMime)) == 0) return plain_meta;
  const std::uint64_t end = entry_.offset + entry_.record_bytes();
  auto record = read_record(*generation_->file, generation_->super, entry_.offset, end, false);
  if (!record.ok()) return record.code() == Errc::corrupt ? damaged() : record.error();
  return record->tail.meta;
}

}  // namespace farlift::s3::volume
