#include "blob/wire/rdb.h"

#include "core/codec/text.h"
#include "core/digest/crc32c.h"

#include <gtest/gtest.h>

#include <vector>

namespace farlift::blob::wire {
namespace {

const Length kMax{1u << 30};

std::vector<std::byte> pattern(std::size_t n) {
  std::vector<std::byte> out(n);
  for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<std::byte>((i * 131 + (i >> 8)) & 0xff);
  return out;
}

TEST(Rdb, header_bytes_are_pinned_for_ever) {
  const auto h = encode_rdb_header({Length(9), Crc32c(0xE3069283u)});
  // magic "farlblob", layout 1, length 9, crc, piece 1 MiB, header crc
  EXPECT_EQ(codec::hex_encode(std::span(h).first(28)),
            "6661726c626c6f62"
            "01000000"
            "0900000000000000"
            "839206e3"
            "00001000");
  auto back = decode_rdb_header(h);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->length, Length(9));
  EXPECT_EQ(back->crc, Crc32c(0xE3069283u));
}

TEST(Rdb, every_cut_and_flip_is_refused) {
  auto h = encode_rdb_header({Length(123456), Crc32c(7)});
  for (std::size_t n = 0; n < h.size(); ++n)
    EXPECT_FALSE(decode_rdb_header(std::span(h).first(n)).ok()) << n;
  for (std::size_t i = 0; i < h.size() * 8; ++i) {
    auto copy = h;
    copy[i / 8] ^= static_cast<std::byte>(1u << (i % 8));
    EXPECT_FALSE(decode_rdb_header(copy).ok()) << i;
  }
}

TEST(Rdb, round_trip_in_pieces) {
  for (const std::size_t n :
       {std::size_t{1}, std::size_t{kRdbPieceBytes - 1}, std::size_t{kRdbPieceBytes},
        std::size_t{kRdbPieceBytes + 1}, std::size_t{3 * kRdbPieceBytes + 5}}) {
    const auto bytes = pattern(n);
    auto d = RdbDecoder::begin(encode_rdb_header({Length(n), digest::crc32c(bytes)}), kMax);
    ASSERT_TRUE(d.ok());
    while (!d->complete()) {
      EXPECT_FALSE(d->finish().ok());
      const std::size_t want = d->expected().raw();
      ASSERT_LE(want, kRdbPieceBytes);
      ASSERT_TRUE(d->piece(std::span(bytes).subspan(d->taken().raw(), want)).ok());
    }
    EXPECT_TRUE(d->finish().ok());
    EXPECT_FALSE(d->piece(std::span(bytes).first(1)).ok());
  }
}

TEST(Rdb, wrong_piece_and_wrong_bytes) {
  auto bytes = pattern(100);
  const auto header = encode_rdb_header({Length(100), digest::crc32c(bytes)});
  auto d = RdbDecoder::begin(header, kMax);
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->piece(std::span(bytes).first(99)).code(), Errc::corrupt);
  bytes[50] ^= std::byte{1};
  ASSERT_TRUE(d->piece(bytes).ok());
  EXPECT_EQ(d->finish().code(), Errc::checksum);
  EXPECT_EQ(RdbDecoder::begin(header, Length(99)).code(), Errc::too_large);
  EXPECT_FALSE(decode_rdb_header(encode_rdb_header({Length(0), Crc32c(0)})).ok());
}

}  // namespace
}  // namespace farlift::blob::wire
