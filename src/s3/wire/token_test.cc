#include "s3/wire/token.h"

#include "core/base/prng.h"
#include "core/codec/text.h"

#include <gtest/gtest.h>

#include <string>

namespace farlift::s3 {
namespace {

const std::string kExample =
    "000073967e5ff000:00400000:01f2e973:0000:007a03:1:00000000000000000000ffff0f0f0fdf";

TokenVerdict verdict_of(std::string_view text) { return parse_token(text).verdict; }

std::string with(std::size_t at, std::string_view part) {
  std::string text = kExample;
  text.replace(at, part.size(), part);
  return text;
}

Token token_of(std::string_view text) {
  const TokenParse parse = parse_token(text);
  EXPECT_EQ(parse.verdict, TokenVerdict::accepted) << text << ": " << parse.reason;
  return parse.token;
}

TEST(S3Token, S001_example_parses_and_encodes_to_the_same_bytes) {
  const Token token = token_of(kExample);
  EXPECT_EQ(token.addr, RemoteAddr(0x73967e5ff000));
  EXPECT_EQ(token.size, Length(4194304));
  EXPECT_EQ(token.rkey, 0x01f2e973u);
  EXPECT_EQ(token.lid, 0u);
  EXPECT_EQ(token.dctn, 0x7a03u);
  EXPECT_EQ(ip_of(token.gid), "15.15.15.223");
  EXPECT_EQ(token.encode(), kExample);
  EXPECT_EQ(token.masked(),
            "000073967e5ff000:00400000:********:0000:007a03:1:00000000000000000000ffff0f0f0fdf");
}

TEST(S3Token, S002_sizes_are_unsigned) {
  EXPECT_EQ(token_of(with(17, "ffffffff")).size, Length(4294967295u));
  EXPECT_EQ(token_of(with(17, "80000000")).size, Length(2147483648u));
}

TEST(S3Token, S003_upper_case_is_accepted_and_lower_case_produced) {
  std::string upper = kExample;
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  EXPECT_EQ(token_of(upper).encode(), kExample);
}

TEST(S3Token, width_separators_and_digits_are_exact) {
  EXPECT_EQ(verdict_of(kExample.substr(0, 80)), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(kExample + "0"), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(""), TokenVerdict::malformed);
  for (const std::size_t colon : {16u, 25u, 34u, 39u, 46u, 48u}) {
    std::string moved = kExample;
    std::swap(moved[colon], moved[colon - 1]);
    EXPECT_EQ(verdict_of(moved), TokenVerdict::malformed) << colon;
  }
  EXPECT_EQ(
      verdict_of(
          "000073967e5ff000:00400000:1f2e973:00000:007a03:1:00000000000000000000ffff0f0f0fdf"),
      TokenVerdict::malformed);
  for (const std::string_view bad : {"g", " ", "+", "-", "\x7f", "\xc3"}) {
    EXPECT_EQ(verdict_of(with(3, bad)), TokenVerdict::malformed) << bad;
    EXPECT_EQ(verdict_of(with(60, bad)), TokenVerdict::malformed) << bad;
  }
  EXPECT_EQ(verdict_of(with(0, "0x")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(" \t" + kExample + "\t "), TokenVerdict::accepted);
  EXPECT_EQ(verdict_of(kExample + "," + kExample), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(std::string(4096, 'a')), TokenVerdict::malformed);
}

TEST(S3Token, marker_window_and_target_are_judged) {
  EXPECT_EQ(verdict_of(with(47, "0")), TokenVerdict::declined);
  EXPECT_EQ(verdict_of(with(47, "2")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(47, "z")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(0, "ffffffffffffffff:00000002")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(0, "ffffffffffffff00:000000ff")), TokenVerdict::accepted);
  EXPECT_EQ(verdict_of(with(0, "ffffffffffffff00:00000100")), TokenVerdict::accepted);
  EXPECT_EQ(verdict_of(with(0, "ffffffffffffff00:00000101")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(40, "000000")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(49, std::string(32, '0'))), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(49, "ff02")), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(with(49, "fe80")), TokenVerdict::accepted) << "V12 judges link-local";
}

TEST(S3Token, the_long_form_is_the_inner_window) {
  EXPECT_EQ(token_of(kExample + ":000073967e5ff000:0000000000400000").encode(), kExample);
  const Token inner = token_of(kExample + ":000073967E600000:00000000003fe000");
  EXPECT_EQ(inner.addr, RemoteAddr(0x73967e600000));
  EXPECT_EQ(inner.size, Length(0x3fe000));
  EXPECT_EQ(inner.rkey, 0x01f2e973u);
  for (const std::string_view tail :
       {":000073967e5ff000:0000000000400001", ":000073967e5ff001:0000000000400000",
        ":000073967e5fefff:0000000000000001", ":000073967e5ff000:0000000100000000",
        ":000073967e9ff001:0000000000000000", ":000073967e5ff000.0000000000400000",
        "=000073967e5ff000:0000000000400000", ":000073967e5ff00g:0000000000400000",
        ":ffffffffffffffff:ffffffffffffffff", ":00000000000000000000000000400000:"}) {
    EXPECT_EQ(verdict_of(kExample + std::string(tail)), TokenVerdict::malformed) << tail;
  }
  // The outer pair is judged first, also where the inner one would be right.
  EXPECT_EQ(verdict_of(with(47, "0") + ":000073967e5ff000:0000000000400000"),
            TokenVerdict::declined);
}

TEST(S3Token, foreign_forms_are_declined) {
  const std::string hip(88, 'a');
  EXPECT_EQ(verdict_of(hip), TokenVerdict::declined_hip);
  EXPECT_EQ(verdict_of(hip + ":7f00:1000"), TokenVerdict::declined_hip);
  EXPECT_EQ(verdict_of(hip + ":"), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(hip + "b"), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of(hip + ":7f00:"), TokenVerdict::malformed);
  EXPECT_EQ(verdict_of("rc:17:7f0000001000:4096:beef"), TokenVerdict::declined);
  EXPECT_EQ(verdict_of("7f00:4096:ofi1:tcp:0a0b:77"), TokenVerdict::declined);
  EXPECT_EQ(verdict_of("AAAAc5Z+X/AAAEAAAAHy6XMAAAB6Aw=="), TokenVerdict::malformed);
}

TEST(S3Token, S016_mutations_never_change_the_width) {
  Prng prng(16);
  const std::string longer = kExample + ":000073967e5ff000:0000000000400000";
  std::uint64_t accepted = 0;
  for (int round = 0; round < 1'000'000; ++round) {
    std::string text = prng.chance(1, 4) ? longer : kExample;
    for (std::uint64_t edits = 1 + prng.below(3); edits > 0; --edits) {
      const auto at = static_cast<std::size_t>(prng.below(text.size()));
      const auto byte = static_cast<char>(prng.below(256));
      switch (prng.below(4)) {
        case 0:
          text[at] = byte;
          break;
        case 1:
          text[at] = "0123456789abcdefABCDEF:"[prng.below(23)];
          break;
        case 2:
          text.erase(at, 1 + static_cast<std::size_t>(prng.below(4)));
          break;
        default:
          text.insert(at, 1, byte);
          break;
      }
    }
    const TokenParse parse = parse_token(text);
    if (parse.verdict != TokenVerdict::accepted) {
      ASSERT_STRNE(parse.reason, "") << text;
      continue;
    }
    ++accepted;
    const std::size_t first = text.find_first_not_of(" \t");
    const std::size_t width = text.find_last_not_of(" \t") - first + 1;
    ASSERT_TRUE(width == kTokenLength || width == kLongTokenLength) << text;
    ASSERT_EQ(parse.token.encode().size(), kTokenLength);
    ASSERT_EQ(parse_token(parse.token.encode()).token, parse.token);
  }
  EXPECT_GT(accepted, 1000u) << "the mutations are too wild to test anything";
}

TEST(S3Token, socket_addresses_go_there_and_back) {
  for (const char* ip : {"127.0.0.1", "15.15.15.223", "::1", "2001:db8::7"}) {
    Token token = token_of(kExample);
    token.gid = *gid_from_ip(ip);
    token.dctn = 40001;
    const auto address = socket_address_of(token);
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(address->size(),
              std::string_view(ip).find(':') == std::string_view::npos ? 16u : 28u);
    const auto back = gid_of(*address);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->gid, token.gid);
    EXPECT_EQ(back->port, 40001);
    EXPECT_EQ(ip_of(token.gid), ip);
    EXPECT_FALSE(gid_of(std::span(*address).first(15)).ok());
    token.dctn = 65536;
    EXPECT_EQ(socket_address_of(token).code(), Errc::out_of_range);
  }
  EXPECT_EQ(provider_key(kDefaultDcKey, 0x01f2e973), RKey(0xffeeddcc01f2e973));
}

bool allowed(std::string_view rules, std::string_view target, std::string_view peer = {}) {
  const auto parsed = AddressRules::parse(rules);
  EXPECT_TRUE(parsed.ok()) << rules;
  return parsed->allow(*gid_from_ip(target), peer.empty() ? std::nullopt : gid_from_ip(peer));
}

TEST(S3Token, address_rules_name_who_may_be_reached) {
  EXPECT_TRUE(allowed("", "10.1.2.3", "10.1.2.3"));
  EXPECT_FALSE(allowed("", "10.1.2.3", "10.1.2.4"));
  EXPECT_FALSE(allowed("", "10.1.2.3"));
  EXPECT_TRUE(allowed("10.0.0.0/8", "10.1.2.3"));
  EXPECT_FALSE(allowed("10.0.0.0/8", "11.1.2.3"));
  EXPECT_TRUE(allowed("10.1.2.3", "10.1.2.3"));
  EXPECT_FALSE(allowed("10.1.2.3", "10.1.2.2"));
  EXPECT_TRUE(allowed("10.1.2.2/31,::1", "10.1.2.3"));
  EXPECT_TRUE(allowed("10.1.2.2/31,::1", "::1"));
  EXPECT_TRUE(allowed("2001:db8::/32", "2001:db8:9::1"));
  EXPECT_FALSE(allowed("2001:db8::/32", "2001:db9::1"));
  EXPECT_TRUE(allowed("0.0.0.0/0", "8.8.8.8"));
  EXPECT_FALSE(allowed("0.0.0.0/0", "2001:db8::1")) << "of IPv4 only";
  for (const char* never : {"0.0.0.0", "0.1.2.3", "224.0.0.1", "239.1.1.1", "255.255.255.255",
                            "169.254.7.7", "fe80::1", "febf::1", "ff02::1", "::", "::7f00:1"}) {
    EXPECT_FALSE(allowed("0.0.0.0/0,::/0", never, never)) << never;
  }
  for (const char* bad : {"10.0.0.0/33", "10.0.0/8", "::/129", "x", "10.0.0.0/", "10.0.0.0/8,",
                          ",10.0.0.0/8", "10.0.0.0/-1", "10.0.0.0/8 "}) {
    EXPECT_FALSE(AddressRules::parse(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace farlift::s3
