// The value of a large object inside RDB files and DUMP payloads: one header string, then the bytes
// in pieces of a bounded size (docs/formats/blob-rdb.md).
//
// Invariants: decoding accepts exactly what encoding makes; a decoder never asks for more than
//             kRdbPieceBytes at once; finish() succeeds only if every byte arrived and the CRC-32C
//             is the stored one.
// Threads:    plain values. Errors: corrupt (malformed), checksum, unsupported (a later version),
//             too_large.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace farlift::blob::wire {

inline constexpr int kRdbEncodingVersion = 1;
inline constexpr std::uint64_t kRdbPieceBytes = 1u << 20;
inline constexpr std::size_t kRdbHeaderBytes = 32;

struct RdbHeader {
  Length length;
  Crc32c crc;
};

std::array<std::byte, kRdbHeaderBytes> encode_rdb_header(const RdbHeader& header);
Result<RdbHeader> decode_rdb_header(std::span<const std::byte> bytes);

// Length of the piece that starts at `from`; 0 at the end.
Length rdb_piece_length(Length total, Offset from) noexcept;

class RdbDecoder {
 public:
  static Result<RdbDecoder> begin(std::span<const std::byte> header, Length object_max);
  const RdbHeader& header() const noexcept { return header_; }
  bool complete() const noexcept { return taken_.raw() == header_.length.raw(); }
  Offset taken() const noexcept { return taken_; }
  Length expected() const noexcept { return rdb_piece_length(header_.length, taken_); }
  Status piece(std::span<const std::byte> bytes);  // must have the expected length
  Status finish() const;

 private:
  explicit RdbDecoder(RdbHeader header) : header_(header) {}
  RdbHeader header_;
  Offset taken_;
  Crc32c running_;
};

}  // namespace farlift::blob::wire
