#include "core/net/resp/parser.h"

#include "core/base/prng.h"
#include "core/net/resp/parser_test_base.h"

#include <gtest/gtest.h>

#include "tests/support/long_run.h"

namespace farlift::resp {
namespace {

TEST(RespParser, golden_values_whole_and_in_pieces) {
  for (const Golden& golden : goldens()) {
    for (std::size_t piece = 1; piece <= golden.wire.size(); ++piece) {
      const Outcome outcome = parse(golden.wire, piece);
      ASSERT_FALSE(outcome.error) << golden.name << " in pieces of " << piece << ": "
                                  << outcome.error->where;
      ASSERT_EQ(outcome.values.size(), 1U) << golden.name;
      ASSERT_TRUE(outcome.values[0] == golden.value) << golden.name;
      ASSERT_TRUE(outcome.idle);
    }
  }
}

TEST(RespParser, golden_values_back_to_back_by_feed) {
  std::string wire;
  for (const Golden& golden : goldens()) wire += golden.wire;
  Parser parser;
  parser.feed(wire);
  for (const Golden& golden : goldens()) {
    const auto value = parser.next();
    ASSERT_TRUE(value.ok() && value->has_value()) << golden.name;
    EXPECT_TRUE(**value == golden.value) << golden.name;
  }
  EXPECT_FALSE(parser.next().value().has_value());
  EXPECT_TRUE(parser.idle());
}

TEST(RespParser, every_cut_waits_for_more) {
  for (const Golden& golden : goldens()) {
    for (std::size_t cut = 0; cut < golden.wire.size(); ++cut) {
      const Outcome outcome = parse(std::string_view(golden.wire).substr(0, cut), 3);
      EXPECT_FALSE(outcome.error) << golden.name << " cut at " << cut;
      EXPECT_TRUE(outcome.values.empty()) << golden.name << " cut at " << cut;
      EXPECT_EQ(outcome.idle, cut == 0) << golden.name << " cut at " << cut;
    }
  }
}

// A damaged byte either is refused, or makes another value, or makes us wait: it never goes
// unnoticed.
TEST(RespParser, every_flip_is_refused_or_seen) {
  for (const Golden& golden : goldens()) {
    for (std::size_t at = 0; at < golden.wire.size(); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string wire = golden.wire;
        wire[at] = static_cast<char>(wire[at] ^ (1 << bit));
        const Outcome whole = parse(wire, wire.size());
        const Outcome bytewise = parse(wire, 1);
        ASSERT_EQ(whole.error.has_value(), bytewise.error.has_value())
            << golden.name << " byte " << at << " bit " << bit;
        ASSERT_EQ(whole.values.size(), bytewise.values.size())
            << golden.name << " byte " << at << " bit " << bit;
        for (std::size_t i = 0; i < whole.values.size(); ++i)
          ASSERT_TRUE(whole.values[i] == bytewise.values[i]);
        const bool same = !whole.error && whole.values.size() == 1 &&
                          whole.values[0] == golden.value && whole.idle;
        // Different words for the same thing: both nulls, and either case of an exponent.
        const bool synonym = (golden.value.is_null() && (wire[0] == '$' || wire[0] == '*')) ||
                             wire == ",-1.5E-7\r\n";
        ASSERT_TRUE(!same || synonym) << golden.name << " byte " << at << " bit " << bit;
      }
    }
  }
}

constexpr std::string_view kMalformed[] = {
    "x",
    "\r\n",
    "\n",
    "PING\r\n",
    "+OK\n",
    "+a\rb\r\n",
    "+a\nb\r\n",
    ":\r\n",
    ":1x\r\n",
    ": 1\r\n",
    ":1 \r\n",
    ":01\r\n",
    ":-0\r\n",
    ":--1\r\n",
    ":+\r\n",
    ":-\r\n",
    ":9223372036854775808\r\n",
    ":-9223372036854775809\r\n",
    ":0x10\r\n",
    ":1.0\r\n",
    "$\r\n",
    "$-2\r\n",
    "$+1\r\n",
    "$01\r\n",
    "$1x\r\n",
    "$?\r\n",
    "$1\r\nab\r\n",
    "$1\r\na\n",
    "$1\r\na\rb",
    "$-1x\r\n",
    "$18446744073709551616\r\n",
    "*\r\n",
    "*-2\r\n",
    "*?\r\n",
    "*01\r\n",
    "*1x\r\n",
    "*18446744073709551616\r\n",
    "_x\r\n",
    "#\r\n",
    "#T\r\n",
    "#tt\r\n",
    ",\r\n",
    ",x\r\n",
    ",.5\r\n",
    ",1.2.3\r\n",
    ",infinity\r\n",
    ",INF\r\n",
    ",0x1p3\r\n",
    ",1e\r\n",
    ",nan(1)\r\n",
    ",1e999\r\n",
    "(\r\n",
    "(-\r\n",
    "(12a\r\n",
    "(1.5\r\n",
    "!-1\r\n",
    "=-1\r\n",
    "=3\r\ntxt\r\n",
    "=4\r\ntxtx\r\n",
    "%-1\r\n",
    "%x\r\n",
    "~-1\r\n",
    ">-1\r\n",
    "|-1\r\n",
    "*1\r\n>1\r\n+a\r\n",
    "*1\r\n|1\r\n+a\r\n>0\r\n",
};

TEST(RespParser, malformed_input_is_refused_for_good) {
  for (const std::string_view wire : kMalformed) {
    for (const std::size_t piece : {std::size_t{1}, wire.size()}) {
      const Outcome outcome = parse(wire, piece);
      ASSERT_TRUE(outcome.error) << wire;
      EXPECT_EQ(outcome.error->code, Errc::protocol) << wire;
      EXPECT_TRUE(outcome.values.empty()) << wire;
    }
    Parser parser;
    parser.feed(wire);
    ASSERT_FALSE(parser.next().ok());
    parser.feed("+OK\r\n");
    EXPECT_EQ(parser.next().code(), Errc::protocol) << wire;
  }
}

TEST(RespParser, resp3_types_are_violations_in_resp2) {
  ParserLimits limits;
  limits.resp3 = false;
  for (const Golden& golden : goldens()) {
    const bool plain = std::string_view("+-:$*").find(golden.wire[0]) != std::string_view::npos;
    if (golden.name.starts_with("attribute of an")) continue;  // starts as an array
    const Outcome outcome = parse(golden.wire, 2, limits);
    EXPECT_EQ(outcome.error.has_value(), !plain) << golden.name;
    EXPECT_FALSE(golden.resp2 && outcome.error) << golden.name;
  }
}

// Random trees, written by this test's own encoder, arrive in random pieces.
struct Generator {
  explicit Generator(std::uint64_t seed) : prng(seed) {}

