#include "core/codec/bytes.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <vector>

namespace farlift::codec {
namespace {

std::vector<std::byte> bytes_of(std::initializer_list<int> values) {
  std::vector<std::byte> out;
  for (const int v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

TEST(Reader, byte_order_is_what_the_name_says) {
  const auto bytes = bytes_of({0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08});
  EXPECT_EQ(Reader(bytes).u8().value(), 0x01u);
  EXPECT_EQ(Reader(bytes).u16_le().value(), 0x0201u);
  EXPECT_EQ(Reader(bytes).u16_be().value(), 0x0102u);
  EXPECT_EQ(Reader(bytes).u32_le().value(), 0x04030201u);
  EXPECT_EQ(Reader(bytes).u32_be().value(), 0x01020304u);
  EXPECT_EQ(Reader(bytes).u64_le().value(), 0x0807060504030201u);
  EXPECT_EQ(Reader(bytes).u64_be().value(), 0x0102030405060708u);
}

TEST(Reader, a_failed_read_consumes_nothing) {
  const auto bytes = bytes_of({1, 2, 3});
  Reader r(bytes);
  EXPECT_EQ(r.u32_le().code(), Errc::out_of_range);
  EXPECT_EQ(r.u64_be().code(), Errc::out_of_range);
  EXPECT_EQ(r.take(4).code(), Errc::out_of_range);
  EXPECT_EQ(r.skip(SIZE_MAX).code(), Errc::out_of_range);
  EXPECT_EQ(r.left(), 3u);
  EXPECT_EQ(r.u16_be().value(), 0x0102u);
  EXPECT_FALSE(r.at_end());
  EXPECT_TRUE(r.skip(1).ok());
  EXPECT_TRUE(r.at_end());
  EXPECT_EQ(r.u8().code(), Errc::out_of_range);
  EXPECT_TRUE(r.take(0).ok());
}

TEST(Writer, a_failed_write_writes_nothing) {
  std::array<std::byte, 4> memory{};
  memory.fill(std::byte{0xEE});
  Writer w{std::span(memory).first(3)};
  EXPECT_EQ(w.u32_be(1).code(), Errc::out_of_range);
  EXPECT_EQ(w.zeros(4).code(), Errc::out_of_range);
  EXPECT_EQ(w.put(memory).code(), Errc::out_of_range);
  EXPECT_EQ(memory[0], std::byte{0xEE});
  EXPECT_TRUE(w.u16_be(0x0102).ok());
  EXPECT_TRUE(w.zeros(1).ok());
  EXPECT_EQ(w.u8(9).code(), Errc::out_of_range);
  EXPECT_EQ(w.written().size(), 3u);
  EXPECT_EQ(memory[3], std::byte{0xEE});
  EXPECT_EQ(memory[2], std::byte{0});
}

RC_GTEST_PROP(Bytes, what_is_written_is_read,
              (std::uint16_t a, std::uint32_t b, std::uint64_t c, std::uint8_t d)) {
  std::array<std::byte, 29> memory{};
  Writer w(memory);
  RC_ASSERT(w.u16_le(a).ok() && w.u16_be(a).ok() && w.u32_le(b).ok() && w.u32_be(b).ok());
  RC_ASSERT(w.u64_le(c).ok() && w.u64_be(c).ok() && w.u8(d).ok());
  RC_ASSERT(w.left() == 0u);
  Reader r(memory);
  RC_ASSERT(r.u16_le().value() == a);
  RC_ASSERT(r.u16_be().value() == a);
  RC_ASSERT(r.u32_le().value() == b);
  RC_ASSERT(r.u32_be().value() == b);
  RC_ASSERT(r.u64_le().value() == c);
  RC_ASSERT(r.u64_be().value() == c);
  RC_ASSERT(r.u8().value() == d);
  RC_ASSERT(r.at_end());
}

}  // namespace
}  // namespace farlift::codec
