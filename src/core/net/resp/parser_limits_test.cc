// The parser's bounds: limits, memory in proportion to what arrived, offered memory.
#include "core/net/resp/parser_test_base.h"

#include <gtest/gtest.h>

namespace farlift::resp {
namespace {

TEST(RespParser, limits_are_exact) {
  ParserLimits limits;
  limits.line_bytes_max = 10;
  limits.bulk_bytes_max = 100;
  limits.reply_bytes_max = 150;
  limits.elements_max = 6;
  limits.depth_max = 3;
  const auto code = [&](const std::string& wire) {
    const Outcome outcome = parse(wire, 7, limits);
    if (outcome.error) return outcome.error->code;
    EXPECT_EQ(outcome.values.size(), 1U) << wire;
    return Errc{};
  };
  const auto of_bulk = [](std::size_t n) {
    return "$" + std::to_string(n) + "\r\n" + std::string(n, 'x') + "\r\n";
  };
  EXPECT_EQ(code("+" + std::string(9, 'a') + "\r\n"), Errc{});
  EXPECT_EQ(code("+" + std::string(10, 'a') + "\r\n"), Errc::too_large);
  EXPECT_EQ(code("+" + std::string(1000, 'a')), Errc::too_large);
  EXPECT_EQ(code(of_bulk(100)), Errc{});
  EXPECT_EQ(code(of_bulk(101)), Errc::too_large);
  EXPECT_EQ(code("$101\r\n"), Errc::too_large);  // at the header, not after the bytes
  EXPECT_EQ(code("*2\r\n" + of_bulk(100) + of_bulk(50)), Errc{});
  EXPECT_EQ(code("*2\r\n" + of_bulk(100) + of_bulk(51)), Errc::too_large);
  EXPECT_EQ(code("*6\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Errc{});
  EXPECT_EQ(code("*7\r\n"), Errc::too_large);
  EXPECT_EQ(code("%3\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Errc{});
  EXPECT_EQ(code("%4\r\n"), Errc::too_large);
  EXPECT_EQ(code("*5\r\n*2\r\n"), Errc::too_large);
  EXPECT_EQ(code("|3\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n*1\r\n"), Errc::too_large);
  EXPECT_EQ(code("*1\r\n*1\r\n*1\r\n:1\r\n"), Errc{});
  EXPECT_EQ(code("*1\r\n*1\r\n*1\r\n*1\r\n"), Errc::too_large);
  EXPECT_EQ(code("*1\r\n*1\r\n*1\r\n*0\r\n"), Errc::too_large);
  EXPECT_EQ(code("%9223372036854775808\r\n"), Errc::too_large);
}

// Found by the fuzzer: a line that was both too long and badly ended was one or the other,
// depending on the pieces in which it came.
TEST(RespParser, the_verdict_on_a_line_does_not_depend_on_its_pieces) {
  ParserLimits limits;
  limits.line_bytes_max = 10;
  for (const std::string_view end : {"\r\n", "\r*", "\n", "\r\r\n", "x"}) {
    for (std::size_t length = 9; length <= 14; ++length) {
      const std::string wire = "+" + std::string(length - 1, 'a') + std::string(end);
      const Outcome whole = parse(wire, wire.size(), limits);
      for (std::size_t piece = 1; piece < wire.size(); ++piece) {
        const Outcome cut = parse(wire, piece, limits);
        ASSERT_EQ(whole.error.has_value(), cut.error.has_value()) << wire << " by " << piece;
        ASSERT_TRUE(!cut.error || cut.error->code == whole.error->code) << wire << " by " << piece;
      }
      if (length > 10) {
        ASSERT_TRUE(whole.error) << wire;
        EXPECT_EQ(whole.error->code, Errc::too_large) << wire;
      }
    }
  }
}

TEST(RespParser, limits_count_each_reply_anew) {
  ParserLimits limits;
  limits.reply_bytes_max = 4;
  limits.elements_max = 2;
  std::string wire;
  for (int i = 0; i < 20; ++i) wire += "*2\r\n$2\r\nab\r\n$2\r\ncd\r\n";
  const Outcome outcome = parse(wire, 5, limits);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(outcome.values.size(), 20U);
}

// Sixteen gigabytes announced, some bytes sent: what is held stays in proportion to the latter.
TEST(RespParser, announced_lengths_allocate_nothing) {
  Parser parser;
  parser.feed("$17179869184\r\n");
  ASSERT_TRUE(parser.next().ok());
  std::size_t sent = 0;
  std::size_t largest = 0;
  while (sent < (8U << 20)) {
    const Parser::Areas areas = parser.areas();
    ASSERT_EQ(areas.count, 1U);
    largest = std::max(largest, areas.iov[0].iov_len);
    ASSERT_LE(areas.iov[0].iov_len, std::max<std::size_t>(64 * 1024, sent));
    std::memset(areas.iov[0].iov_base, 'x', areas.iov[0].iov_len);
    sent += areas.iov[0].iov_len;
    parser.commit(areas.iov[0].iov_len);
    ASSERT_FALSE(parser.next().value().has_value());
  }
  EXPECT_GT(largest, 1U << 20);  // and it does grow, so that long replies take few reads
}

TEST(RespParser, long_bulk_is_received_in_place_with_what_follows) {
  const std::string body(100'000, 'b');
  Parser parser;
  std::vector<std::byte> memory(body.size());
  parser.offer_bulk(memory);
  parser.feed("$100000\r\n");
  ASSERT_FALSE(parser.next().value().has_value());
  const Parser::Areas areas = parser.areas();
  ASSERT_EQ(areas.count, 2U);
  EXPECT_EQ(areas.iov[0].iov_base, memory.data());
  EXPECT_EQ(areas.iov[0].iov_len, body.size());
  std::memcpy(areas.iov[0].iov_base, body.data(), body.size());
  std::memcpy(areas.iov[1].iov_base, "\r\n:5\r\n", 6);
  parser.commit(body.size() + 6);
  const auto value = parser.next();
  ASSERT_TRUE((*value)->borrowed());
  EXPECT_TRUE((*value)->text() == body);
  EXPECT_EQ(parser.next().value()->integer(), 5);
}

TEST(RespParser, offer_is_for_the_first_bulk_of_the_next_reply_only) {
  const std::string wire =
      ">2\r\n$4\r\npush\r\n$1\r\nx\r\n|1\r\n$3\r\nkey\r\n$3\r\nval\r\n*3\r\n:1\r\n$5\r\nfirst\r\n$"
      "6\r\nsecond\r\n$5\r\nlater\r\n";
  for (std::size_t piece = 1; piece < wire.size(); ++piece) {
    std::vector<std::byte> memory(8, std::byte{0});
    const Outcome outcome = parse(wire, piece, {}, memory);
    ASSERT_EQ(outcome.values.size(), 3U);
    const auto items = outcome.values[1].items();
    EXPECT_TRUE(items[1].borrowed());
    EXPECT_EQ(items[1].text(), "first");
    EXPECT_FALSE(items[2].borrowed());
    EXPECT_FALSE(outcome.values[2].borrowed());
    EXPECT_FALSE(outcome.values[0].items()[0].borrowed());
    EXPECT_FALSE(outcome.values[1].attributes()[0].borrowed());
    EXPECT_EQ(std::memcmp(memory.data(), "first\0\0\0", 8), 0);
  }
}

TEST(RespParser, offer_that_is_too_small_stays_untouched) {
  std::vector<std::byte> memory(4, std::byte{0x5a});
  const Outcome outcome = parse("*2\r\n$5\r\nfirst\r\n$2\r\nab\r\n", 3, {}, memory);
  ASSERT_EQ(outcome.values.size(), 1U);
  EXPECT_FALSE(outcome.values[0].items()[0].borrowed());
  EXPECT_FALSE(outcome.values[0].items()[1].borrowed());
  for (const std::byte byte : memory) EXPECT_EQ(byte, std::byte{0x5a});
}

}  // namespace
}  // namespace farlift::resp
