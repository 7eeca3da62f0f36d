#include "core/codec/text.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

namespace farlift::codec {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> out;
  for (const char c : text) out.push_back(static_cast<std::byte>(c));
  return out;
}

std::vector<std::byte> bytes_of(const std::vector<std::uint8_t>& values) {
  std::vector<std::byte> out;
  for (const std::uint8_t v : values) out.push_back(static_cast<std::byte>(v));
  return out;
}

TEST(Hex, either_case_in_lower_case_out) {
  EXPECT_EQ(hex_encode(bytes_of("\x0a\xff\x10")), "0aff10");
  EXPECT_EQ(hex_decode("0AfF10").value(), bytes_of("\x0a\xff\x10"));
  EXPECT_TRUE(hex_decode("").value().empty());
  for (const char* bad : {"0", "zz", "0g", "g0", "0x10", " 0", "0 ", "00 00", "abc"}) {
    EXPECT_EQ(hex_decode(bad).code(), Errc::invalid_argument) << bad;
  }
}

TEST(Hex, every_character_is_a_digit_or_refused) {
  const std::string digits = "0123456789abcdefABCDEF";
  for (int c = 0; c < 256; ++c) {
    const std::string text{static_cast<char>(c), '0'};
    const bool digit = digits.find(static_cast<char>(c)) != std::string::npos;
    EXPECT_EQ(hex_decode(text).ok(), digit) << c;
  }
}

TEST(Decimal, strict_form) {
  EXPECT_EQ(parse_u64("0").value(), 0u);
  EXPECT_EQ(parse_u64("00000000000000000007").value(), 7u);  // 20 digits
  EXPECT_EQ(parse_u64("18446744073709551615").value(), UINT64_MAX);
  EXPECT_EQ(parse_u32("4294967295").value(), UINT32_MAX);
  for (const char* bad :
       {"", "-1", "+1", "0x1", "1a", " 1", "1 ", "1.0", "1e3", "000000000000000000000", "1\n"}) {
    EXPECT_EQ(parse_u64(bad).code(), Errc::invalid_argument) << bad;
    EXPECT_EQ(parse_u32(bad).code(), Errc::invalid_argument) << bad;
  }
  for (const char* big : {"18446744073709551616", "18446744073709551620", "99999999999999999999"}) {
    EXPECT_EQ(parse_u64(big).code(), Errc::out_of_range) << big;
  }
  EXPECT_EQ(parse_u32("4294967296").code(), Errc::out_of_range);
  EXPECT_EQ(parse_u64(std::string_view("1\0", 2)).code(), Errc::invalid_argument);
}

TEST(Base64, rfc_4648_examples) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : examples) {
    EXPECT_EQ(base64_encode(bytes_of(std::string_view(plain))), encoded);
    EXPECT_EQ(base64_decode(encoded).value(), bytes_of(std::string_view(plain)));
  }
  EXPECT_EQ(base64url_encode(bytes_of("\xfb\xff")), "-_8");
  EXPECT_EQ(base64url_decode("-_8").value(), bytes_of("\xfb\xff"));
}

TEST(Base64, only_the_canonical_form) {
  for (const char* bad : {"Zg", "Zg=", "Zh==", "Zm9=", "Z===", "====", "=", "Zm9v=", "Zm 9",
                          "Zm9v\n", "-_8=", "Zg==Zg=="}) {
    EXPECT_FALSE(base64_decode(bad).ok()) << bad;
  }
  for (const char* bad : {"Zg==", "Zh", "Z", "+/8", "Zm9vY"}) {
    EXPECT_FALSE(base64url_decode(bad).ok()) << bad;
  }
}

TEST(Percent, examples) {
  EXPECT_EQ(percent_encode("a b/c~%"), "a%20b%2Fc~%25");
  EXPECT_EQ(percent_encode("a b/c%", "/%"), "a%20b/c%25");
  EXPECT_EQ(percent_decode("a%20b%2fc+%25").value(), "a b/c+%");
  for (const char* bad : {"%", "%2", "a%", "%g0", "%0g", "%%20"})
    EXPECT_FALSE(percent_decode(bad).ok()) << bad;
}

TEST(Keyword, case_of_ascii_letters_is_ignored) {
  EXPECT_TRUE(equal_ignoring_case("CRC", "crC"));
  EXPECT_FALSE(equal_ignoring_case("CRC", "CRC "));
  EXPECT_FALSE(equal_ignoring_case("@", "`"));  // differ by the case bit but are no letters
  EXPECT_TRUE(equal_ignoring_case("", ""));
}

RC_GTEST_PROP(Text, round_trips,
              (const std::vector<std::uint8_t>& values, const std::string& text)) {
  const auto bytes = bytes_of(values);
  RC_ASSERT(hex_decode(hex_encode(bytes)).value() == bytes);
  RC_ASSERT(base64_decode(base64_encode(bytes)).value() == bytes);
  RC_ASSERT(base64url_decode(base64url_encode(bytes)).value() == bytes);
  RC_ASSERT(percent_decode(percent_encode(text)).value() == text);
  RC_ASSERT(percent_decode(percent_encode(text, "/+&=")).value() == text);
}

RC_GTEST_PROP(Text, numbers_round_trip, (std::uint64_t value)) {
  RC_ASSERT(parse_u64(format_u64(value)).value() == value);
  RC_ASSERT(parse_u32(format_u64(value)).ok() == (value <= UINT32_MAX));
}

// Whatever decodes is what the encoder would have written: no second spelling exists.
RC_GTEST_PROP(Text, base64_is_canonical, ()) {
  const auto text =
      *rc::gen::container<std::string>(rc::gen::elementOf(std::string("AQgwZaz09+/=")));
  const auto decoded = base64_decode(text);
  if (decoded.ok()) RC_ASSERT(base64_encode(decoded.value()) == text);
}

}  // namespace
}  // namespace farlift::codec
