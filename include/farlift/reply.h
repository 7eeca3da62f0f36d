// Reply: what the server answered to an ordinary command, RESP2 or RESP3.
//
// Invariants: `items` of a map holds key, value, key, value, ...
// Threads:    plain value.      Errors: none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farlift {

enum class ReplyKind {
  nil,
  status,
  string,
  integer,
  real,
  boolean,
  big_number,
  error,
  array,
  set,
  map
};

struct Reply {
  ReplyKind kind = ReplyKind::nil;
  std::string
      text;  // status, string, big_number; error: the whole line, e.g. "ERR unknown command"
  std::int64_t integer = 0;  // integer; boolean: 0 or 1
  double real = 0.0;         // real
  std::vector<Reply> items;  // array, set, map

  bool is_nil() const noexcept { return kind == ReplyKind::nil; }
  bool is_error() const noexcept { return kind == ReplyKind::error; }
};

}  // namespace farlift
