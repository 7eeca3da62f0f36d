#include "core/codec/json.h"

#include "core/base/assert.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace farlift::codec {
namespace {

// The length of the UTF-8 sequence at the front of `text`, or 0 when there is no valid one: no
// overlong forms, no surrogates, nothing above U+10FFFF (RFC 3629).
std::size_t utf8_length(std::string_view text) noexcept {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length || at(1) < low || at(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (at(i) < 0x80 || at(i) > 0xBF) return 0;
  }
  return length;
}

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | (point >> 6));
    put(0x80 | (point & 63));
  } else if (point < 0x10000) {
    put(0xE0 | (point >> 12));
    put(0x80 | ((point >> 6) & 63));
    put(0x80 | (point & 63));
  } else {
    put(0xF0 | (point >> 18));
    put(0x80 | ((point >> 12) & 63));
    put(0x80 | ((point >> 6) & 63));
    put(0x80 | (point & 63));
  }
}

constexpr bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

}  // namespace

class JsonReader {
 public:
  explicit JsonReader(std::string_view text) noexcept : rest_(text) {}

  Status whole(Json& out) {
    TRY(value_into(out, 0));
    skip_blanks();
    return rest_.empty() ? Status() : malformed();
  }

 private:
  static Error malformed() noexcept { return Error::make(Errc::invalid_argument, "JSON"); }
  static Error too_large() noexcept { return Error::make(Errc::too_large, "JSON"); }

  void skip_blanks() noexcept {
    const std::size_t at = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at);
  }
  bool take(char c) noexcept {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  bool take(std::string_view word) noexcept {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }

  // Each call is one value, made where it stays; the depth is bounded, so the recursion is.
  Status value_into(Json& out, std::size_t depth) {  // NOLINT(misc-no-recursion)
    if (depth > Json::kDepthMax || ++values_ > Json::kValuesMax) return too_large();
    skip_blanks();
    if (rest_.empty()) return malformed();
    switch (rest_.front()) {
      case '{':
        return object_into(out, depth);
      case '[':
        return array_into(out, depth);
      case '"':
        return text_into(out.value_.emplace<std::string>());
      case 't':
        out.value_ = true;
        return take("true") ? Status() : malformed();
      case 'f':
        out.value_ = false;
        return take("false") ? Status() : malformed();
      case 'n':
        return take("null") ? Status() : malformed();
      default:
        return number_into(out);
    }
  }

  Status array_into(Json& out, std::size_t depth) {  // NOLINT(misc-no-recursion)
    take('[');
    Json::Array& items = out.value_.emplace<Json::Array>();
    skip_blanks();
    if (take(']')) return {};
    for (;;) {
      TRY(value_into(items.emplace_back(), depth + 1));
      skip_blanks();
      if (take(']')) return {};
      if (!take(',')) return malformed();
    }
  }

  Status object_into(Json& out, std::size_t depth) {  // NOLINT(misc-no-recursion)
    take('{');
    Json::Object& members = out.value_.emplace<Json::Object>();
    skip_blanks();
    if (take('}')) return {};
    for (;;) {
      skip_blanks();
      Json::Member& member = members.emplace_back();
      TRY(text_into(member.first));
      skip_blanks();
      if (!take(':')) return malformed();
      TRY(value_into(member.second, depth + 1));
      skip_blanks();
      if (take('}')) break;
      if (!take(',')) return malformed();
    }
    return has_double_name(members) ? Status(malformed()) : Status();
  }

  // Sorted, so that an object of a million names costs no million squared.
  static bool has_double_name(const Json::Object& members) {
    std::vector<std::string_view> names;
    names.reserve(members.size());
    for (const Json::Member& member : members) names.push_back(member.first);
    std::sort(names.begin(), names.end());
    return std::adjacent_find(names.begin(), names.end()) != names.end();
  }

  Status text_into(std::string& out) {
    if (!take('"')) return malformed();
    for (;;) {
      if (rest_.empty()) return malformed();
      const char c = rest_.front();
      if (take('"')) return {};
      if (c == '\\') {
        TRY(escape_into(out));
        continue;
      }
      if (static_cast<unsigned char>(c) < 0x20) return malformed();
      const std::size_t length = utf8_length(rest_);
      if (length == 0) return malformed();
      out.append(rest_.substr(0, length));
      rest_.remove_prefix(length);
    }
  }

  Status escape_into(std::string& out) {
    rest_.remove_prefix(1);
    if (rest_.empty()) return malformed();
    const char c = rest_.front();
    rest_.remove_prefix(1);
    constexpr std::string_view kFrom = "\"\\/bfnrt";
    constexpr std::string_view kTo = "\"\\/\b\f\n\r\t";
    if (const std::size_t at = kFrom.find(c); at != std::string_view::npos) {
      out.push_back(kTo[at]);
      return {};
    }
    if (c != 'u') return malformed();
    TRY_ASSIGN(std::uint32_t point, four_digits());
    if (point >= 0xDC00 && point <= 0xDFFF) return malformed();
    if (point >= 0xD800 && point <= 0xDBFF) {
      if (!take("\\u")) return malformed();
      TRY_ASSIGN(const std::uint32_t low, four_digits());
      if (low < 0xDC00 || low > 0xDFFF) return malformed();
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, point);
    return {};
  }

  Result<std::uint32_t> four_digits() noexcept {
    if (rest_.size() < 4) return malformed();
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + 4, value, 16);
    if (error != std::errc() || end != rest_.data() + 4 || rest_.front() == '-') return malformed();
    rest_.remove_prefix(4);
    return value;
  }

  std::size_t digits_at(std::size_t at) const noexcept {
    std::size_t end = at;
    while (end < rest_.size() && is_digit(rest_[end])) ++end;
    return end - at;
  }

  Status number_into(Json& out) noexcept {
    const bool negative = rest_.front() == '-';
    std::size_t end = negative ? 1 : 0;
    const std::size_t whole = digits_at(end);
    if (whole == 0 || (whole > 1 && rest_[end] == '0')) return malformed();
    end += whole;
    bool integer = true;
    if (end < rest_.size() && rest_[end] == '.') {
      const std::size_t digits = digits_at(end + 1);
      if (digits == 0) return malformed();
      end += 1 + digits;
      integer = false;
    }
    if (end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      ++end;
      if (end < rest_.size() && (rest_[end] == '+' || rest_[end] == '-')) ++end;
      const std::size_t digits = digits_at(end);
      if (digits == 0) return malformed();
      end += digits;
      integer = false;
    }
    const char* const first = rest_.data();
    const char* const last = first + end;
    rest_.remove_prefix(end);
    const auto read = [&](auto& value) {
      return std::from_chars(first, last, value).ec == std::errc();
    };
    std::uint64_t unsigned_value = 0;
    std::int64_t signed_value = 0;
    double real_value = 0;
    if (integer && !negative && read(unsigned_value)) {
      out.value_ = unsigned_value;
    } else if (integer && negative && read(signed_value)) {
      if (signed_value < 0) {
        out.value_ = signed_value;
      } else {
        out.value_ = std::uint64_t{0};  // -0
      }
    } else if (read(real_value)) {
      out.value_ = real_value;
    } else {
      return malformed();
    }
    return {};
  }

  std::string_view rest_;
  std::size_t values_ = 0;
};

