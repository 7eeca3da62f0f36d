// What the tests of the parser share: values, one golden text of each type, parsing in pieces.
//
// Threads: as used by one test. Errors: none.
#pragma once

#include "core/net/resp/parser.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace farlift::resp {

template <class... Values>
inline std::vector<Value> list(Values&&... values) {
  std::vector<Value> items;
  (items.push_back(std::forward<Values>(values)), ...);
  return items;
}

inline Value bulk(std::string_view text) { return Value::text_of(Type::bulk, text); }
inline Value simple(std::string_view text) { return Value::text_of(Type::simple, text); }
inline Value integer(std::int64_t value) { return Value::integer_of(value); }

inline Value with_attributes(Value value, std::vector<Value> pairs) {
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
inline std::vector<Golden> goldens() {
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

inline Outcome parse(std::string_view wire, std::size_t piece, ParserLimits limits = {},
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

}  // namespace farlift::resp
