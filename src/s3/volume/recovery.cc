#include "s3/volume/recovery.h"

#include "core/digest/crc32c.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace farlift::s3::volume {
namespace {

constexpr std::size_t kReadBytes = 1u << 20;
constexpr std::uint64_t kNsPerS = 1'000'000'000;

Result<Crc32c> crc_of(disk::File& file, std::uint64_t at, std::uint64_t length) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(length, kReadBytes));
  digest::Crc32cStream stream;
  for (std::uint64_t done = 0; done < length;) {
    const auto piece =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), length - done));
    TRY(file.read_exactly_at(piece, Offset(at + done)));
    stream.update(piece);
    done += piece.size();
  }
  return stream.value();
}

// The next place from `from` on where a record of this file begins; empty if there is none.
Result<std::optional<std::uint64_t>> find_record(disk::File& file, const Superblock& super,
                                                 std::uint64_t from, std::uint64_t file_size) {
  constexpr std::size_t kHead = kHeaderBytes + kDataSizeBytes;
  std::vector<std::byte> window(kReadBytes);
  std::uint64_t begin = (from + kAlign - 1) / kAlign * kAlign;
  while (begin < file_size) {
    TRY_ASSIGN(const std::size_t got, file.read_at(window, Offset(begin)));
    if (got < kHeaderBytes) break;
    // Places whose head reaches over the window's end are looked at with the next one.
    const std::size_t last = got < window.size() ? got - kHeaderBytes : got - kHead;
    for (std::size_t i = 0; i <= last; i += kAlign) {
      const auto rest = std::span<const std::byte>(window).subspan(i, got - i);
      const auto head = decode_head(rest.first(std::min(rest.size(), kHead)));
      if (!head.ok() || head->record_bytes() > file_size - begin - i) continue;
      // Zeros look like the heads of deletions: those are checked without a system call.
      if (head->size == 0 && rest.size() >= head->record_bytes() &&
          !decode_tail(super, Offset(begin + i), *head, rest.first(kHeaderBytes),
                       rest.subspan(kHeaderBytes, head->tail_bytes()))
               .ok())
        continue;
      if (read_record(file, super, begin + i, file_size, false).ok())
        return std::optional<std::uint64_t>(begin + i);
    }
    begin += last / kAlign * kAlign + kAlign;
  }
  return std::optional<std::uint64_t>();
}

}  // namespace

Result<ReadRecord> read_record(disk::File& file, const Superblock& super, std::uint64_t at,
                               std::uint64_t file_size, bool read_data) {
  std::array<std::byte, kHeaderBytes + kDataSizeBytes> head_bytes;
  TRY_ASSIGN(const std::size_t got, file.read_at(head_bytes, Offset(at)));
  ReadRecord record;
  TRY_ASSIGN(record.head, decode_head(std::span(head_bytes).first(got)));
  if (record.head.record_bytes() > file_size - at) return Error::make(Errc::corrupt, "needle end");
  std::array<std::byte, kTailMax> tail_bytes;
  const auto tail = std::span(tail_bytes).first(record.head.tail_bytes());
  TRY(file.read_exactly_at(tail, Offset(at + record.head.tail_offset())));
  TRY_ASSIGN(record.tail, decode_tail(super, Offset(at), record.head, head_bytes, tail));
  if (read_data && record.head.size > 0) {
    TRY_ASSIGN(const Crc32c crc,
               crc_of(file, at + record.head.data_offset(), record.head.data_size));
    record.data_right = crc == record.tail.crc;
  }
  return record;
}

void apply(IndexImage& image, std::uint64_t at, const RecordHead& head, const RecordTail& tail) {
  Entry& entry = image.index[head.key.id];
  // A deletion is garbage from the start: nothing is read from it.
  if (entry.offset != 0 && !entry.deleted) image.garbage += entry.record_bytes();
  if (head.size == 0) image.garbage += head.record_bytes();
  entry = Entry{};
  entry.offset = at;
  entry.cookie = head.key.cookie;
  entry.size = head.size;
  entry.data_size = head.data_size;
  entry.crc = tail.crc;
  entry.append_s = static_cast<std::uint32_t>(tail.append_ns / kNsPerS);
  entry.flags = tail.flags;
  entry.deleted = head.size == 0;
}

Result<Recovered> recover(disk::File& file, const Superblock& super, IndexImage start) {
  struct Seen {
    std::uint64_t at;
    ReadRecord record;
  };
  TRY_ASSIGN(const Length length, file.size());
  const std::uint64_t size = length.raw();
  const bool indexed = start.covered > kSuperBytes;
  const std::uint64_t verify_from =
      indexed || size < kVerifyTailBytes ? start.covered : size - kVerifyTailBytes;
  Recovered out;
  out.image = std::move(start);
  std::uint64_t at = out.image.covered;
  // Seen since the last whole record: damage that counts only if a whole record follows.
  std::vector<Seen> suspects;
  std::uint64_t holes = 0;
  std::uint64_t hole_bytes = 0;
  while (at < size) {
    auto record = read_record(file, super, at, size, at >= verify_from);
    if (!record.ok() && record.code() != Errc::corrupt) return record.error();
    if (!record.ok()) {
      TRY_ASSIGN(const auto next, find_record(file, super, at + kAlign, size));
      if (!next) break;
      ++holes;
      hole_bytes += *next - at;
      at = *next;
      continue;
    }
    ++out.scanned;
    const std::uint64_t end = at + record->head.record_bytes();
    if (!record->data_right) {
      suspects.push_back({at, std::move(record).value()});
      at = end;
      continue;
    }
    out.damaged += suspects.size() + holes;
    out.image.garbage += hole_bytes;
    for (const Seen& seen : suspects) apply(out.image, seen.at, seen.record.head, seen.record.tail);
    suspects.clear();
    holes = hole_bytes = 0;
    apply(out.image, at, record->head, record->tail);
    out.image.covered = at = end;
  }
  out.torn = size > out.image.covered ? size - out.image.covered : 0;
  return out;
}

}  // namespace farlift::s3::volume