Result<Json> Json::parse(std::string_view text) {
  Result<Json> out{Json()};
  if (Status status = JsonReader(text).whole(*out); !status.ok()) return status.error();
  return out;
}

std::optional<bool> Json::boolean() const noexcept {
  const bool* value = std::get_if<bool>(&value_);
  return value == nullptr ? std::nullopt : std::optional<bool>(*value);
}

std::optional<std::uint64_t> Json::u64() const noexcept {
  const auto* value = std::get_if<std::uint64_t>(&value_);
  return value == nullptr ? std::nullopt : std::optional<std::uint64_t>(*value);
}

std::optional<std::int64_t> Json::i64() const noexcept {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return *value;
  const auto* value = std::get_if<std::uint64_t>(&value_);
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (value == nullptr || *value > kMax) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<double> Json::real() const noexcept {
  if (const auto* value = std::get_if<double>(&value_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  return std::nullopt;
}

const Json* Json::find(std::string_view name) const noexcept {
  const Object* members = object();
  if (members == nullptr) return nullptr;
  for (const Member& member : *members) {
    if (member.first == name) return &member.second;
  }
  return nullptr;
}

void JsonWriter::separate() {
  if (!first_) out_.push_back(',');
  first_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_.push_back(bracket);
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_.push_back(bracket);
  first_ = false;
  return *this;
}

void JsonWriter::quote(std::string_view value) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out_.push_back('"');
  while (!value.empty()) {
    const auto c = static_cast<unsigned char>(value.front());
    std::size_t length = utf8_length(value);
    if (length == 0) {
      out_.append("\xEF\xBF\xBD");
      length = 1;
    } else if (c == '"' || c == '\\') {
      out_.push_back('\\');
      out_.push_back(static_cast<char>(c));
    } else if (c < 0x20 || c == 0x7F) {
      out_.append("\\u00");
      out_.push_back(kHex[c >> 4]);
      out_.push_back(kHex[c & 15]);
    } else {
      out_.append(value.substr(0, length));
    }
    value.remove_prefix(length);
  }
  out_.push_back('"');
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  out_.push_back(':');
  first_ = true;  // the value follows without a comma
  return *this;
}

JsonWriter& JsonWriter::text(std::string_view value) {
  separate();
  quote(value);
  return *this;
}

JsonWriter& JsonWriter::number(std::uint64_t value) {
  separate();
  out_.append(std::to_string(value));
  return *this;
}

JsonWriter& JsonWriter::boolean(bool value) {
  separate();
  out_.append(value ? "true" : "false");
  return *this;
}

JsonWriter& JsonWriter::null() {
  separate();
  out_.append("null");
  return *this;
}

std::string JsonWriter::line() {
  out_.push_back('\n');
  first_ = true;
  return std::exchange(out_, {});
}

}  // namespace farlift::codec
