// JSON as our lines carry it (RFC 8259): a strict reader into plain values, and a writer.
//
//   TRY_ASSIGN(const Json line, Json::parse(text));
//   const Json* size = line.find("size");
//   if (size == nullptr || !size->u64()) return refuse("size");
//
//   JsonWriter out;
//   out.begin_object().key("id").text(id).key("bytes").number(n).end_object();
//
// Invariants: one value and nothing after it but blanks; text is valid UTF-8; no name occurs twice
//             in one object; no deeper than kDepthMax, no more than kValuesMax values. An integer
//             without fraction and exponent that fits 64 bits is exact. The writer's output is
//             always readable by the reader: bytes that are no UTF-8 come out as U+FFFD.
// Threads:    plain values. Errors: invalid_argument; too_large for the two maxima.
#pragma once

#include "core/base/result.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace farlift::codec {

class Json {
 public:
  static constexpr std::size_t kDepthMax = 32;
  static constexpr std::size_t kValuesMax = std::size_t{1} << 20;
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in the order written

  static Result<Json> parse(std::string_view text);

  Json() = default;  // null

  bool is_null() const noexcept { return std::holds_alternative<std::monostate>(value_); }
  // The value as what it is asked for, or nothing; no conversions, except that any number has a
  // real().
  std::optional<bool> boolean() const noexcept;
  std::optional<std::uint64_t> u64() const noexcept;
  std::optional<std::int64_t> i64() const noexcept;
  std::optional<double> real() const noexcept;
  const std::string* text() const noexcept { return std::get_if<std::string>(&value_); }
  const Array* array() const noexcept { return std::get_if<Array>(&value_); }
  const Object* object() const noexcept { return std::get_if<Object>(&value_); }
  // A member of an object; nullptr when this is none or has no such member.
  const Json* find(std::string_view name) const noexcept;

 private:
  friend class JsonReader;
  // Non-negative integers are uint64_t, negative ones int64_t.
  std::variant<std::monostate, bool, std::uint64_t, std::int64_t, double, std::string, Array,
               Object>
      value_;
};

// Appends values; the caller keeps begin and end in pairs and gives a key before each member.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& text(std::string_view value);
  JsonWriter& number(std::uint64_t value);
  JsonWriter& boolean(bool value);
  JsonWriter& null();

  const std::string& str() const noexcept { return out_; }
  // The line, ended by LF; the writer is then empty.
  std::string line();

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();
  void quote(std::string_view value);

  std::string out_;
  bool first_ = true;  // nothing stands before in this object or array
};

}  // namespace farlift::codec
