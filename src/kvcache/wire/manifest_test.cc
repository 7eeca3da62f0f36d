#include "kvcache/wire/layout.h"
#include "kvcache/wire/sink.h"

#include <gtest/gtest.h>

namespace farlift::kv {
namespace {

Bytes to_bytes(std::string_view text) { return {bytes_of(text).begin(), bytes_of(text).end()}; }

Keyring some_ring() {
  Keyring ring;
  EXPECT_TRUE(ring.add(KeyId(1), Bytes(kSecretBytes, std::byte{7})).ok());
  return ring;
}

Manifest some_manifest(std::size_t entries) {
  Manifest m;
  m.version = 12;
  for (std::size_t i = 0; i < entries; ++i) {
    ManifestEntry entry;
    entry.key = to_bytes("key" + std::to_string(i));
    entry.descriptor.assign(80, static_cast<std::byte>(i));
    entry.tag.fill(static_cast<std::byte>(i + 1));
    m.entries.push_back(std::move(entry));
  }
  return m;
}

TEST(KvManifest, comes_back_as_it_was) {
  const Keyring ring = some_ring();
  for (const std::size_t entries : {0u, 1u, 3u, 300u}) {
    const Manifest m = some_manifest(entries);
    const Bytes bytes = encode_manifest(m, ring.signing(), "t1", "chain");
    const auto back = decode_manifest(bytes, ring.signing(), "t1", "chain");
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->version, m.version);
    ASSERT_EQ(back->entries.size(), entries);
    for (std::size_t i = 0; i < entries; ++i) {
      EXPECT_EQ(back->entries[i].key, m.entries[i].key);
      EXPECT_EQ(back->entries[i].descriptor, m.entries[i].descriptor);
      EXPECT_EQ(back->entries[i].tag, m.entries[i].tag);
    }
  }
}

TEST(KvManifest, every_cut_and_flip_is_refused) {
  const Keyring ring = some_ring();
  const Bytes bytes = encode_manifest(some_manifest(2), ring.signing(), "t1", "chain");
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(decode_manifest(ByteView(bytes).first(n), ring.signing(), "t1", "chain").ok());
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    Bytes flipped = bytes;
    flipped[i] ^= std::byte{0x10};
    EXPECT_FALSE(decode_manifest(flipped, ring.signing(), "t1", "chain").ok()) << i;
  }
}

TEST(KvManifest, binds_tenant_and_group) {
  const Keyring ring = some_ring();
  const Bytes bytes = encode_manifest(some_manifest(1), ring.signing(), "t1", "chain");
  EXPECT_EQ(decode_manifest(bytes, ring.signing(), "t2", "chain").code(), Errc::access);
  EXPECT_EQ(decode_manifest(bytes, ring.signing(), "t1", "other").code(), Errc::access);
}

// Signed by the right key and yet nonsense: a faulty node. Every lie in a length must be seen.
TEST(KvManifest, signed_nonsense_is_refused) {
  const Keyring ring = some_ring();
  const auto resigned = [&](const std::function<void(Bytes&)>& change) {
    Bytes bytes = encode_manifest(some_manifest(2), ring.signing(), "t1", "g");
    // Not resize(): g++ 12 with sanitizers takes the difference for one that may wrap.
    bytes.erase(bytes.end() - static_cast<std::ptrdiff_t>(sizeof(Tag)), bytes.end());
    change(bytes);
    Sink sink;
    sink.raw(bytes_of({"okv/1/manifest\0", 15})).lp("t1").lp("g").lp(bytes);
    const Tag tag = ring.signing().sig().tag(sink.bytes());
    bytes.insert(bytes.end(), tag.begin(), tag.end());
    return decode_manifest(bytes, ring.signing(), "t1", "g");
  };
  EXPECT_TRUE(resigned([](Bytes&) {}).ok());
  const auto set = [](std::size_t at, int value) {
    return [at, value](Bytes& b) { b[at] = static_cast<std::byte>(value); };
  };
  EXPECT_EQ(resigned(set(0, 'x')).code(), Errc::invalid_argument);
  EXPECT_EQ(resigned(set(4, 2)).code(), Errc::invalid_argument);
  EXPECT_EQ(resigned(set(5, 1)).code(), Errc::invalid_argument);
  EXPECT_EQ(resigned(set(8, 3)).code(), Errc::invalid_argument);      // more entries than there are
  EXPECT_EQ(resigned(set(8, 1)).code(), Errc::invalid_argument);      // bytes left over
  EXPECT_EQ(resigned(set(11, 0xff)).code(), Errc::invalid_argument);  // four billion
  EXPECT_FALSE(resigned(set(20, 0)).ok());                            // an empty key
  EXPECT_FALSE(resigned(set(21, 0xff)).ok());                         // a key past the end
}

}  // namespace
}  // namespace farlift::kv
