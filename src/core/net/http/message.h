// Heads of HTTP/1.1 messages, and how they are read from and written as bytes.
//
// Invariants: the length of a parsed request's body is beyond doubt: none, one Content-Length, or
//             chunked. Target and field values are kept byte for byte: signatures cover them.
// Threads:    plain values.
// Errors:     a Refusal: the status to answer with, and a sentence that says what was wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace farlift::net::http {

inline constexpr std::size_t kFieldsMax = 256;           // header fields of one message
inline constexpr std::size_t kHeadBytesMax = 64 * 1024;  // first line and fields

struct Field {
  std::string name;   // as sent
  std::string value;  // without blanks around it
};

// Header fields in the order they came; names compare without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<Field> fields) : fields_(fields) {}
  const std::string* find(std::string_view name) const noexcept;  // the first value, or null
  std::string_view get(std::string_view name) const noexcept;     // empty when absent
  std::size_t count(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
  void add(std::string name, std::string value) {
    fields_.push_back({std::move(name), std::move(value)});
  }
  void set(std::string_view name, std::string value);  // instead of all of that name
  void remove(std::string_view name);
  const std::vector<Field>& all() const noexcept { return fields_; }

 private:
  std::vector<Field> fields_;
};

bool same_name(std::string_view a, std::string_view b) noexcept;  // ASCII, without case

struct RequestHead {
  std::string method;
  std::string target;  // byte for byte; an absolute form is reduced to path and query
  bool http10 = false;
  Headers headers;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
  bool expects_continue = false;
};

struct ResponseHead {
  std::uint32_t status = 0;
  Headers headers;
  std::optional<std::uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
};

struct Refusal {
  std::uint32_t status = 400;
  std::string text;
};

// `head` is everything up to and with the empty line.
std::variant<RequestHead, Refusal> parse_request_head(std::string_view head);
std::variant<ResponseHead, Refusal> parse_response_head(std::string_view head);

std::string_view reason_phrase(std::uint32_t status) noexcept;
// True when neither name nor value could end a line or the head early.
bool valid_field(std::string_view name, std::string_view value) noexcept;
// A first line and the fields, with the empty line. Fields that are not valid_field() are dropped:
// a value that came from a peer must not become two lines.
std::string format_head(std::string_view first_line, const Headers& headers);
// "Tue, 01 Dec 2026 07:00:00 GMT"
std::string format_date(std::int64_t seconds_since_epoch);
// Any of the three forms of RFC 9110 5.6.7; nullopt when it is none.
std::optional<std::int64_t> parse_date(std::string_view text);

}  // namespace farlift::net::http