  std::string text(std::size_t max) {
    std::string out(static_cast<std::size_t>(prng.below(max)), ' ');
    for (char& c : out) c = static_cast<char>(prng.below(256));
    return out;
  }

  Value make(int depth, std::string& wire) {
    const std::uint64_t kind = prng.below(depth > 0 ? 9 : 6);
    switch (kind) {
      case 0:
        wire += "_\r\n";
        return Value();
      case 1: {
        const auto number = static_cast<std::int64_t>(prng.next());
        wire += ":" + std::to_string(number) + "\r\n";
        return integer(number);
      }
      case 2:
        wire += "+ready\r\n";
        return simple("ready");
      case 3:
        wire += "#t\r\n";
        return Value::boolean_of(true);
      case 4:
      case 5: {
        const std::string body = text(prng.chance(1, 8) ? 200'000 : 64);
        wire += "$" + std::to_string(body.size()) + "\r\n" + body + "\r\n";
        return bulk(body);
      }
      default: {
        const bool map = kind == 6;
        const std::uint64_t count = prng.below(5);
        wire += (map ? "%" : kind == 7 ? "*" : "~") + std::to_string(count) + "\r\n";
        std::vector<Value> items;
        for (std::uint64_t i = 0; i < count * (map ? 2 : 1); ++i)
          items.push_back(make(depth - 1, wire));
        return Value::aggregate_of(map         ? Type::map
                                   : kind == 7 ? Type::array
                                               : Type::set,
                                   std::move(items));
      }
    }
  }

  Prng prng;
};

TEST(RespParser, random_trees_in_random_pieces) {
  for (std::uint64_t seed = 0; seed < testing::repeats(100u, 2000u); ++seed) {
    Generator generator(seed);
    std::string wire;
    std::vector<Value> expected;
    for (int i = 0; i < 8; ++i) expected.push_back(generator.make(4, wire));
    const std::size_t piece =
        1 +
        static_cast<std::size_t>(generator.prng.below(generator.prng.chance(1, 2) ? 100 : 70'000));
    const Outcome outcome = parse(wire, std::max(piece, wire.size() / 20'000), {});
    ASSERT_FALSE(outcome.error) << "seed " << seed;
    ASSERT_TRUE(outcome.values == expected) << "seed " << seed;
  }
}

TEST(RespValue, accessors_and_lookup) {
  const Value map =
      Value::aggregate_of(Type::map, list(integer(1), integer(2), bulk("key"), integer(3)));
  ASSERT_NE(map.find("key"), nullptr);
  EXPECT_EQ(map.find("key")->integer(), 3);
  EXPECT_EQ(map.find("1"), nullptr);
  EXPECT_FALSE(bulk("a") == simple("a"));
  EXPECT_FALSE(with_attributes(integer(1), list(integer(1), integer(1))) == integer(1));
  EXPECT_DEATH(static_cast<void>(map.integer()), "integer");
}

}  // namespace
}  // namespace farlift::resp
