#include "kvcache/wire/keyring.h"

#include "kvcache/wire/layout.h"
#include "kvcache/wire/sink.h"

#include <gtest/gtest.h>

#include <fstream>

namespace farlift::kv {
namespace {

Bytes secret(std::uint8_t first) {
  Bytes bytes(kSecretBytes);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(first + i);
  return bytes;
}

Bytes bytes(std::string_view text) { return {bytes_of(text).begin(), bytes_of(text).end()}; }

Descriptor some_descriptor(const Keyring& ring, ByteView key) {
  Descriptor d;
  d.location = {NodeId(1), Incarnation(2), ArenaId(3), ArenaGen(4), RemoteAddr(0x1000)};
  d.length = Length(5);
  d.version = Version(1, 9);
  d.key_id = ring.signing_id();
  d.key_hash = ring.signing().key_hash(key);
  d.rkeys = {RKey(1)};
  return d;
}

TEST(KvKeyring, development_mode_ends_for_good_with_the_first_key) {
  Keyring ring = Keyring::development();
  EXPECT_TRUE(ring.is_development());
  EXPECT_NE(ring.find(KeyId(0)), nullptr);
  ASSERT_TRUE(ring.add(KeyId(3), secret(0)).ok());
  EXPECT_FALSE(ring.is_development());
  EXPECT_EQ(ring.find(KeyId(0)), nullptr);
  ASSERT_TRUE(ring.drop(KeyId(3)).ok());
  EXPECT_FALSE(ring.is_development());
}

TEST(KvKeyring, refuses_id_zero_short_secrets_and_repeats) {
  Keyring ring;
  EXPECT_EQ(ring.add(KeyId(0), secret(0)).code(), Errc::invalid_argument);
  EXPECT_EQ(ring.add(KeyId(1), ByteView(secret(0)).first(31)).code(), Errc::invalid_argument);
  ASSERT_TRUE(ring.add(KeyId(1), secret(0)).ok());
  EXPECT_EQ(ring.add(KeyId(1), secret(9)).code(), Errc::already_exists);
  EXPECT_EQ(ring.drop(KeyId(7)).code(), Errc::not_found);
  EXPECT_EQ(ring.sign_with(KeyId(7)).code(), Errc::not_found);
}

TEST(KvKeyring, a_file_says_which_line_is_wrong_and_never_the_secret) {
  const std::string hex(64, 'a');
  std::string why;
  auto good = Keyring::parse("# ours\n\n 1 " + hex + "\n2\t" + std::string(64, 'b') + "\r\n", &why);
  ASSERT_TRUE(good.ok()) << why;
  EXPECT_EQ(good->signing_id(), KeyId(2));
  for (const std::string& bad : {std::string("1 ") + hex.substr(2), "0 " + hex, "x " + hex, hex,
                                 "1 " + hex + "\n1 " + hex}) {
    EXPECT_FALSE(Keyring::parse(bad, &why).ok());
    EXPECT_NE(why.find("line "), std::string::npos) << why;
    EXPECT_EQ(why.find("aaaa"), std::string::npos) << why;
  }
  EXPECT_FALSE(Keyring::parse("# nothing\n", &why).ok());
  EXPECT_FALSE(Keyring::load("/nonexistent/ring", &why).ok());
  EXPECT_NE(why.find("/nonexistent/ring"), std::string::npos);
}

TEST(KvKeyring, K010_an_unknown_key_id_is_refused_until_it_is_added) {
  Keyring writer;
  ASSERT_TRUE(writer.add(KeyId(2), secret(2)).ok());
  const Bytes key = bytes("k");
  const Bytes desc = encode_descriptor(some_descriptor(writer, key));
  const Tag tag = make_tag(writer.signing(), "t1", key, desc);
  const Bytes tag_bytes(tag.begin(), tag.end());
  Keyring reader;
  ASSERT_TRUE(reader.add(KeyId(1), secret(1)).ok());
  EXPECT_EQ(verify_pair(reader, "t1", key, desc, tag_bytes).outcome, Outcome::reject_sig);
  ASSERT_TRUE(reader.add(KeyId(2), secret(2)).ok());
  EXPECT_EQ(verify_pair(reader, "t1", key, desc, tag_bytes).outcome, Outcome::ok);
}

TEST(KvKeyring, K011_after_a_rotated_secret_both_are_accepted_until_the_old_id_is_dropped) {
  Keyring ring;
  ASSERT_TRUE(ring.add(KeyId(1), secret(1)).ok());
  const Bytes key = bytes("k");
  const auto pair = [&] {
    Bytes desc = encode_descriptor(some_descriptor(ring, key));
    const Tag tag = make_tag(ring.signing(), "t1", key, desc);
    return std::pair<Bytes, Bytes>(desc, Bytes(tag.begin(), tag.end()));
  };
  const auto old = pair();
  ASSERT_TRUE(ring.add(KeyId(2), secret(2)).ok());
  const auto fresh = pair();
  EXPECT_EQ(verify_pair(ring, "t1", key, old.first, old.second).outcome, Outcome::ok);
  EXPECT_EQ(verify_pair(ring, "t1", key, fresh.first, fresh.second).outcome, Outcome::ok);
  ASSERT_TRUE(ring.drop(KeyId(1)).ok());
  EXPECT_EQ(verify_pair(ring, "t1", key, old.first, old.second).outcome, Outcome::reject_sig);
  EXPECT_EQ(verify_pair(ring, "t1", key, fresh.first, fresh.second).outcome, Outcome::ok);
}

TEST(KvKeyring, tenant_names_and_keys_have_their_limits) {
  EXPECT_TRUE(valid_tenant("a-Z_0.9"));
  EXPECT_FALSE(valid_tenant(""));
  EXPECT_FALSE(valid_tenant("a b"));
  EXPECT_FALSE(valid_tenant("{a}"));
  EXPECT_TRUE(valid_tenant(std::string(64, 'a')));
  EXPECT_FALSE(valid_tenant(std::string(65, 'a')));
  EXPECT_FALSE(valid_key(Bytes(0)));
  EXPECT_TRUE(valid_key(Bytes(1)));
  EXPECT_TRUE(valid_key(Bytes(1024)));
  EXPECT_FALSE(valid_key(Bytes(1025)));
}

TEST(KvTypes, every_outcome_has_its_name) {
  for (std::uint32_t i = 0; i <= static_cast<std::uint32_t>(Outcome::control_down); ++i)
    EXPECT_NE(outcome_name(static_cast<Outcome>(i)), "?") << i;
  EXPECT_EQ(outcome_name(Outcome::reject_nosig), "REJECT_NOSIG");
}

}  // namespace
}  // namespace farlift::kv
