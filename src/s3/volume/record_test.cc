#include "s3/volume/record.h"

#include "core/codec/text.h"
#include "core/digest/crc32c.h"
#include "s3/volume/volume_test_base.h"

namespace farlift::s3::volume {
namespace {

constexpr Superblock kSuper{VolumeId(3), 0x0123456789abcdef, 2};
constexpr std::uint64_t kNow = 1'700'000'000'123'456'789;

std::vector<std::byte> joined(const RecordFrame& frame, std::span<const std::byte> data) {
  std::vector<std::byte> all = frame.head;
  all.insert(all.end(), data.begin(), data.end());
  all.insert(all.end(), frame.tail.begin(), frame.tail.end());
  return all;
}

Result<RecordTail> decode(std::span<const std::byte> record, Offset at, RecordHead* head) {
  TRY_ASSIGN(*head, decode_head(record));
  if (head->record_bytes() != record.size()) return Error::make(Errc::corrupt, "length");
  return decode_tail(kSuper, at, *head, record.first(std::min<std::size_t>(20, record.size())),
                     record.subspan(head->tail_offset()));
}

// The published layout, byte for byte: other programs read these files.
TEST(NeedleRecord, lies_as_the_layout_says) {
  const auto data = made_up(3, 1);
  const Crc32c crc = digest::crc32c(data);
  const auto record = joined(encode_record(kSuper, Offset(32), {0x1122334455667788, 0xaabbccdd},
                                           {kFlagCompressed, "nam", "a/b"}, Length(3), crc, kNow),
                             data);
  // size = data_size field, data, flags, name, mime; there is room for the check without more.
  const std::string expected =
      "aabbccdd"
      "1122334455667788"
      "00000010"
      "00000003" +
      codec::hex_encode(data) +
      "07"
      "036e616d"
      "03612f62";
  EXPECT_EQ(codec::hex_encode(std::span(record).first(32)), expected);
  EXPECT_EQ(record.size() % 8, 0u);
  std::array<std::byte, 4> stored;
  std::copy_n(record.begin() + 32, 4, stored.begin());
  std::uint32_t value = 0;
  for (const std::byte b : stored) value = value << 8 | std::to_integer<std::uint32_t>(b);
  EXPECT_EQ(Crc32c(value), crc);
}

TEST(NeedleRecord, every_length_has_room_for_its_check_and_comes_back) {
  for (std::size_t length = 0; length <= 70; ++length) {
    for (std::size_t name = 0; name <= 9; ++name) {
      const auto data = made_up(length, length);
      const NeedleMeta meta{0, std::string(length > 0 ? name : 0, 'n'), {}};
      const auto record = joined(encode_record(kSuper, Offset(96), {7, 9}, meta, Length(length),
                                               digest::crc32c(data), kNow),
                                 data);
      ASSERT_EQ(record.size() % 8, 0u);
      RecordHead head;
      const auto tail = decode(record, Offset(96), &head);
      ASSERT_TRUE(tail.ok()) << length << " " << name;
      EXPECT_EQ(head.key, (NeedleKey{7, 9}));
      EXPECT_EQ(head.data_size, length);
      EXPECT_EQ(tail->crc, digest::crc32c(data));
      EXPECT_EQ(tail->append_ns, kNow);
      EXPECT_EQ(tail->meta.name, meta.name);
      if ((tail->flags & kFlagLastModified) != 0) {
        EXPECT_EQ(tail->last_modified_s, kNow / 1'000'000'000);
      }
      // As the layout counts: 1 to 8 bytes of padding.
      const std::size_t padding = record.size() - kHeaderBytes - head.size - kTrailerBytes;
      EXPECT_GE(padding, 4u);
      EXPECT_LE(padding, 8u);
    }
  }
}

TEST(NeedleRecord, every_flipped_byte_outside_the_data_is_seen) {
  const auto data = made_up(20, 2);
  const auto record = joined(encode_record(kSuper, Offset(32), {5, 6}, {0, "name", "text/plain"},
                                           Length(20), digest::crc32c(data), kNow),
                             data);
  RecordHead whole;
  ASSERT_TRUE(decode(record, Offset(32), &whole).ok());
  const std::size_t padding = record.size() - kHeaderBytes - whole.size - kTrailerBytes;
  for (std::size_t i = 0; i < record.size() - padding + 4; ++i) {
    if (i >= 20 && i < 40) continue;  // the data has its own CRC
    for (unsigned bit = 0; bit < 8; ++bit) {
      auto bad = record;
      bad[i] ^= static_cast<std::byte>(1u << bit);
      RecordHead head;
      EXPECT_FALSE(decode(bad, Offset(32), &head).ok()) << i << " bit " << bit;
    }
  }
}

TEST(NeedleRecord, belongs_to_its_place_and_its_file) {
  const auto data = made_up(20, 3);
  const auto record = joined(
      encode_record(kSuper, Offset(32), {5, 6}, {}, Length(20), digest::crc32c(data), kNow), data);
  RecordHead head;
  EXPECT_TRUE(decode(record, Offset(32), &head).ok());
  EXPECT_FALSE(decode(record, Offset(40), &head).ok());
  Superblock other = kSuper;
  other.salt ^= 1;
  EXPECT_FALSE(decode_tail(other, Offset(32), head, std::span(record).first(20),
                           std::span(record).subspan(head.tail_offset()))
                   .ok());
}

TEST(NeedleRecord, zeros_are_no_record) {
  const std::vector<std::byte> zeros(32);
  RecordHead head;
  EXPECT_FALSE(decode(std::span(zeros).first(32), Offset(32), &head).ok());
}

TEST(Superblock, comes_back_and_every_flip_is_seen) {
  const auto bytes = encode_superblock(kSuper);
  EXPECT_EQ(codec::hex_encode(std::span(bytes).first(8)), "0300000000020018");
  const Superblock back = decode_superblock(bytes).value();
  EXPECT_EQ(back.volume, kSuper.volume);
  EXPECT_EQ(back.salt, kSuper.salt);
  EXPECT_EQ(back.revision, kSuper.revision);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto bad = bytes;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(decode_superblock(bad).ok()) << i;
    EXPECT_FALSE(decode_superblock(std::span(bytes).first(i)).ok()) << i;
  }
}

}  // namespace
}  // namespace farlift::s3::volume
