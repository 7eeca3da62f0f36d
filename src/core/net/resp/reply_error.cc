#include "core/net/resp/reply_error.h"

#include "core/net/resp/slot.h"

#include <charconv>
#include <utility>

namespace farlift::resp {
namespace {

template <class Number>
bool parse_number(std::string_view text, Number& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

// "SLOT HOST:PORT", where HOST may be empty or an IPv6 address, in brackets or bare: the last colon
// divides.
bool parse_target(std::string_view detail, std::uint16_t& slot, Endpoint& target) {
  const std::size_t blank = detail.find(' ');
  if (blank == std::string_view::npos) return false;
  if (!parse_number(detail.substr(0, blank), slot) || slot >= kSlotCount) return false;
  std::string_view where = detail.substr(blank + 1);
  where = where.substr(0, where.find(' '));
  const std::size_t colon = where.rfind(':');
  if (colon == std::string_view::npos) return false;
  if (!parse_number(where.substr(colon + 1), target.port) || target.port == 0) return false;
  std::string_view host = where.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  target.host = host == "?" ? std::string_view() : host;
  return true;
}

ReplyError::Kind kind_of(std::string_view code) {
  using Kind = ReplyError::Kind;
  static constexpr std::pair<std::string_view, Kind> kCodes[] = {
      {"MOVED", Kind::moved},
      {"ASK", Kind::ask},
      {"TRYAGAIN", Kind::try_again},
      {"CLUSTERDOWN", Kind::cluster_down},
      {"MASTERDOWN", Kind::master_down},
      {"LOADING", Kind::loading},
      {"CROSSSLOT", Kind::cross_slot},
      {"READONLY", Kind::read_only},
      {"NOAUTH", Kind::no_auth},
      {"WRONGPASS", Kind::no_auth},
      {"NOPERM", Kind::no_auth},
  };
  for (const auto& [word, kind] : kCodes) {
    if (word == code) return kind;
  }
  return Kind::other;
}

}  // namespace

std::string Endpoint::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

ReplyError ReplyError::parse(std::string_view text) {
  ReplyError error;
  const std::size_t blank = text.find(' ');
  error.code = text.substr(0, blank);
  error.kind = kind_of(error.code);
  const std::string_view detail =
      blank == std::string_view::npos ? std::string_view() : text.substr(blank + 1);
  if (error.is_redirect() && !parse_target(detail, error.slot, error.target)) {
    error.kind = Kind::other;
    error.slot = 0;
    error.target = {};
  }
  return error;
}

}  // namespace farlift::resp
