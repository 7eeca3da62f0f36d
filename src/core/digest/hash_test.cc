#include "core/digest/hash.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/vectors/vectors.h"

namespace farlift::digest {
namespace {

TEST(Hash, published_vectors) {
  for (const auto& vector : vectors::read("sha256.txt")) {
    EXPECT_TRUE(equal(sha256(vector.in.at(0)), vector.out)) << vector.name;
  }
  for (const auto& vector : vectors::read("md5.txt")) {
    EXPECT_TRUE(equal(md5(vector.in.at(0)), vector.out)) << vector.name;
  }
  for (const auto& vector : vectors::read("hmac_sha256.txt")) {
    ASSERT_EQ(vector.in.size(), 2u);
    EXPECT_TRUE(equal(hmac_sha256(vector.in[0], vector.in[1]), vector.out)) << vector.name;
  }
}

TEST(Hash, finish_starts_afresh) {
  const std::vector<std::byte> bytes(100, std::byte{7});
  Sha256 sha;
  Md5 md;
  for (int round = 0; round < 3; ++round) {
    sha.update(bytes);
    md.update(bytes);
    EXPECT_TRUE(equal(sha.finish(), sha256(bytes)));
    EXPECT_TRUE(equal(md.finish(), md5(bytes)));
  }
}

TEST(Hash, a_key_serves_many_messages) {
  const std::vector<std::byte> key(20, std::byte{0x0b});
  const HmacKey prepared(key);
  for (int i = 0; i < 5; ++i) {
    const std::vector<std::byte> message(static_cast<std::size_t>(i), static_cast<std::byte>(i));
    EXPECT_TRUE(equal(prepared.tag(message), hmac_sha256(key, message)));
  }
}

TEST(Hash, equal_compares_all) {
  std::vector<std::byte> a(33, std::byte{1});
  const std::vector<std::byte> b = a;
  EXPECT_TRUE(equal(a, b));
  EXPECT_TRUE(equal({}, {}));
  EXPECT_FALSE(equal(a, std::span(b).first(32)));
  for (std::byte& byte : a) {
    byte ^= std::byte{0x80};
    EXPECT_FALSE(equal(a, b));
    byte ^= std::byte{0x80};
  }
}

RC_GTEST_PROP(Hash, pieces_make_the_whole,
              (const std::vector<std::uint8_t>& values, std::size_t cut)) {
  const auto all = std::as_bytes(std::span(values));
  const auto a = all.first(cut % (all.size() + 1));
  const auto b = all.subspan(a.size());
  Sha256 sha;
  sha.update(a);
  sha.update(b);
  RC_ASSERT(equal(sha.finish(), sha256(all)));
  Md5 md;
  md.update(a);
  md.update(b);
  RC_ASSERT(equal(md.finish(), md5(all)));
  const std::span<const std::byte> pieces[] = {a, b};
  const HmacKey key(b);
  RC_ASSERT(equal(key.tag(pieces), key.tag(all)));
}

}  // namespace
}  // namespace farlift::digest
