#include "kvcache/wire/names.h"

#include "kvcache/wire/sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace farlift::kv {
namespace {

Bytes to_bytes(std::string_view text) { return {bytes_of(text).begin(), bytes_of(text).end()}; }

// What Valkey Cluster hashes of a name: the text between the first '{' and the next '}'.
std::string hash_tag(const std::string& name) {
  const std::size_t open = name.find('{');
  const std::size_t close = name.find('}', open);
  return name.substr(open + 1, close - open - 1);
}

TEST(KvNames, K013_any_key_gets_one_hash_tag_that_is_never_empty) {
  Bytes all(256);
  for (std::size_t i = 0; i < 256; ++i) all[i] = static_cast<std::byte>(i);
  std::vector<Bytes> keys{to_bytes("a"),
                          to_bytes("{}"),
                          to_bytes("}{"),
                          to_bytes("a{b}c"),
                          to_bytes("{{{}}"),
                          all,
                          Bytes(1024, std::byte{'{'})};
  for (const Bytes& key : keys) {
    const std::string name = descriptor_name("t1", key);
    EXPECT_EQ(std::count(name.begin(), name.end(), '{'), 1);
    EXPECT_EQ(std::count(name.begin(), name.end(), '}'), 1);
    EXPECT_FALSE(hash_tag(name).empty());
    EXPECT_EQ(hash_tag(name), encode_key(key));
    EXPECT_EQ(hash_tag(tag_name("t1", key)), encode_key(key));
    EXPECT_EQ(tag_name("t1", key), name + ":sig");
  }
}

TEST(KvNames, K014_keys_that_differ_by_encoding_alone_have_different_names) {
  std::set<std::string> names;
  for (const char* key : {"a/b", "a%2Fb", "a%252Fb", "a%2fb", "a b", "a+b", "#", "%23"})
    EXPECT_TRUE(names.insert(encode_key(to_bytes(key))).second) << key;
  EXPECT_EQ(encode_key(to_bytes("aZ9_.~@:=+,/-")), "aZ9_.~@:=+,/-");
}

TEST(KvNames, long_keys_are_named_by_their_hash) {
  EXPECT_EQ(encode_key(Bytes(512, std::byte{'a'})), std::string(512, 'a'));
  const std::string hashed = encode_key(Bytes(513, std::byte{'a'}));
  EXPECT_EQ(hashed.size(), 65u);
  EXPECT_EQ(hashed[0], '#');
  EXPECT_NE(hashed, encode_key(Bytes(514, std::byte{'a'})));
  EXPECT_EQ(encode_key(Bytes(171, std::byte{' '})).size(), 65u);  // 513 bytes once encoded
}

TEST(KvNames, the_other_names_are_those_of_the_schema) {
  EXPECT_EQ(node_name(NodeId(7)), "okv:n:{7}");
  ClientId client{};
  client[0] = std::byte{0xab};
  EXPECT_EQ(lease_name(NodeId(7), Incarnation(0x1f), ArenaId(3), client),
            "okv:l:{7}:000000000000001f:3:ab000000000000000000000000000000");
  EXPECT_EQ(lease_pattern(NodeId(7), Incarnation(0x1f), ArenaId(3)),
            "okv:l:{7}:000000000000001f:3:*");
  EXPECT_EQ(manifest_name("t1", "chain{1}"), "okv:m:t1:{chain%7B1%7D}");
}

NodeRecord some_record() {
  NodeRecord record;
  record.node = NodeId(UINT64_MAX);
  record.incarnation = Incarnation(0xfedcba9876543210);
  record.host = "fd00::1";
  record.port = 7001;
  record.last_port = 6999;
  record.state = NodeRecord::State::draining;
  record.free_bytes = 1u << 30;
  record.up_seconds = 61;
  record.rails = {{"soft"}, {"verbs;ofi_rxm"}};
  return record;
}

TEST(KvNames, a_node_record_comes_back_as_it_was) {
  const NodeRecord record = some_record();
  EXPECT_EQ(decode_node_record(encode_node_record(record)).value(), record);
}

TEST(KvNames, a_mangled_node_record_is_refused_or_harmless) {
  const std::string text = encode_node_record(some_record());
  const std::size_t rails = text.rfind(' ');
  for (std::size_t n = 0; n <= rails; ++n)  // a cut inside the rails is another record
    EXPECT_FALSE(decode_node_record(text.substr(0, n)).ok()) << text.substr(0, n);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string changed = text;
    changed[i] = ' ';
    (void)decode_node_record(changed);
    changed[i] = static_cast<char>(0xff);
    (void)decode_node_record(changed);
  }
  EXPECT_FALSE(decode_node_record(std::string(9000, 'a')).ok());
  EXPECT_FALSE(decode_node_record("okn1 1 1 h 0 0 up 0 0 soft").ok());      // port 0
  EXPECT_FALSE(decode_node_record("okn1 1 1 h 70000 0 up 0 0 soft").ok());  // no such port
  EXPECT_FALSE(decode_node_record("okn1 1 1 h 1 0 away 0 0 soft").ok());
  EXPECT_TRUE(decode_node_record("okn1 1 1 h 1 0 up 0 0 soft").ok());
}

}  // namespace
}  // namespace farlift::kv
