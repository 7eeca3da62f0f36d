#include "blob/client/commands.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace farlift::client {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same(std::string_view text, std::string_view lower_case) {
  return text.size() == lower_case.size() &&
         std::equal(text.begin(), text.end(), lower_case.begin(),
                    [](char a, char b) { return lower(a) == b; });
}

bool starts(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() && same(text.substr(0, lower_case.size()), lower_case);
}

template <std::size_t N>
bool one_of(std::string_view text, const std::array<std::string_view, N>& list) {
  return std::any_of(list.begin(), list.end(),
                     [&](std::string_view one) { return same(text, one); });
}

// They turn request and reply into something else, or change what a new connection would not know.
constexpr std::array<std::string_view, 9> kStateful = {"subscribe", "psubscribe", "ssubscribe",
                                                       "monitor",   "reset",      "hello",
                                                       "select",    "sync",       "psync"};

constexpr std::array<std::string_view, 22> kKeyless = {
    "ping",   "echo",    "info",     "config",  "cluster",  "client", "command",  "dbsize",
    "auth",   "acl",     "latency",  "slowlog", "time",     "role",   "lastsave", "bgsave",
    "script", "flushdb", "flushall", "module",  "function", "scan"};

constexpr std::array<std::string_view, 6> kKeyCountSecond = {"eval",       "evalsha", "eval_ro",
                                                             "evalsha_ro", "fcall",   "fcall_ro"};
constexpr std::array<std::string_view, 5> kSubcommandFirst = {"object", "memory", "xinfo", "xgroup",
                                                              "debug"};

}  // namespace

std::optional<std::string> why_refused(Words words) {
  if (words.empty() || words[0].empty()) return "a command needs a name";
  const std::string_view name = words[0];
  if (starts(name, "blob.rdma_")) {
    return std::string(name) + " is sent only by rdma_get and rdma_set";
  }
  if (same(name, "select")) {
    return "SELECT would not outlive the connection; set ClientOptions::database";
  }
  const bool silences = same(name, "client") && words.size() > 1 && same(words[1], "reply");
  if (silences || one_of(name, kStateful)) {
    return std::string(name) + " changes what the connection is and is not offered by this client";
  }
  return std::nullopt;
}

std::string_view routing_key(Words words) {
  if (words.size() < 2 || one_of(words[0], kKeyless)) return {};
  if (one_of(words[0], kKeyCountSecond)) {
    const bool has_keys = words.size() > 3 && words[2] != "0";
    return has_keys ? words[3] : std::string_view();
  }
  if (same(words[0], "bitop") || one_of(words[0], kSubcommandFirst)) {
    return words.size() > 2 ? words[2] : std::string_view();
  }
  if (same(words[0], "xread") || same(words[0], "xreadgroup")) {
    for (std::size_t i = 1; i + 1 < words.size(); ++i) {
      if (same(words[i], "streams")) return words[i + 1];
    }
    return {};
  }
  return words[1];
}

Reply to_reply(resp::Value&& value) {
  Reply out;
  const auto take_items = [&](ReplyKind kind) {
    out.kind = kind;
    std::vector<resp::Value> items = std::move(value).take_items();
    out.items.reserve(items.size());
    for (resp::Value& item : items) out.items.push_back(to_reply(std::move(item)));
  };
  const auto take_text = [&](ReplyKind kind) {
    out.kind = kind;
    out.text = std::string(value.text());
  };
  switch (value.type()) {
    case resp::Type::null:
      break;
    case resp::Type::boolean:
      out.kind = ReplyKind::boolean;
      out.integer = value.boolean() ? 1 : 0;
      break;
    case resp::Type::integer:
      out.kind = ReplyKind::integer;
      out.integer = value.integer();
      break;
    case resp::Type::real:
      out.kind = ReplyKind::real;
      out.real = value.real();
      break;
    case resp::Type::big_number:
      take_text(ReplyKind::big_number);
      break;
    case resp::Type::simple:
      take_text(ReplyKind::status);
      break;
    case resp::Type::bulk:
    case resp::Type::verbatim:
      take_text(ReplyKind::string);
      break;
    case resp::Type::error:
      take_text(ReplyKind::error);
      break;
    case resp::Type::array:
    case resp::Type::push:
      take_items(ReplyKind::array);
      break;
    case resp::Type::set:
      take_items(ReplyKind::set);
      break;
    case resp::Type::map:
      take_items(ReplyKind::map);
      break;
  }
  return out;
}

}  // namespace farlift::client
