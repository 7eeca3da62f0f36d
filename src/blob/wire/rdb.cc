#include "blob/wire/rdb.h"

#include "core/codec/bytes.h"
#include "core/digest/crc32c.h"

#include <algorithm>

namespace farlift::blob::wire {
namespace {

constexpr std::uint64_t kMagic = 0x626f6c626c726166;  // "farlblob", little endian
constexpr std::uint32_t kLayout = 1;
constexpr std::size_t kHeaderCrcAt = kRdbHeaderBytes - 4;

}  // namespace

std::array<std::byte, kRdbHeaderBytes> encode_rdb_header(const RdbHeader& header) {
  std::array<std::byte, kRdbHeaderBytes> out{};
  codec::Writer w(out);
  const bool ok = w.u64_le(kMagic).ok() && w.u32_le(kLayout).ok() &&
                  w.u64_le(header.length.raw()).ok() && w.u32_le(header.crc.raw()).ok() &&
                  w.u32_le(static_cast<std::uint32_t>(kRdbPieceBytes)).ok() &&
                  w.u32_le(digest::crc32c(w.written()).raw()).ok();
  ASSERT(ok && w.left() == 0);
  return out;
}

Result<RdbHeader> decode_rdb_header(std::span<const std::byte> bytes) {
  if (bytes.size() != kRdbHeaderBytes) return Error::make(Errc::corrupt, "rdb header length");
  codec::Reader r(bytes);
  TRY_ASSIGN(const std::uint64_t magic, r.u64_le());
  TRY_ASSIGN(const std::uint32_t layout, r.u32_le());
  TRY_ASSIGN(const std::uint64_t length, r.u64_le());
  TRY_ASSIGN(const std::uint32_t crc, r.u32_le());
  TRY_ASSIGN(const std::uint32_t piece, r.u32_le());
  TRY_ASSIGN(const std::uint32_t header_crc, r.u32_le());
  if (magic != kMagic) return Error::make(Errc::corrupt, "rdb header magic");
  if (digest::crc32c(bytes.first(kHeaderCrcAt)).raw() != header_crc) {
    return Error::make(Errc::checksum, "rdb header checksum");
  }
  if (layout != kLayout || piece != kRdbPieceBytes)
    return Error::make(Errc::unsupported, "rdb layout version");
  if (length == 0) return Error::make(Errc::corrupt, "rdb header: empty object");
  return RdbHeader{Length(length), Crc32c(crc)};
}

Length rdb_piece_length(Length total, Offset from) noexcept {
  return Length(std::min(kRdbPieceBytes, total.raw() - std::min(total.raw(), from.raw())));
}

Result<RdbDecoder> RdbDecoder::begin(std::span<const std::byte> header, Length object_max) {
  TRY_ASSIGN(const RdbHeader decoded, decode_rdb_header(header));
  if (decoded.length > object_max) return Error::make(Errc::too_large, "rdb object");
  return RdbDecoder(decoded);
}

Status RdbDecoder::piece(std::span<const std::byte> bytes) {
  if (complete() || Length(bytes.size()) != expected())
    return Error::make(Errc::corrupt, "rdb piece length");
  running_ = digest::crc32c_extend(running_, bytes);
  taken_ = taken_ + Length(bytes.size());
  return {};
}

Status RdbDecoder::finish() const {
  if (!complete()) return Error::make(Errc::corrupt, "rdb object cut short");
  if (running_ != header_.crc) return Error::make(Errc::checksum, "rdb object checksum");
  return {};
}

}  // namespace farlift::blob::wire
