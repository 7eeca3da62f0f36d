#include "kvcache/wire/layout.h"

#include "core/base/prng.h"
#include "core/codec/text.h"
#include "core/digest/crc32c.h"
#include "kvcache/wire/sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/vectors/vectors.h"

namespace farlift::kv {
namespace {

Bytes to_bytes(std::string_view text) { return {bytes_of(text).begin(), bytes_of(text).end()}; }
Bytes to_bytes(const Tag& tag) { return {tag.begin(), tag.end()}; }

Keyring ring_of(std::uint8_t first) {
  Bytes secret(kSecretBytes);
  for (std::size_t i = 0; i < secret.size(); ++i) secret[i] = static_cast<std::byte>(first + i);
  Keyring ring;
  EXPECT_TRUE(ring.add(KeyId(1), secret).ok());
  return ring;
}

// What the specification's test vector is made of (spec kv 4.5).
Descriptor vector_descriptor(const Keyring& ring) {
  Descriptor d;
  d.virtual_address = true;
  d.location = {NodeId(1), Incarnation(0x1122334455667788), ArenaId(7), ArenaGen(3),
                RemoteAddr(0x1000)};
  d.length = Length(21);
  d.version = Version(1, 5);
  d.key_hash = ring.signing().key_hash(to_bytes("abc"));
  d.crc = digest::crc32c(to_bytes("hello one-sided world"));
  d.key_id = KeyId(1);
  d.rkeys = {RKey(0xDEADBEEF)};
  return d;
}

struct SignedPair {
  Bytes descriptor, tag;
};
SignedPair sign(const Keyring& ring, std::string_view tenant, std::string_view key, Descriptor d) {
  d.key_hash = ring.signing().key_hash(to_bytes(key));
  d.key_id = ring.signing_id();
  SignedPair pair;
  pair.descriptor = encode_descriptor(d);
  pair.tag = to_bytes(make_tag(ring.signing(), tenant, to_bytes(key), pair.descriptor));
  return pair;
}
Outcome verdict(const Keyring& ring, std::string_view tenant, std::string_view key,
                const std::optional<Bytes>& descriptor, const std::optional<Bytes>& tag,
                std::uint32_t min_rev = 0) {
  return verify_pair(ring, tenant, to_bytes(key), descriptor, tag, min_rev).outcome;
}

TEST(KvLayout, K001_the_test_vector_is_encoded_byte_for_byte) {
  const Keyring ring = ring_of(0);
  const Descriptor d = vector_descriptor(ring);
  const auto header = encode_header({d.crc, d.key_hash, d.version, d.length});
  const Bytes descriptor = encode_descriptor(d);
  const Tag tag = make_tag(ring.signing(), "t1", to_bytes("abc"), descriptor);
  const auto vectors = vectors::read("kv_layout.txt");
  ASSERT_EQ(vectors.size(), 3u);
  EXPECT_EQ(codec::hex_encode(header), codec::hex_encode(vectors[0].out));
  EXPECT_EQ(codec::hex_encode(descriptor), codec::hex_encode(vectors[1].out));
  EXPECT_EQ(codec::hex_encode(tag), codec::hex_encode(vectors[2].out));
  EXPECT_EQ(decode_descriptor(descriptor).value(), d);
  EXPECT_EQ(decode_header(header), (ValueHeader{d.crc, d.key_hash, d.version, d.length}));
}

TEST(KvLayout, K002_a_flip_of_any_bit_of_the_descriptor_is_refused) {
  const Keyring ring = ring_of(0);
  const SignedPair pair = sign(ring, "t1", "abc", vector_descriptor(ring));
  for (std::size_t bit = 0; bit < pair.descriptor.size() * 8; ++bit) {
    Bytes flipped = pair.descriptor;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const Outcome outcome = verdict(ring, "t1", "abc", flipped, pair.tag);
    EXPECT_TRUE(outcome == Outcome::reject_sig || outcome == Outcome::reject_format) << bit;
  }
}

TEST(KvLayout, K003_a_flip_of_any_bit_of_the_tag_is_refused) {
  const Keyring ring = ring_of(0);
  const SignedPair pair = sign(ring, "t1", "abc", vector_descriptor(ring));
  for (std::size_t bit = 0; bit < pair.tag.size() * 8; ++bit) {
    Bytes flipped = pair.tag;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    EXPECT_EQ(verdict(ring, "t1", "abc", pair.descriptor, flipped), Outcome::reject_sig) << bit;
  }
  EXPECT_EQ(verdict(ring, "t1", "abc", pair.descriptor, Bytes()), Outcome::reject_sig);
  EXPECT_EQ(verdict(ring, "t1", "abc", pair.descriptor, Bytes(33)), Outcome::reject_sig);
}

TEST(KvLayout, K004_K005_one_half_alone_is_a_reject_or_a_miss) {
  const Keyring ring = ring_of(0);
  const SignedPair pair = sign(ring, "t1", "abc", vector_descriptor(ring));
  EXPECT_EQ(verdict(ring, "t1", "abc", pair.descriptor, std::nullopt), Outcome::reject_nosig);
  EXPECT_EQ(verdict(ring, "t1", "abc", std::nullopt, pair.tag), Outcome::miss);
  EXPECT_EQ(verdict(ring, "t1", "abc", std::nullopt, std::nullopt), Outcome::miss);
}

TEST(KvLayout, K006_K007_swapped_pairs_and_halves_are_refused) {
  const Keyring ring = ring_of(0);
  const SignedPair a = sign(ring, "t1", "a", vector_descriptor(ring));
  const SignedPair b = sign(ring, "t1", "b", vector_descriptor(ring));
  EXPECT_EQ(verdict(ring, "t1", "a", a.descriptor, a.tag), Outcome::ok);
  EXPECT_EQ(verdict(ring, "t1", "a", b.descriptor, b.tag), Outcome::reject_sig);
  EXPECT_EQ(verdict(ring, "t1", "b", a.descriptor, a.tag), Outcome::reject_sig);
  EXPECT_EQ(verdict(ring, "t1", "a", b.descriptor, a.tag), Outcome::reject_sig);
  EXPECT_EQ(verdict(ring, "t1", "a", a.descriptor, b.tag), Outcome::reject_sig);
}

TEST(KvLayout, K008_a_pair_of_another_tenant_is_refused_with_either_secret) {
  const Keyring one = ring_of(0), other = ring_of(9);
  const SignedPair pair = sign(one, "t1", "abc", vector_descriptor(one));
  EXPECT_EQ(verdict(other, "t2", "abc", pair.descriptor, pair.tag), Outcome::reject_sig);
  EXPECT_EQ(verdict(one, "t2", "abc", pair.descriptor, pair.tag), Outcome::reject_sig);
}

TEST(KvLayout, K009_wrong_shapes_are_refused_even_when_signed) {
  const Keyring ring = ring_of(0);
  const Bytes good = sign(ring, "t1", "abc", vector_descriptor(ring)).descriptor;
  const auto refused = [&](Bytes bytes) {
    const Bytes tag = to_bytes(make_tag(ring.signing(), "t1", to_bytes("abc"), bytes));
    return verdict(ring, "t1", "abc", bytes, tag);
  };
  const auto changed = [&](std::size_t at, int value) {
    Bytes bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  EXPECT_EQ(refused(good), Outcome::ok);
  EXPECT_EQ(refused(Bytes(good.begin(), good.end() - 1)), Outcome::reject_format);
  Bytes longer = good;
  longer.push_back(std::byte{});
  EXPECT_EQ(refused(longer), Outcome::reject_format);
  EXPECT_EQ(refused(changed(4, 2)), Outcome::reject_format);  // format
  EXPECT_EQ(refused(changed(5, 3)), Outcome::reject_format);  // unknown flag
  EXPECT_EQ(refused(changed(6, 2)), Outcome::reject_format);  // unknown algorithm
  EXPECT_EQ(refused(changed(7, 0)), Outcome::reject_format);  // R = 0
  Bytes seventeen = changed(7, 17);
  seventeen.resize(72 + 8 * 17);
  EXPECT_EQ(refused(seventeen), Outcome::reject_format);
  Bytes sixteen = changed(7, 16);
  sixteen.resize(72 + 8 * 16);
  EXPECT_EQ(refused(sixteen), Outcome::ok);
  EXPECT_EQ(refused(Bytes()), Outcome::reject_format);
  EXPECT_EQ(refused(Bytes(71)), Outcome::reject_format);
}

TEST(KvLayout, K012_addresses_and_lengths_near_the_end_are_refused_though_signed) {
  const Keyring ring = ring_of(0);
  const auto outcome = [&](std::uint64_t addr, std::uint64_t length) {
    Descriptor d = vector_descriptor(ring);
    d.location.addr = RemoteAddr(addr);
    d.length = Length(length);
    const SignedPair pair = sign(ring, "t1", "abc", d);
    return verdict(ring, "t1", "abc", pair.descriptor, pair.tag);
  };
  EXPECT_EQ(outcome(UINT64_MAX - 31, 0), Outcome::reject_format);
  EXPECT_EQ(outcome(UINT64_MAX - 32, 0), Outcome::ok);
  EXPECT_EQ(outcome(UINT64_MAX - 32, 1), Outcome::reject_format);
  EXPECT_EQ(outcome(0x1000, UINT64_MAX), Outcome::reject_format);
  EXPECT_EQ(outcome(0, UINT64_MAX - 32), Outcome::ok);
}

TEST(KvLayout, K015_random_strings_are_never_accepted) {
  const Keyring ring = ring_of(0), development = Keyring::development();
  Prng prng(15);
  const SignedPair pair = sign(ring, "t1", "abc", vector_descriptor(ring));
  const int runs = std::getenv("FARLIFT_LONG") != nullptr ? 1'000'000 : 50'000;
  for (int i = 0; i < runs; ++i) {
    Bytes desc(prng.below(prng.chance(1, 2) ? 4097 : 100)), tag(prng.below(65));
    for (std::byte& b : desc) b = static_cast<std::byte>(prng.next());
    for (std::byte& b : tag) b = static_cast<std::byte>(prng.next());
    if (prng.chance(1, 2)) {  // half of them get past the first check
      desc.resize(std::max<std::size_t>(desc.size(), 8));
      std::copy_n(pair.descriptor.begin(), 8, desc.begin());
    }
    EXPECT_NE(verdict(ring, "t1", "abc", desc, tag), Outcome::ok);
    EXPECT_NE(verdict(development, "t1", "abc", desc, std::nullopt), Outcome::ok);
  }
}

TEST(KvLayout, K043_a_minimum_revision_above_the_current_one_is_a_miss) {
  const Keyring ring = ring_of(0);
  const SignedPair pair = sign(ring, "t1", "abc", vector_descriptor(ring));
  EXPECT_EQ(verdict(ring, "t1", "abc", pair.descriptor, pair.tag, 1), Outcome::ok);
  EXPECT_EQ(verdict(ring, "t1", "abc", pair.descriptor, pair.tag, 2), Outcome::miss);
}

TEST(KvLayout, development_mode_meets_itself_and_nobody_else) {
  const Keyring development = Keyring::development(), ring = ring_of(0);
  const SignedPair plain = sign(development, "t1", "abc", vector_descriptor(development));
  EXPECT_EQ(verdict(development, "t1", "abc", plain.descriptor, std::nullopt), Outcome::ok);
  EXPECT_EQ(verdict(ring, "t1", "abc", plain.descriptor, std::nullopt), Outcome::reject_nosig);
  EXPECT_EQ(verdict(ring, "t1", "abc", plain.descriptor, plain.tag), Outcome::reject_sig);
  const SignedPair strict = sign(ring, "t1", "abc", vector_descriptor(ring));
  EXPECT_EQ(verdict(development, "t1", "abc", strict.descriptor, strict.tag), Outcome::reject_sig);
}

TEST(KvLayout, a_header_with_another_magic_is_none) {
  auto bytes = encode_header({Crc32c(1), KeyHash(2), Version(3), Length(4)});
  EXPECT_TRUE(decode_header(bytes).has_value());
  for (std::size_t i = 0; i < 4; ++i) {
    auto changed = bytes;
    changed[i] ^= std::byte{1};
    EXPECT_FALSE(decode_header(changed).has_value()) << i;
  }
}

TEST(KvLayout, a_location_is_bytes_8_to_39_of_its_descriptor) {
  const Descriptor d = vector_descriptor(ring_of(0));
  const Bytes bytes = encode_descriptor(d);
  const auto location = encode_location(d.location);
  EXPECT_TRUE(std::equal(location.begin(), location.end(), bytes.begin() + 8));
  EXPECT_EQ(decode_location(location).value(), d.location);
  EXPECT_EQ(decode_location(ByteView(location).first(31)).code(), Errc::invalid_argument);
}

}  // namespace
}  // namespace farlift::kv
