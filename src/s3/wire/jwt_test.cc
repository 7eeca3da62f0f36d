#include "s3/wire/jwt.h"

#include "core/codec/text.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

namespace farlift::s3 {
namespace {

constexpr std::string_view kFid = "3,01637037d6";
constexpr std::uint64_t kExpires = 4102444800;
const std::string kVector =
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJmaWQiOiIzLDAxNjM3MDM3ZDYiLCJleHAiOjQxMDI0NDQ4MDB9."
    "3UNiPjO07ds0CKmTzb8ySxYm87MOA8_sI8p_i4uEsCU";

std::span<const std::byte> bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

digest::HmacKey key(std::string_view text = "testkey") { return digest::HmacKey(bytes(text)); }

// A well-signed token with any header and claims.
std::string signed_with(std::string_view header, std::string_view claims) {
  std::string jwt =
      codec::base64url_encode(bytes(header)) + "." + codec::base64url_encode(bytes(claims));
  return jwt + "." + codec::base64url_encode(key().tag(bytes(jwt)));
}

TEST(S3Jwt, the_published_vector) {
  EXPECT_EQ(sign_jwt(key(), kFid, kExpires), kVector);
  EXPECT_EQ(check_jwt(key(), kVector, kFid, kExpires - 1), JwtVerdict::valid);
}

TEST(S3Jwt, each_refusal_has_its_reason) {
  EXPECT_EQ(check_jwt(key(), "", kFid, 0), JwtVerdict::missing);
  EXPECT_EQ(check_jwt(key("other"), kVector, kFid, 0), JwtVerdict::invalid);
  EXPECT_EQ(check_jwt(key(), kVector, kFid, kExpires), JwtVerdict::expired) << "no leeway";
  EXPECT_EQ(check_jwt(key(), kVector, "3,01637037d7", 0), JwtVerdict::wrong_fid);
  EXPECT_EQ(check_jwt(key(), kVector, "3,01637037d6_2", 0), JwtVerdict::valid);
}

TEST(S3Jwt, other_algorithms_are_invalid_however_well_signed) {
  const std::string claims = R"({"fid":"3,01637037d6","exp":4102444800})";
  EXPECT_EQ(check_jwt(key(), signed_with(R"({"alg":"HS256"})", claims), kFid, 0),
            JwtVerdict::valid);
  for (const std::string_view header :
       {R"({"alg":"none"})", R"({"alg":"HS512"})", R"({"alg":"hs256"})", R"({"typ":"JWT"})",
        R"({"alg":"none","alg":"HS256"})", R"([])", R"({"alg":1})"}) {
    EXPECT_EQ(check_jwt(key(), signed_with(header, claims), kFid, 0), JwtVerdict::invalid)
        << header;
  }
  const std::string none = codec::base64url_encode(bytes(R"({"alg":"none"})")) + "." +
                           codec::base64url_encode(bytes(claims)) + ".";
  EXPECT_EQ(check_jwt(key(), none, kFid, 0), JwtVerdict::invalid);
  for (const std::string_view bad :
       {R"({"fid":"3,01637037d6"})", R"({"exp":4102444800})", R"({"fid":3,"exp":4102444800})",
        R"({"fid":"3,01637037d6","exp":"4102444800"})", R"({"fid":"3,01637037d6","exp":-1})",
        R"({"fid":"x","fid":"3,01637037d6","exp":4102444800})", "x"}) {
    EXPECT_EQ(check_jwt(key(), signed_with(R"({"alg":"HS256"})", bad), kFid, 0),
              JwtVerdict::invalid)
        << bad;
  }
}

TEST(S3Jwt, every_cut_and_every_flip_is_invalid) {
  for (std::size_t i = 1; i < kVector.size(); ++i) {
    EXPECT_EQ(check_jwt(key(), kVector.substr(0, i), kFid, 0), JwtVerdict::invalid) << i;
  }
  for (std::size_t i = 0; i < kVector.size(); ++i) {
    std::string flipped = kVector;
    flipped[i] = flipped[i] == 'A' ? 'B' : 'A';
    EXPECT_EQ(check_jwt(key(), flipped, kFid, 0), JwtVerdict::invalid) << i;
  }
  EXPECT_EQ(check_jwt(key(), kVector + ".", kFid, 0), JwtVerdict::invalid);
  EXPECT_EQ(check_jwt(key(), kVector + "=", kFid, 0), JwtVerdict::invalid);
  EXPECT_EQ(check_jwt(key(), std::string(kJwtLengthMax + 1, 'A'), kFid, 0), JwtVerdict::invalid);
}

}  // namespace
}  // namespace farlift::s3
