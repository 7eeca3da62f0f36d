// A large object out of an RDB file or a RESTORE: 32 bytes of header, then pieces, each behind a
// 3-byte length.
#include "blob/wire/rdb.h"
#include "core/base/assert.h"
#include "core/digest/crc32c.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farlift;
  namespace wire = blob::wire;
  std::span<const std::byte> rest = std::as_bytes(std::span(data, size));
  const auto header = rest.first(std::min(rest.size(), wire::kRdbHeaderBytes));
  rest = rest.subspan(header.size());
  const Length object_max(1u << 24);
  auto decoder = wire::RdbDecoder::begin(header, object_max);
  if (!decoder.ok()) return 0;
  ASSERT(decoder->header().length.raw() > 0 && decoder->header().length <= object_max);
  const auto again = wire::encode_rdb_header(decoder->header());
  ASSERT(std::equal(again.begin(), again.end(), header.begin(), header.end()));
  Crc32c crc;
  while (!decoder->complete() && rest.size() >= 3) {
    ASSERT(decoder->expected().raw() > 0 && decoder->expected().raw() <= wire::kRdbPieceBytes);
    const std::size_t n = std::to_integer<std::size_t>(rest[0]) |
                          std::to_integer<std::size_t>(rest[1]) << 8 |
                          std::to_integer<std::size_t>(rest[2]) << 16;
    rest = rest.subspan(3);
    const auto piece = rest.first(std::min(rest.size(), n));
    rest = rest.subspan(piece.size());
    const bool fits = piece.size() == decoder->expected().raw();
    ASSERT(decoder->piece(piece).ok() == fits);
    if (!fits) return 0;
    crc = digest::crc32c_extend(crc, piece);
  }
  ASSERT(decoder->finish().ok() == (decoder->complete() && crc == decoder->header().crc));
  return 0;
}
