// Slots, error replies and topologies: pure functions.
#include "core/base/prng.h"
#include "core/net/resp/parser.h"
#include "core/net/resp/reply_error.h"
#include "core/net/resp/slot.h"
#include "core/net/resp/topology.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace farlift::resp {
namespace {

// The check value of CRC-16/XMODEM in the public catalogue of CRC algorithms.
TEST(Slot, crc16_check_value) {
  EXPECT_EQ(crc16("123456789"), 0x31C3);
  EXPECT_EQ(crc16(""), 0);
}

TEST(Slot, known_keys) {  // as CLUSTER KEYSLOT of valkey-server 8.0 answers
  EXPECT_EQ(key_slot("foo"), 12182);
  EXPECT_EQ(key_slot("bar"), 5061);
  EXPECT_EQ(key_slot(""), 0);
  EXPECT_EQ(key_slot("{foo}bar"), 12182);
}

TEST(Slot, hash_tags) {
  EXPECT_EQ(hash_tag("{user1000}.following"), "user1000");
  EXPECT_EQ(hash_tag("foo{}{bar}"), "foo{}{bar}");
  EXPECT_EQ(hash_tag("foo{{bar}}zap"), "{bar");
  EXPECT_EQ(hash_tag("foo{bar}{zap}"), "bar");
  EXPECT_EQ(hash_tag("foo{bar"), "foo{bar");
  EXPECT_EQ(hash_tag("}foo{bar}"), "bar");
}

TEST(Slot, common_slot_or_crossslot) {
  const std::string_view same[] = {"{a}1", "{a}2", "a"};
  EXPECT_EQ(common_slot(same).value(), key_slot("a"));
  const std::string_view different[] = {"{a}1", "{b}2"};
  EXPECT_EQ(common_slot(different).code(), Errc::invalid_argument);
}

TEST(ReplyErrorTest, redirections) {
  const ReplyError moved = ReplyError::parse("MOVED 3999 127.0.0.1:6381");
  EXPECT_EQ(moved.kind, ReplyError::Kind::moved);
  EXPECT_EQ(moved.slot, 3999);
  EXPECT_EQ(moved.target, (Endpoint{"127.0.0.1", 6381}));
  const ReplyError ask = ReplyError::parse("ASK 16383 valkey.example:1");
  EXPECT_EQ(ask.kind, ReplyError::Kind::ask);
  EXPECT_EQ(ask.target, (Endpoint{"valkey.example", 1}));
  EXPECT_EQ(ReplyError::parse("MOVED 1 2001:db8::1:6379").target, (Endpoint{"2001:db8::1", 6379}));
  EXPECT_EQ(ReplyError::parse("MOVED 1 [2001:db8::1]:6379").target,
            (Endpoint{"2001:db8::1", 6379}));
  EXPECT_EQ(ReplyError::parse("MOVED 1 :6379").target, (Endpoint{"", 6379}));
  EXPECT_EQ(ReplyError::parse("MOVED 1 ?:6379").target, (Endpoint{"", 6379}));
  EXPECT_EQ((Endpoint{"::1", 5}).text(), "[::1]:5");
}

TEST(ReplyErrorTest, malformed_redirections_are_plain_errors) {
  for (const std::string_view text :
       {"MOVED", "MOVED ", "MOVED 1", "MOVED 16384 h:1", "MOVED -1 h:1", "MOVED x h:1", "MOVED 1 h",
        "MOVED 1 h:", "MOVED 1 h:0", "MOVED 1 h:65536", "MOVED 1 h:1x", "MOVED  1 h:1",
        "ASK 1 h:-1", "MOVEDX 1 h:1", "moved 1 h:1"}) {
    const ReplyError error = ReplyError::parse(text);
    EXPECT_EQ(error.kind, ReplyError::Kind::other) << text;
    EXPECT_TRUE(error.target.host.empty()) << text;
  }
}

TEST(ReplyErrorTest, kinds) {
  using Kind = ReplyError::Kind;
  EXPECT_EQ(ReplyError::parse("TRYAGAIN Multiple keys").kind, Kind::try_again);
  EXPECT_EQ(ReplyError::parse("CLUSTERDOWN The cluster is down").kind, Kind::cluster_down);
  EXPECT_EQ(ReplyError::parse("CROSSSLOT Keys in request").kind, Kind::cross_slot);
  EXPECT_EQ(ReplyError::parse("LOADING").kind, Kind::loading);
  EXPECT_EQ(ReplyError::parse("READONLY You can't write").kind, Kind::read_only);
  EXPECT_EQ(ReplyError::parse("NOPERM no").kind, Kind::no_auth);
  EXPECT_EQ(ReplyError::parse("ERR MOVED 1 h:1").kind, Kind::other);
  EXPECT_EQ(ReplyError::parse("ERR MOVED 1 h:1").code, "ERR");
  EXPECT_EQ(ReplyError::parse("").code, "");
  EXPECT_TRUE(ReplyError::parse("TRYAGAIN x").is_retryable());
  EXPECT_FALSE(ReplyError::parse("CROSSSLOT x").is_retryable());
  EXPECT_FALSE(ReplyError::parse("MOVED 1 h:1").is_retryable());
}

Value value_of(std::string_view wire) {
  Parser parser;
  parser.feed(wire);
  auto value = parser.next();
  EXPECT_TRUE(value.ok() && value->has_value()) << wire;
  return *std::move(*value);
}

const Endpoint kSelf{"10.0.0.9", 7000};

TEST(TopologyTest, from_cluster_slots) {
  const Value reply = value_of(
      "*3\r\n"
      "*3\r\n:0\r\n:5460\r\n*3\r\n$9\r\n127.0.0.1\r\n:30001\r\n$2\r\nid\r\n"
      "*4\r\n:5461\r\n:10922\r\n*2\r\n$0\r\n\r\n:30002\r\n*2\r\n$1\r\nr\r\n:1\r\n"
      "*3\r\n:10923\r\n:16383\r\n*2\r\n$-1\r\n:30003\r\n");
  const auto topology = Topology::from_slots(reply, kSelf);
  ASSERT_TRUE(topology.ok());
  EXPECT_EQ(topology->slots_covered(), kSlotCount);
  EXPECT_EQ(*topology->owner(0), (Endpoint{"127.0.0.1", 30001}));
  EXPECT_EQ(*topology->owner(5460), (Endpoint{"127.0.0.1", 30001}));
  EXPECT_EQ(*topology->owner(5461), (Endpoint{"10.0.0.9", 30002}));  // does not know its own name
  EXPECT_EQ(*topology->owner(16383), (Endpoint{"10.0.0.9", 30003}));
  EXPECT_EQ(topology->nodes().size(), 3U);
}

TEST(TopologyTest, from_cluster_shards_in_both_protocols) {
  const std::string node =
      "$2\r\nid\r\n$1\r\nx\r\n$4\r\nport\r\n:30001\r\n$8\r\ntls-port\r\n:30002\r\n$"
      "8\r\nendpoint\r\n$3\r\nh.1\r\n"
      "$4\r\nrole\r\n$6\r\nmaster\r\n";
  const std::string slots = "$5\r\nslots\r\n*4\r\n:0\r\n:1\r\n:4\r\n:4\r\n$5\r\nnodes\r\n*1\r\n";
  for (const std::string& wire :
       {"*1\r\n%2\r\n" + slots + "%5\r\n" + node, "*1\r\n*4\r\n" + slots + "*10\r\n" + node}) {
    const auto plain = Topology::from_shards(value_of(wire), kSelf, false);
    ASSERT_TRUE(plain.ok());
    EXPECT_EQ(plain->slots_covered(), 3U);
    EXPECT_EQ(*plain->owner(4), (Endpoint{"h.1", 30001}));
    EXPECT_EQ(plain->owner(2), nullptr);
    EXPECT_EQ(*Topology::from_shards(value_of(wire), kSelf, true)->owner(4),
              (Endpoint{"h.1", 30002}));
  }
}

TEST(TopologyTest, malformed_replies_are_refused) {
  for (const std::string_view wire :
       {"+OK\r\n", "*1\r\n:1\r\n", "*1\r\n*2\r\n:0\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:16384\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:5\r\n:4\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:-1\r\n:4\r\n*2\r\n$1\r\nh\r\n:1\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\nh\r\n:0\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*2\r\n$1\r\nh\r\n:65536\r\n",
        "*1\r\n*3\r\n:0\r\n:4\r\n*1\r\n$1\r\nh\r\n", "*1\r\n*3\r\n:0\r\n:4\r\n+h\r\n",
        "*1\r\n*3\r\n$1\r\n0\r\n:4\r\n*2\r\n$1\r\nh\r\n:1\r\n"}) {
    EXPECT_EQ(Topology::from_slots(value_of(wire), kSelf).code(), Errc::protocol) << wire;
    EXPECT_EQ(Topology::from_shards(value_of(wire), kSelf, false).code(), Errc::protocol) << wire;
  }
  EXPECT_EQ(Topology::from_slots(value_of("*0\r\n"), kSelf)->slots_covered(), 0U);
}

TEST(TopologyTest, moves_and_their_limit) {
  Topology topology;
  EXPECT_EQ(topology.owner(7), nullptr);
  topology.move(7, {"a", 1});
  EXPECT_EQ(*topology.owner(7), (Endpoint{"a", 1}));
  for (std::uint16_t i = 0; i < Topology::kNodesMax + 100; ++i)
    topology.move(8, {"n", static_cast<std::uint16_t>(i + 1)});
  EXPECT_EQ(topology.nodes().size(), Topology::kNodesMax);
  EXPECT_NE(topology.owner(8), nullptr);
  EXPECT_EQ(topology.owner(16384), nullptr);
}

}  // namespace
}  // namespace farlift::resp
