// What a volume knows of its needles without reading them, and the form in which it is kept on disk
// so that a start need not read the whole volume.
//
// The index file is a hint: everything in it can be read from the needles. It names the file it
// belongs to (salt, revision) and how far it covers it; only what was durable is covered. One that
// does not fit, or is damaged, is not used.
//
// Threads: plain values. Errors: corrupt: not an index, or of another file.
#pragma once

#include "core/disk/disk.h"
#include "s3/volume/record.h"

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace farlift::s3::volume {

// A needle's data is checked in blocks, so that a part of it can be read without the rest.
inline constexpr std::uint64_t kBlockBytes = 64u << 10;
using BlockCrcs = std::vector<Crc32c>;

struct Entry {
  std::uint64_t offset = 0;  // of the record
  std::uint32_t cookie = 0;
  std::uint32_t size = 0;       // as the layout counts
  std::uint32_t data_size = 0;  // 0 when deleted
  Crc32c crc;
  std::uint32_t append_s = 0;  // Unix time
  std::uint8_t flags = 0;      // as in the record
  bool deleted = false;        // the record is that of the deletion
  // Of the data's blocks; null until the data was seen once since the start, or if it is one block.
  std::shared_ptr<const BlockCrcs> blocks;

  RecordHead head(std::uint64_t id) const noexcept {
    return {NeedleKey{id, cookie}, size, data_size};
  }
  std::uint64_t record_bytes() const noexcept { return head(0).record_bytes(); }
};
using Index = std::unordered_map<std::uint64_t, Entry>;  // by needle id

struct IndexImage {
  std::uint64_t covered = kSuperBytes;  // records that begin before it are in `index`
  std::uint64_t garbage = 0;            // bytes before it that no live needle uses
  Index index;
};

Status save_index(disk::Directory& directory, const std::string& name, const Superblock& super,
                  const IndexImage& image);
Result<IndexImage> load_index(disk::Directory& directory, const std::string& name,
                              const Superblock& super);

}  // namespace farlift::s3::volume
