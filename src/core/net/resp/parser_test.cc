#include "core/net/resp/parser.h"

#include "core/base/prng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace farlift::resp {
namespace {

template <class... Values>
std::vector<Value> list(Values&&... values) {
  std::vector<Value> items;
  (items.push_back(std::forward<Values>(values)), ...);
  return items;
}

Value bulk(std::string_view text) { return Value::text_of(Type::bulk, text); }
Value simple(std::string_view text) { return Value::text_of(Type::simple, text); }
Value integer(std::int64_t value) { return Value::integer_of(value); }

Value with_attributes(Value value, std::vector<Value> pairs) {
  value.add_attributes(std::move(pairs));
  return value;
}

struct Golden {
  std::string name;
  std::string wire;
  Value value;
  bool resp2 = true;
};

// One of each type and of each corner of it. The texts are those of the published protocol
// descriptions where they have an example.
std::vector<Golden> goldens() {
  std::vector<Golden> all;
  const auto add = [&all](std::string name, std::string wire, Value value, bool resp2 = false) {
    all.push_back({std::move(name), std::move(wire), std::move(value), resp2});
  };
  add("simple", "+OK\r\n", simple("OK"), true);
  add("simple empty", "+\r\n", simple(""), true);
  add("error", "-ERR unknown command\r\n", Value::text_of(Type::error, "ERR unknown command"),
      true);
  add("integer", ":1000\r\n", integer(1000), true);
  add("integer zero", ":0\r\n", integer(0), true);
  add("integer negative", ":-42\r\n", integer(-42), true);
  add("integer least", ":-9223372036854775808\r\n",
      integer(std::numeric_limits<std::int64_t>::min()), true);
  add("integer greatest", ":9223372036854775807\r\n",
      integer(std::numeric_limits<std::int64_t>::max()), true);
  add("integer plus", ":+7\r\n", integer(7));
  add("bulk", "$5\r\nhello\r\n", bulk("hello"), true);
  add("bulk empty", "$0\r\n\r\n", bulk(""), true);
  add("bulk with line ends", "$4\r\n\r\n\r\n\r\n", bulk("\r\n\r\n"), true);
  add("bulk with zero byte", std::string("$3\r\na\0b\r\n", 9), bulk(std::string_view("a\0b", 3)),
      true);
  add("null bulk", "$-1\r\n", Value(), true);
  add("null array", "*-1\r\n", Value(), true);
  add("array empty", "*0\r\n", Value::aggregate_of(Type::array, {}), true);
  add("array mixed", "*3\r\n:1\r\n$3\r\ntwo\r\n$-1\r\n",
      Value::aggregate_of(Type::array, list(integer(1), bulk("two"), Value())), true);
  add("array nested", "*2\r\n*2\r\n:1\r\n:2\r\n*1\r\n+x\r\n",
      Value::aggregate_of(Type::array,
                          list(Value::aggregate_of(Type::array, list(integer(1), integer(2))),
                               Value::aggregate_of(Type::array, list(simple("x"))))),
      true);
  add("null", "_\r\n", Value());
  add("true", "#t\r\n", Value::boolean_of(true));
  add("false", "#f\r\n", Value::boolean_of(false));
  add("double", ",1.23\r\n", Value::real_of(1.23));
  add("double whole", ",10\r\n", Value::real_of(10));
  add("double exponent", ",-1.5e-7\r\n", Value::real_of(-1.5e-7));
  add("double inf", ",inf\r\n", Value::real_of(std::numeric_limits<double>::infinity()));
  add("double -inf", ",-inf\r\n", Value::real_of(-std::numeric_limits<double>::infinity()));
  add("double nan", ",nan\r\n", Value::real_of(std::nan("")));
  add("big number", "(3492890328409238509324850943850943825024385\r\n",
      Value::text_of(Type::big_number, "3492890328409238509324850943850943825024385"));
  add("bulk error", "!21\r\nSYNTAX invalid syntax\r\n",
      Value::text_of(Type::error, "SYNTAX invalid syntax"));
  add("verbatim", "=15\r\ntxt:Some string\r\n",
      Value::verbatim_of("txt", ByteBuffer("Some string")));
  add("verbatim empty", "=4\r\nmkd:\r\n", Value::verbatim_of("mkd", ByteBuffer("")));
  add("map", "%2\r\n+first\r\n:1\r\n+second\r\n:2\r\n",
      Value::aggregate_of(Type::map,
                          list(simple("first"), integer(1), simple("second"), integer(2))));
  add("set", "~2\r\n+a\r\n:5\r\n", Value::aggregate_of(Type::set, list(simple("a"), integer(5))));
  add("push", ">2\r\n+message\r\n$2\r\nhi\r\n",
      Value::aggregate_of(Type::push, list(simple("message"), bulk("hi"))));
  add("attribute", "|1\r\n+ttl\r\n:3600\r\n:7\r\n",
      with_attributes(integer(7), list(simple("ttl"), integer(3600))));
  add("attribute of an element", "*2\r\n:1\r\n|1\r\n+a\r\n*1\r\n:2\r\n*1\r\n:3\r\n",
      Value::aggregate_of(
          Type::array,
          list(integer(1),
               with_attributes(
                   Value::aggregate_of(Type::array, list(integer(3))),
                   list(simple("a"), Value::aggregate_of(Type::array, list(integer(2))))))));
  add("attribute of null", "|1\r\n+a\r\n+b\r\n$-1\r\n",
      with_attributes(Value(), list(simple("a"), simple("b"))));
  return all;
}

// Everything that comes out of `wire` when it arrives in pieces of `piece` bytes, through areas()
// as from a socket.
struct Outcome {
  std::vector<Value> values;
  std::optional<Error> error;
  bool idle = false;
};

Outcome parse(std::string_view wire, std::size_t piece, ParserLimits limits = {},
              std::span<std::byte> offer = {}) {
  Parser parser(limits);
  Outcome outcome;
  if (offer.data() != nullptr) parser.offer_bulk(offer);
  for (;;) {
    Result<std::optional<Value>> value = parser.next();
    if (!value.ok()) {
      outcome.error = value.error();
      return outcome;
    }
    if (*value) {
      outcome.values.push_back(*std::move(*value));
      continue;
    }
    if (wire.empty()) break;
    const Parser::Areas areas = parser.areas();
    std::size_t left = std::min(piece, wire.size());
    std::size_t received = 0;
    for (const iovec& area : areas.used()) {
      const std::size_t part = std::min(left, area.iov_len);
      std::memcpy(area.iov_base, wire.data(), part);
      wire.remove_prefix(part);
      left -= part;
      received += part;
    }
    parser.commit(received);
  }
  outcome.idle = parser.idle();
  return outcome;
}

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

TEST(RespParser, malformed_input_is_refused_for_good) {
  const std::string_view cases[] = {
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
  for (const std::string_view wire : cases) {
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

TEST(RespParser, limits_are_exact) {
  ParserLimits limits;
  limits.line_bytes_max = 10;
  limits.bulk_bytes_max = 100;
  limits.reply_bytes_max = 150;
  limits.elements_max = 6;
  limits.depth_max = 3;
  const auto code = [&](const std::string& wire) {
    const Outcome outcome = parse(wire, 7, limits);
    if (outcome.error) return outcome.error->code;
    EXPECT_EQ(outcome.values.size(), 1U) << wire;
    return Errc{};
  };
  const auto of_bulk = [](std::size_t n) {
    return "$" + std::to_string(n) + "\r\n" + std::string(n, 'x') + "\r\n";
  };
  EXPECT_EQ(code("+" + std::string(9, 'a') + "\r\n"), Errc{});
  EXPECT_EQ(code("+" + std::string(10, 'a') + "\r\n"), Errc::too_large);
  EXPECT_EQ(code("+" + std::string(1000, 'a')), Errc::too_large);
  EXPECT_EQ(code(of_bulk(100)), Errc{});
  EXPECT_EQ(code(of_bulk(101)), Errc::too_large);
  EXPECT_EQ(code("$101\r\n"), Errc::too_large);  // at the header, not after the bytes
  EXPECT_EQ(code("*2\r\n" + of_bulk(100) + of_bulk(50)), Errc{});
  EXPECT_EQ(code("*2\r\n" + of_bulk(100) + of_bulk(51)), Errc::too_large);
  EXPECT_EQ(code("*6\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Errc{});
  EXPECT_EQ(code("*7\r\n"), Errc::too_large);
  EXPECT_EQ(code("%3\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"), Errc{});
  EXPECT_EQ(code("%4\r\n"), Errc::too_large);
  EXPECT_EQ(code("*5\r\n*2\r\n"), Errc::too_large);
  EXPECT_EQ(code("|3\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n*1\r\n"), Errc::too_large);
  EXPECT_EQ(code("*1\r\n*1\r\n*1\r\n:1\r\n"), Errc{});
  EXPECT_EQ(code("*1\r\n*1\r\n*1\r\n*1\r\n"), Errc::too_large);
  EXPECT_EQ(code("*1\r\n*1\r\n*1\r\n*0\r\n"), Errc::too_large);
  EXPECT_EQ(code("%9223372036854775808\r\n"), Errc::too_large);
}

TEST(RespParser, limits_count_each_reply_anew) {
  ParserLimits limits;
  limits.reply_bytes_max = 4;
  limits.elements_max = 2;
  std::string wire;
  for (int i = 0; i < 20; ++i) wire += "*2\r\n$2\r\nab\r\n$2\r\ncd\r\n";
  const Outcome outcome = parse(wire, 5, limits);
  EXPECT_FALSE(outcome.error);
  EXPECT_EQ(outcome.values.size(), 20U);
}

// Sixteen gigabytes announced, some bytes sent: what is held stays in proportion to the latter.
TEST(RespParser, announced_lengths_allocate_nothing) {
  Parser parser;
  parser.feed("$17179869184\r\n");
  ASSERT_TRUE(parser.next().ok());
  std::size_t sent = 0;
  std::size_t largest = 0;
  while (sent < (8U << 20)) {
    const Parser::Areas areas = parser.areas();
    ASSERT_EQ(areas.count, 1U);
    largest = std::max(largest, areas.iov[0].iov_len);
    ASSERT_LE(areas.iov[0].iov_len, std::max<std::size_t>(64 * 1024, sent));
    std::memset(areas.iov[0].iov_base, 'x', areas.iov[0].iov_len);
    sent += areas.iov[0].iov_len;
    parser.commit(areas.iov[0].iov_len);
    ASSERT_FALSE(parser.next().value().has_value());
  }
  EXPECT_GT(largest, 1U << 20);  // and it does grow, so that long replies take few reads
}

TEST(RespParser, long_bulk_is_received_in_place_with_what_follows) {
  const std::string body(100'000, 'b');
  Parser parser;
  std::vector<std::byte> memory(body.size());
  parser.offer_bulk(memory);
  parser.feed("$100000\r\n");
  ASSERT_FALSE(parser.next().value().has_value());
  const Parser::Areas areas = parser.areas();
  ASSERT_EQ(areas.count, 2U);
  EXPECT_EQ(areas.iov[0].iov_base, memory.data());
  EXPECT_EQ(areas.iov[0].iov_len, body.size());
  std::memcpy(areas.iov[0].iov_base, body.data(), body.size());
  std::memcpy(areas.iov[1].iov_base, "\r\n:5\r\n", 6);
  parser.commit(body.size() + 6);
  const auto value = parser.next();
  ASSERT_TRUE((*value)->borrowed());
  EXPECT_TRUE((*value)->text() == body);
  EXPECT_EQ(parser.next().value()->integer(), 5);
}

TEST(RespParser, offer_is_for_the_first_bulk_of_the_next_reply_only) {
  const std::string wire =
      ">2\r\n$4\r\npush\r\n$1\r\nx\r\n|1\r\n$3\r\nkey\r\n$3\r\nval\r\n*3\r\n:1\r\n$5\r\nfirst\r\n$"
      "6\r\nsecond\r\n$5\r\nlater\r\n";
  for (std::size_t piece = 1; piece < wire.size(); ++piece) {
    std::vector<std::byte> memory(8, std::byte{0});
    const Outcome outcome = parse(wire, piece, {}, memory);
    ASSERT_EQ(outcome.values.size(), 3U);
    const auto items = outcome.values[1].items();
    EXPECT_TRUE(items[1].borrowed());
    EXPECT_EQ(items[1].text(), "first");
    EXPECT_FALSE(items[2].borrowed());
    EXPECT_FALSE(outcome.values[2].borrowed());
    EXPECT_FALSE(outcome.values[0].items()[0].borrowed());
    EXPECT_FALSE(outcome.values[1].attributes()[0].borrowed());
    EXPECT_EQ(std::memcmp(memory.data(), "first\0\0\0", 8), 0);
  }
}

TEST(RespParser, offer_that_is_too_small_stays_untouched) {
  std::vector<std::byte> memory(4, std::byte{0x5a});
  const Outcome outcome = parse("*2\r\n$5\r\nfirst\r\n$2\r\nab\r\n", 3, {}, memory);
  ASSERT_EQ(outcome.values.size(), 1U);
  EXPECT_FALSE(outcome.values[0].items()[0].borrowed());
  EXPECT_FALSE(outcome.values[0].items()[1].borrowed());
  for (const std::byte byte : memory) EXPECT_EQ(byte, std::byte{0x5a});
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
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
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
