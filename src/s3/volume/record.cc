#include "s3/volume/record.h"

#include "core/codec/bytes.h"
#include "core/digest/crc32c.h"

#include <algorithm>

namespace farlift::s3::volume {
namespace {

constexpr std::uint8_t kLayoutVersion = 3;
constexpr std::uint8_t kExtraTag = 15u << 3 | 2;  // a field that other readers do not know
constexpr std::uint8_t kExtraVersion = 1;
constexpr std::size_t kExtraBytes = 24;  // tag and length included
constexpr std::array<std::byte, 4> kMagic = {std::byte{'F'}, std::byte{'L'}, std::byte{'F'},
                                             std::byte{'T'}};
constexpr std::size_t kCheckBytes = 4;
constexpr std::size_t kLastModifiedBytes = 5;
constexpr std::uint64_t kNsPerS = 1'000'000'000;
static_assert(kSuperBytes == 8 + kExtraBytes && kSuperBytes % kAlign == 0);

// 1 to 8: the layout never pads with nothing.
constexpr std::size_t padding_of(std::uint64_t size) noexcept {
  return kAlign - (kHeaderBytes + size + kTrailerBytes) % kAlign;
}
static_assert(padding_of(0) >= kCheckBytes, "a deletion has room for its check");

Crc32c check_of(const Superblock& super, Offset at, std::span<const std::byte> head,
                std::span<const std::byte> tail_before_padding) noexcept {
  std::array<std::byte, 16> seed;
  codec::Writer writer(seed);
  ASSERT(writer.u64_be(super.salt).ok() && writer.u64_be(at.raw()).ok());
  Crc32c crc = digest::crc32c(seed);
  crc = digest::crc32c_extend(crc, head);
  return digest::crc32c_extend(crc, tail_before_padding);
}

std::span<const std::byte> bytes_of(const std::string& text) noexcept {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::array<std::byte, kSuperBytes> encode_superblock(const Superblock& super) noexcept {
  std::array<std::byte, kSuperBytes> out{};
  codec::Writer w(out);
  bool fits = w.u8(kLayoutVersion).ok() && w.u8(0).ok() && w.u16_be(0).ok() &&
              w.u16_be(super.revision).ok() && w.u16_be(kExtraBytes).ok();
  fits = fits && w.u8(kExtraTag).ok() && w.u8(kExtraBytes - 2).ok() && w.put(kMagic).ok() &&
         w.u8(kExtraVersion).ok() && w.u8(0).ok() && w.u64_be(super.salt).ok() &&
         w.u32_be(super.volume.raw()).ok();
  fits = fits && w.u32_be(digest::crc32c(w.written()).raw()).ok();
  ASSERT(fits && w.left() == 0);
  return out;
}

Result<Superblock> decode_superblock(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kSuperBytes) return Error::make(Errc::corrupt, "superblock");
  const auto body = bytes.first(kSuperBytes - 4);
  codec::Reader check(bytes.subspan(kSuperBytes - 4, 4));
  TRY_ASSIGN(const std::uint32_t crc, check.u32_be());
  if (digest::crc32c(body) != Crc32c(crc)) return Error::make(Errc::corrupt, "superblock check");
  codec::Reader r(body);
  TRY_ASSIGN(const std::uint8_t version, r.u8());
  TRY(r.skip(3));
  Superblock super;
  TRY_ASSIGN(super.revision, r.u16_be());
  TRY_ASSIGN(const std::uint16_t extra, r.u16_be());
  TRY_ASSIGN(const std::uint8_t tag, r.u8());
  TRY_ASSIGN(const std::uint8_t length, r.u8());
  TRY_ASSIGN(const auto magic, r.take(kMagic.size()));
  TRY_ASSIGN(const std::uint8_t ours, r.u8());
  TRY(r.skip(1));
  TRY_ASSIGN(super.salt, r.u64_be());
  TRY_ASSIGN(const std::uint32_t volume, r.u32_be());
  super.volume = VolumeId(volume);
  if (version != kLayoutVersion || extra != kExtraBytes || tag != kExtraTag ||
      length != kExtraBytes - 2 || !std::equal(magic.begin(), magic.end(), kMagic.begin()) ||
      ours != kExtraVersion)
    return Error::make(Errc::corrupt, "superblock is not ours");
  return super;
}

RecordFrame encode_record(const Superblock& super, Offset at, const NeedleKey& key,
                          const NeedleMeta& meta, Length data, Crc32c crc,
                          std::uint64_t append_ns) {
  ASSERT(data.raw() <= kDataMax && meta.name.size() <= 255 && meta.mime.size() <= 255);
  std::array<std::byte, kMetaMax> meta_bytes;
  codec::Writer m(meta_bytes);
  std::uint64_t size = 0;
  if (data.raw() > 0) {
    auto flags = static_cast<std::uint8_t>(meta.flags & (kFlagCompressed | kFlagManifest));
    std::size_t length = 1;
    if (!meta.name.empty()) {
      flags |= kFlagName;
      length += 1 + meta.name.size();
    }
    if (!meta.mime.empty()) {
      flags |= kFlagMime;
      length += 1 + meta.mime.size();
    }
    if (padding_of(kDataSizeBytes + data.raw() + length) < kCheckBytes) flags |= kFlagLastModified;
    bool fits = m.u8(flags).ok();
    if ((flags & kFlagName) != 0)
      fits = fits && m.u8(static_cast<std::uint8_t>(meta.name.size())).ok() &&
             m.put(bytes_of(meta.name)).ok();
    if ((flags & kFlagMime) != 0)
      fits = fits && m.u8(static_cast<std::uint8_t>(meta.mime.size())).ok() &&
             m.put(bytes_of(meta.mime)).ok();
    if ((flags & kFlagLastModified) != 0) {
      const std::uint64_t seconds = append_ns / kNsPerS;
      fits = fits && m.u8(static_cast<std::uint8_t>(seconds >> 32)).ok() &&
             m.u32_be(static_cast<std::uint32_t>(seconds)).ok();
    }
    ASSERT(fits);
    size = kDataSizeBytes + data.raw() + m.written().size();
  }
  RecordFrame frame;
  frame.head.resize(kHeaderBytes + (size > 0 ? kDataSizeBytes : 0));
  codec::Writer h(frame.head);
  bool fits = h.u32_be(key.cookie).ok() && h.u64_be(key.id).ok() &&
              h.u32_be(static_cast<std::uint32_t>(size)).ok();
  if (size > 0) fits = fits && h.u32_be(static_cast<std::uint32_t>(data.raw())).ok();
  const std::size_t padding = padding_of(size);
  ASSERT(padding >= kCheckBytes);
  frame.tail.resize((size > 0 ? m.written().size() : 0) + kTrailerBytes + padding);
  codec::Writer t(frame.tail);
  if (size > 0) fits = fits && t.put(m.written()).ok();
  fits = fits && t.u32_be(crc.raw()).ok() && t.u64_be(append_ns).ok();
  fits = fits && t.u32_be(check_of(super, at, frame.head, t.written()).raw()).ok();
  ASSERT(fits);
  return frame;
}

std::uint64_t RecordHead::tail_offset() const noexcept {
  return size == 0 ? kHeaderBytes : kHeaderBytes + kDataSizeBytes + std::uint64_t{data_size};
}

std::size_t RecordHead::tail_bytes() const noexcept {
  const std::uint64_t meta = size == 0 ? 0 : size - kDataSizeBytes - std::uint64_t{data_size};
  return static_cast<std::size_t>(meta) + kTrailerBytes + padding_of(size);
}

Result<RecordHead> decode_head(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < kHeaderBytes) return Error::make(Errc::corrupt, "needle head");
  codec::Reader r(bytes);
  RecordHead head;
  TRY_ASSIGN(head.key.cookie, r.u32_be());
  TRY_ASSIGN(head.key.id, r.u64_be());
  TRY_ASSIGN(head.size, r.u32_be());
  if (head.size == 0) return head;
  if (r.left() < kDataSizeBytes) return Error::make(Errc::corrupt, "needle head");
  TRY_ASSIGN(head.data_size, r.u32_be());
  if (head.data_size == 0 || head.data_size > kDataMax || head.size <= kDataSizeBytes ||
      head.data_size >= head.size - kDataSizeBytes ||
      head.size - kDataSizeBytes - head.data_size > kMetaMax)
    return Error::make(Errc::corrupt, "needle head");
  if (padding_of(head.size) < kCheckBytes) return Error::make(Errc::corrupt, "needle head");
  return head;
}

namespace {

Status decode_meta(codec::Reader& r, RecordTail& tail) {
  TRY_ASSIGN(tail.flags, r.u8());
  tail.meta.flags = tail.flags & (kFlagCompressed | kFlagManifest);
  const auto text = [&r](std::string& into) -> Status {
    TRY_ASSIGN(const std::uint8_t length, r.u8());
    TRY_ASSIGN(const auto bytes, r.take(length));
    into.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return {};
  };
  if ((tail.flags & kFlagName) != 0) TRY(text(tail.meta.name));
  if ((tail.flags & kFlagMime) != 0) TRY(text(tail.meta.mime));
  if ((tail.flags & kFlagLastModified) != 0) {
    TRY_ASSIGN(const std::uint8_t high, r.u8());
    TRY_ASSIGN(const std::uint32_t low, r.u32_be());
    tail.last_modified_s = std::uint64_t{high} << 32 | low;
  }
  return {};
}

}  // namespace

Result<RecordTail> decode_tail(const Superblock& super, Offset at, const RecordHead& head,
                               std::span<const std::byte> head_bytes,
                               std::span<const std::byte> tail_bytes) {
  const std::size_t head_length = kHeaderBytes + (head.size > 0 ? kDataSizeBytes : 0);
  if (head_bytes.size() < head_length || tail_bytes.size() != head.tail_bytes())
    return Error::make(Errc::corrupt, "needle");
  const std::size_t padding = padding_of(head.size);
  const auto checked = tail_bytes.first(tail_bytes.size() - padding);
  codec::Reader check(tail_bytes.last(padding));
  TRY_ASSIGN(const std::uint32_t expected, check.u32_be());
  if (check_of(super, at, head_bytes.first(head_length), checked) != Crc32c(expected))
    return Error::make(Errc::corrupt, "needle check");
  RecordTail tail;
  codec::Reader r(checked);
  if (head.size > 0 && !decode_meta(r, tail).ok()) return Error::make(Errc::corrupt, "needle meta");
  TRY_ASSIGN(const std::uint32_t crc, r.u32_be());
  TRY_ASSIGN(tail.append_ns, r.u64_be());
  if (!r.at_end()) return Error::make(Errc::corrupt, "needle meta");
  tail.crc = Crc32c(crc);
  return tail;
}

}  // namespace farlift::s3::volume
