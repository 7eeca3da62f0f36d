// Parser: turns received bytes into Values, incrementally and within named limits.
//
//   for (;;) {
//     TRY_ASSIGN(std::optional<Value> value, parser.next());
//     if (value) return value;
//     const auto areas = parser.areas();              // read into these, in order
//     TRY_ASSIGN(const std::size_t got, stream.try_read(areas.used()));
//     parser.commit(got);
//   }
//
// Invariants: memory grows with what was received, never with what was announced. A long bulk
//             string is received where it will stay, not copied. After an error the parser stays
//             failed: there is no way to find the next reply.
// Threads:    one at a time.
// Errors:     protocol (malformed), too_large (a limit was passed), no_memory.
#pragma once

#include "core/base/result.h"
#include "core/net/resp/value.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <sys/uio.h>
#include <vector>

namespace farlift::resp {

struct ParserLimits {
  std::size_t line_bytes_max = 64u << 10;  // a header, simple string or error line
  std::uint64_t bulk_bytes_max = std::uint64_t{16} << 30;
  std::uint64_t reply_bytes_max = std::uint64_t{17} << 30;  // all text of one reply together
  std::uint64_t elements_max = 4u << 20;  // of all aggregates of one reply together
  std::size_t depth_max = 32;             // aggregates inside aggregates
  bool resp3 = true;                      // false: RESP3's own types are violations
};

class Parser {
 public:
  explicit Parser(ParserLimits limits = {});

  // The next whole value; nullopt: more bytes are needed.
  Result<std::optional<Value>> next();

  // After next() has answered nullopt: where to receive the next bytes, first the rest of a bulk
  // string in progress, then the general buffer.
  struct Areas {
    std::array<iovec, 2> iov{};
    std::size_t count = 0;
    std::span<const iovec> used() const noexcept { return {iov.data(), count}; }
  };
  Areas areas();
  void commit(std::size_t received);
  // The same by copying.
  void feed(std::span<const std::byte> bytes);
  void feed(std::string_view bytes) { feed(std::as_bytes(std::span(bytes.data(), bytes.size()))); }

  // The first bulk string of the next reply (not of a push message or an attribute) is received
  // into `memory` if it fits; its Value is then borrowed(). An empty span takes the offer back. A
  // bulk string already begun stays where it is.
  void offer_bulk(std::span<std::byte> memory) noexcept { offered_ = memory; }

  bool idle() const noexcept;  // nothing received that is not part of a value already returned
  // Bytes are here that next() has not looked at.
  bool has_unparsed() const noexcept { return unread() > 0 && !starved_; }
  void set_resp3(bool on) noexcept { limits_.resp3 = on; }

 private:
  struct Frame {
    Value value;                    // the aggregate being filled
    std::uint64_t remaining = 0;    // elements to come
    bool attribute = false;         // its items become attributes of the next value outside
    std::vector<Value> attributes;  // pending, for the next element inside
  };
  struct Bulk {
    char type = 0;  // '$', '!' or '='; 0: none in progress
    std::uint64_t length = 0;
    std::uint64_t received = 0;
    ByteBuffer bytes;  // owned, or `target` is used
    std::span<std::byte> target;
  };
  enum class Step : std::uint8_t { need_more, value_done, again };

  Result<Step> step(Value& out);
  Result<Step> begin_bulk(char type, std::string_view digits, Value& out);
  Result<Step> continue_bulk(Value& out);
  Result<Step> begin_aggregate(char type, std::string_view digits, Value& out);
  Result<Value> scalar(char type, std::string_view line);
  Result<Step> deliver(Value&& value, Value& out);
  Result<std::optional<std::string_view>> take_line();
  Status grow_bulk();
  Status count_bytes(std::uint64_t bytes);
  Error fail(Errc code, const char* where);
  void compact() noexcept;

  std::size_t unread() const noexcept { return end_ - begin_; }

  ParserLimits limits_;
  std::vector<std::byte> in_;  // received and not yet consumed: [begin_, end_)
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool starved_ = false;     // next() has answered nullopt since bytes came
  std::size_t scanned_ = 0;  // bytes after begin_ known to hold no line end
  Bulk bulk_;
  std::vector<Frame> frames_;
  std::vector<Value> attributes_;  // pending, for the next top-level value
  std::span<std::byte> offered_;
  std::uint64_t reply_bytes_ = 0;
  std::uint64_t reply_elements_ = 0;
  std::optional<Error> failed_;
};

}  // namespace farlift::resp
