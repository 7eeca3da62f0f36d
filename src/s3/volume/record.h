// Needles as they lie in a volume file: the published layout (spec s3 12), with two additions that
// other readers of the layout skip over.
//
//   file    = superblock, needle*                             every part begins at a multiple of 8
//   needle  = cookie u32, id u64, size u32, [data_size u32, data, flags u8, name?, mime?,
//             last_modified?] crc u32, append_ns u64, padding              integers are big-endian
//
// 1. The superblock's extra part carries the volume's number and a random salt.
// 2. The padding, otherwise unused, begins with a check of everything but the data: CRC-32C over
//    salt, position in the file, and all other bytes of the record. The layout's own CRC covers the
//    data alone; a record torn by a crash could come up under another id or cookie. There are
//    always four bytes for it: where the layout would pad with fewer, the record carries its
//    last-modified time (five bytes) and is padded with more. Salt and position keep a needle that
//    is part of somebody's data, or of an older file, from being taken for one of ours.
//
// Threads: pure functions. Errors: corrupt: not a superblock or record of ours.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace farlift::s3::volume {

using VolumeId = StrongInt<struct VolumeIdTag, std::uint32_t>;

struct NeedleKey {
  std::uint64_t id = 0;
  std::uint32_t cookie = 0;
  friend bool operator==(const NeedleKey&, const NeedleKey&) = default;
};

inline constexpr std::uint64_t kAlign = 8;
inline constexpr std::size_t kHeaderBytes = 16;   // cookie, id, size
inline constexpr std::size_t kDataSizeBytes = 4;  // only where there is data
inline constexpr std::size_t kTrailerBytes = 12;  // crc, append_ns
inline constexpr std::size_t kPaddingMax = 8;
inline constexpr std::size_t kMetaMax = 1 + 256 + 256 + 5;  // flags, name, mime, last-modified
inline constexpr std::size_t kTailMax = kMetaMax + kTrailerBytes + kPaddingMax;
inline constexpr std::size_t kSuperBytes = 32;
// What the layout's u32 holds with room for the rest of the record.
inline constexpr std::uint64_t kDataMax = 0x7fff0000;

enum NeedleFlag : std::uint8_t {
  kFlagCompressed = 0x01,
  kFlagName = 0x02,
  kFlagMime = 0x04,
  kFlagLastModified = 0x08,
  kFlagTtl = 0x10,
  kFlagPairs = 0x20,
  kFlagManifest = 0x80,
};

struct Superblock {
  VolumeId volume;
  std::uint64_t salt = 0;
  std::uint16_t revision = 0;  // grows with each compaction
};
std::array<std::byte, kSuperBytes> encode_superblock(const Superblock& super) noexcept;
Result<Superblock> decode_superblock(std::span<const std::byte> bytes) noexcept;

// What a client says of its data besides the bytes.
struct NeedleMeta {
  std::uint8_t flags = 0;  // compressed and manifest only; the rest follows from the members
  std::string name;        // at most 255 bytes
  std::string mime;        // at most 255 bytes
};

// The bytes before and after the data; the record is head, data, tail.
struct RecordFrame {
  std::vector<std::byte> head;
  std::vector<std::byte> tail;
};
// `data` empty: the record of a deletion. ASSERTs kDataMax and the lengths of `meta`.
RecordFrame encode_record(const Superblock& super, Offset at, const NeedleKey& key,
                          const NeedleMeta& meta, Length data, Crc32c crc, std::uint64_t append_ns);

// What a record's head says.
struct RecordHead {
  NeedleKey key;
  std::uint32_t size = 0;       // as the layout counts: 0 is a deletion
  std::uint32_t data_size = 0;  // 0 for a deletion
  // From the record's first byte.
  std::uint64_t data_offset() const noexcept { return kHeaderBytes + kDataSizeBytes; }
  std::uint64_t tail_offset() const noexcept;
  std::size_t tail_bytes() const noexcept;
  std::uint64_t record_bytes() const noexcept { return tail_offset() + tail_bytes(); }
};
// `bytes`: the first kHeaderBytes + kDataSizeBytes of a record. corrupt: no record begins so.
Result<RecordHead> decode_head(std::span<const std::byte> bytes) noexcept;

struct RecordTail {
  std::uint8_t flags = 0;
  NeedleMeta meta;
  std::uint64_t last_modified_s = 0;  // 0: not told
  Crc32c crc;
  std::uint64_t append_ns = 0;
};
// `head` and `tail` as read from `at`; corrupt unless the check holds.
Result<RecordTail> decode_tail(const Superblock& super, Offset at, const RecordHead& head,
                               std::span<const std::byte> head_bytes,
                               std::span<const std::byte> tail_bytes);

}  // namespace farlift::s3::volume
