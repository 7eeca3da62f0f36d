// Recovery: reads the records of a volume file from where its index ends, and finds where the file
// ends in truth.
//
// Appends are written one after the other and acknowledged after a sync that covers everything
// before them. So whatever is damaged behind the last whole record was never acknowledged, and is
// cut off. Damage that has whole records behind it is not the trace of a crash alone: it stays
// where it is, what can be named is indexed (reading it says `checksum`), and it is told.
//
// Threads: one. Errors: those of the file. Nothing is written here.
#pragma once

#include "core/disk/disk.h"
#include "s3/volume/index.h"

#include <cstdint>

namespace farlift::s3::volume {

// Without an index the data of the file's last part is read, too; further back records are believed
// by their check alone until somebody reads them.
inline constexpr std::uint64_t kVerifyTailBytes = 256u << 20;

struct Recovered {
  IndexImage image;           // covered: where the next record goes
  std::uint64_t torn = 0;     // bytes behind it, to be cut off
  std::uint64_t damaged = 0;  // records, or places between records, that are not whole
  std::uint64_t scanned = 0;  // records read
};

// Goes on from `start` (an index that fits, or an empty one).
Result<Recovered> recover(disk::File& file, const Superblock& super, IndexImage start);

// The record at `at`, and whether its data (if it was read) has the right CRC.
struct ReadRecord {
  RecordHead head;
  RecordTail tail;
  bool data_right = true;
};
// corrupt: no record of this file lies there.
Result<ReadRecord> read_record(disk::File& file, const Superblock& super, std::uint64_t at,
                               std::uint64_t file_size, bool read_data);

// What a record does to the index and to the bytes that nobody uses.
void apply(IndexImage& image, std::uint64_t at, const RecordHead& head, const RecordTail& tail);

}  // namespace farlift::s3::volume
