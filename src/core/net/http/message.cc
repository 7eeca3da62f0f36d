#include "core/net/http/message.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>

namespace farlift::net::http {
namespace {

constexpr std::array<const char*, 7> kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

int month_of(std::string_view name) noexcept {
  const auto at = std::find(kMonths.begin(), kMonths.end(), name);
  return at == kMonths.end() ? -1 : static_cast<int>(at - kMonths.begin());
}

bool looks_like(std::string_view text, std::string_view pattern) noexcept {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::equal(text.begin(), text.end(), pattern.begin(), pattern.end(), [&](char c, char p) {
    if (p == '9') return digit(c);
    if (p == '_') return digit(c) || c == ' ';
    if (p == 'A') return lower(c) >= 'a' && lower(c) <= 'z';
    return c == p;
  });
}

// Of digits, perhaps after a blank.
int number(std::string_view digits) noexcept {
  int value = 0;
  for (const char c : digits) value = value * 10 + (c == ' ' ? 0 : c - '0');
  return value;
}

}  // namespace

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

const std::string* Headers::find(std::string_view name) const noexcept {
  for (const Field& field : fields_) {
    if (same_name(field.name, name)) return &field.value;
  }
  return nullptr;
}

std::string_view Headers::get(std::string_view name) const noexcept {
  const std::string* const value = find(name);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

std::size_t Headers::count(std::string_view name) const noexcept {
  return static_cast<std::size_t>(
      std::count_if(fields_.begin(), fields_.end(),
                    [&](const Field& field) { return same_name(field.name, name); }));
}

void Headers::set(std::string_view name, std::string value) {
  std::string kept(name);
  remove(name);
  add(std::move(kept), std::move(value));
}

void Headers::remove(std::string_view name) {
  const std::string wanted(name);  // may view a field that moves
  std::erase_if(fields_, [&](const Field& field) { return same_name(field.name, wanted); });
}

bool valid_field(std::string_view name, std::string_view value) noexcept {
  const auto token = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  };
  const auto text = [](char c) {
    const auto u = static_cast<unsigned char>(c);
    return u == '\t' || (u >= 0x20 && u != 0x7f);
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), token) &&
         std::all_of(value.begin(), value.end(), text);
}

std::string_view reason_phrase(std::uint32_t status) noexcept {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "Status";
  }
}

std::string format_head(std::string_view first_line, const Headers& headers) {
  std::string out;
  out.reserve(512);
  out += first_line;
  out += "\r\n";
  for (const Field& field : headers.all()) {
    if (!valid_field(field.name, field.value)) continue;
    out += field.name;
    out += ": ";
    out += field.value;
    out += "\r\n";
  }
  out += "\r\n";
  return out;
}

// Not strftime(3): its names follow the locale.
std::string format_date(std::int64_t seconds_since_epoch) {
  const std::time_t when = seconds_since_epoch;
  std::tm t{};
  ::gmtime_r(&when, &t);
  char text[80];
  std::snprintf(text, sizeof text, "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[static_cast<std::size_t>(t.tm_wday)], t.tm_mday,
                kMonths[static_cast<std::size_t>(t.tm_mon)].data(), t.tm_year + 1900, t.tm_hour,
                t.tm_min, t.tm_sec);
  return text;
}

std::optional<std::int64_t> parse_date(std::string_view text) {
  // '9' stands for a digit, 'A' for a letter, '_' for a digit or a blank; the rest is literal.
  static constexpr std::string_view kFixed = "AAA, 99 AAA 9999 99:99:99 GMT";
  static constexpr std::string_view kAnsi = "AAA AAA _9 99:99:99 9999";
  static constexpr std::string_view kOld = ", 99-AAA-99 99:99:99 GMT";  // after a long day's name
  std::tm t{};
  std::string_view month;
  std::string_view clock;
  if (looks_like(text, kFixed)) {
    t.tm_mday = number(text.substr(5, 2));
    month = text.substr(8, 3);
    t.tm_year = number(text.substr(12, 4)) - 1900;
    clock = text.substr(17, 8);
  } else if (looks_like(text, kAnsi)) {
    t.tm_mday = number(text.substr(8, 2));
    month = text.substr(4, 3);
    t.tm_year = number(text.substr(20, 4)) - 1900;
    clock = text.substr(11, 8);
  } else {
    const std::size_t comma = text.find(',');
    if (comma == std::string_view::npos || !looks_like(text.substr(comma), kOld))
      return std::nullopt;
    const std::string_view rest = text.substr(comma);
    t.tm_mday = number(rest.substr(2, 2));
    month = rest.substr(5, 3);
    t.tm_year = number(rest.substr(9, 2));
    if (t.tm_year < 70) t.tm_year += 100;
    clock = rest.substr(12, 8);
  }
  t.tm_mon = month_of(month);
  t.tm_hour = number(clock.substr(0, 2));
  t.tm_min = number(clock.substr(3, 2));
  t.tm_sec = number(clock.substr(6, 2));
  const bool sane = t.tm_mon >= 0 && t.tm_mday >= 1 && t.tm_mday <= 31 && t.tm_hour < 24 &&
                    t.tm_min < 60 && t.tm_sec < 61 && t.tm_year >= 70;
  if (!sane) return std::nullopt;
  return static_cast<std::int64_t>(::timegm(&t));
}

}  // namespace farlift::net::http
