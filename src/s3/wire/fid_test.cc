#include "s3/wire/fid.h"

#include <gtest/gtest.h>

#include <limits>

namespace farlift::s3 {
namespace {

TEST(S3Fid, the_published_example) {
  const auto fid = Fid::parse("3,01637037d6");
  ASSERT_TRUE(fid.ok());
  EXPECT_EQ(*fid, (Fid{3, 1, 0x637037d6}));
  EXPECT_EQ(fid->format(), "3,01637037d6");
}

TEST(S3Fid, leading_zero_bytes_are_dropped_but_one_is_kept) {
  EXPECT_EQ((Fid{1, 0, 0}).format(), "1,0000000000");
  EXPECT_EQ((Fid{1, 0xabc, 7}).format(), "1,0abc00000007");
  EXPECT_EQ((Fid{0xffffffff, std::numeric_limits<std::uint64_t>::max(), 0xffffffff}).format(),
            "4294967295,ffffffffffffffffffffffff");
  for (const Fid fid : {Fid{1, 0, 0}, Fid{7, 1ull << 63, 1}, Fid{0, 255, 256}, Fid{9, 256, 0}}) {
    const auto parsed = Fid::parse(fid.format());
    ASSERT_TRUE(parsed.ok()) << fid.format();
    EXPECT_EQ(*parsed, fid);
  }
}

TEST(S3Fid, suffix_adds_to_the_id) {
  EXPECT_EQ(*Fid::parse("3,01637037d6_4"), (Fid{3, 5, 0x637037d6}));
  EXPECT_EQ(fid_without_suffix("3,01637037d6_4"), "3,01637037d6");
  EXPECT_EQ(fid_without_suffix("3,01637037d6"), "3,01637037d6");
  EXPECT_FALSE(Fid::parse("3,ffffffffffffffff637037d6_1").ok()) << "passes 2^64";
  EXPECT_TRUE(Fid::parse("3,fffffffffffffffe637037d6_1").ok());
}

TEST(S3Fid, malformed_ones_are_refused) {
  for (const char* text :
       {"", "3", "3,", ",01637037d6", "3,637037d6", "3,1637037g6", "x,01637037d6", "3,01637037d6_",
        "3,01637037d6_x", "3,01637037d6_-1", "-3,01637037d6", "3,0x01637037d6",
        "4294967296,01637037d6", "3,01637037d6,4", "3 ,01637037d6", "3,00000000000000001637037d6",
        "3,+1637037d6", "3,01637037d6.jpg"}) {
    EXPECT_FALSE(Fid::parse(text).ok()) << text;
  }
}

}  // namespace
}  // namespace farlift::s3
