#include "s3/volume/index.h"

#include "core/codec/bytes.h"
#include "core/digest/crc32c.h"

namespace farlift::s3::volume {
namespace {

constexpr std::uint64_t kMagic = 0x464c4e4944583031;  // "FLNIDX01"
constexpr std::size_t kHeadBytes = 56;
constexpr std::size_t kEntryBytes = 40;
constexpr std::size_t kCrcBytes = 4;
constexpr std::uint64_t kEntriesMax = std::uint64_t{1} << 32;

bool put_entry(codec::Writer& w, std::uint64_t id, const Entry& e) noexcept {
  return w.u64_le(id).ok() && w.u64_le(e.offset).ok() && w.u32_le(e.cookie).ok() &&
         w.u32_le(e.size).ok() && w.u32_le(e.data_size).ok() && w.u32_le(e.crc.raw()).ok() &&
         w.u32_le(e.append_s).ok() && w.u8(e.flags).ok() && w.u8(e.deleted ? 1 : 0).ok() &&
         w.zeros(2).ok();
}

Status get_entry(codec::Reader& r, const IndexImage& image, std::uint64_t* id, Entry* e) {
  TRY_ASSIGN(*id, r.u64_le());
  TRY_ASSIGN(e->offset, r.u64_le());
  TRY_ASSIGN(e->cookie, r.u32_le());
  TRY_ASSIGN(e->size, r.u32_le());
  TRY_ASSIGN(e->data_size, r.u32_le());
  TRY_ASSIGN(const std::uint32_t crc, r.u32_le());
  e->crc = Crc32c(crc);
  TRY_ASSIGN(e->append_s, r.u32_le());
  TRY_ASSIGN(e->flags, r.u8());
  TRY_ASSIGN(const std::uint8_t deleted, r.u8());
  TRY(r.skip(2));
  e->deleted = deleted != 0;
  const bool lengths_fit = e->deleted
                               ? e->size == 0 && e->data_size == 0
                               : e->data_size > 0 && e->data_size <= kDataMax &&
                                     e->size > kDataSizeBytes + std::uint64_t{e->data_size} &&
                                     e->size - e->data_size - kDataSizeBytes <= kMetaMax;
  if (!lengths_fit || e->offset % kAlign != 0 || e->offset < kSuperBytes ||
      e->offset >= image.covered || e->record_bytes() > image.covered - e->offset)
    return Error::make(Errc::corrupt, "index entry");
  return {};
}

}  // namespace

Status save_index(disk::Directory& directory, const std::string& name, const Superblock& super,
                  const IndexImage& image) {
  std::vector<std::byte> bytes(kHeadBytes + image.index.size() * kEntryBytes + kCrcBytes);
  codec::Writer w(bytes);
  bool fits = w.u64_be(kMagic).ok() && w.u32_le(super.volume.raw()).ok() &&
              w.u16_le(super.revision).ok() && w.zeros(2).ok() && w.u64_le(super.salt).ok() &&
              w.u64_le(image.covered).ok() && w.u64_le(image.garbage).ok() &&
              w.u64_le(image.index.size()).ok() && w.zeros(8).ok();
  for (const auto& [id, entry] : image.index) fits = fits && put_entry(w, id, entry);
  fits = fits && w.u32_le(digest::crc32c(w.written()).raw()).ok();
  ASSERT(fits && w.left() == 0);
  const std::string fresh = name + ".new";
  TRY_ASSIGN(const auto file, directory.open(fresh, disk::OpenMode::create_empty));
  TRY(file->write_at(bytes, Offset(0)));
  TRY(file->sync());
  TRY(directory.rename(fresh, name));
  return directory.sync();
}

Result<IndexImage> load_index(disk::Directory& directory, const std::string& name,
                              const Superblock& super) {
  TRY_ASSIGN(const auto file, directory.open(name, disk::OpenMode::read_only));
  TRY_ASSIGN(const Length size, file->size());
  if (size.raw() < kHeadBytes + kCrcBytes ||
      (size.raw() - kHeadBytes - kCrcBytes) % kEntryBytes != 0 ||
      size.raw() / kEntryBytes > kEntriesMax)
    return Error::make(Errc::corrupt, "index length");
  std::vector<std::byte> bytes(size.raw());
  TRY(file->read_exactly_at(bytes, Offset(0)));
  const std::span<const std::byte> all(bytes);
  const std::span<const std::byte> body = all.first(all.size() - kCrcBytes);
  codec::Reader check(all.last(kCrcBytes));
  TRY_ASSIGN(const std::uint32_t crc, check.u32_le());
  if (digest::crc32c(body) != Crc32c(crc)) return Error::make(Errc::corrupt, "index check");
  codec::Reader r(body);
  IndexImage image;
  TRY_ASSIGN(const std::uint64_t magic, r.u64_be());
  TRY_ASSIGN(const std::uint32_t volume, r.u32_le());
  TRY_ASSIGN(const std::uint16_t revision, r.u16_le());
  TRY(r.skip(2));
  TRY_ASSIGN(const std::uint64_t salt, r.u64_le());
  TRY_ASSIGN(image.covered, r.u64_le());
  TRY_ASSIGN(image.garbage, r.u64_le());
  TRY_ASSIGN(const std::uint64_t count, r.u64_le());
  TRY(r.skip(8));
  if (magic != kMagic || volume != super.volume.raw() || revision != super.revision ||
      salt != super.salt || count != r.left() / kEntryBytes)
    return Error::make(Errc::corrupt, "index of another file");
  image.index.reserve(count);
  while (!r.at_end()) {
    std::uint64_t id = 0;
    Entry entry;
    TRY(get_entry(r, image, &id, &entry));
    if (!image.index.emplace(id, entry).second) return Error::make(Errc::corrupt, "index entry");
  }
  return image;
}

}  // namespace farlift::s3::volume
