#include "kvcache/control/valkey_command.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace farlift::kv {
namespace {

constexpr std::size_t kWordOverhead = 16;  // "$<length>\r\n" and "\r\n"

// Said before a command or a script with "#!lua" starts.
constexpr std::array<std::string_view, 7> kRefusals = {
    "OOM", "MISCONF", "NOREPLICAS", "CROSSSLOT", "NOPROTO", "NOAUTH", "WRONGPASS"};

}  // namespace

std::size_t ValkeyCommand::bytes() const noexcept {
  std::size_t sum = kWordOverhead;
  for (const std::string& word : words) sum += word.size() + kWordOverhead;
  return sum;
}

ReplyFate fate_of(const resp::ReplyError& error) noexcept {
  if (error.is_redirect()) return ReplyFate::redirected;
  if (error.kind == resp::ReplyError::Kind::read_only ||
      error.kind == resp::ReplyError::Kind::master_down)
    return ReplyFate::demoted;
  if (error.is_retryable() || error.code == "BUSY") return ReplyFate::wait;
  if (error.code == "NOSCRIPT") return ReplyFate::no_script;
  if (error.code == "NOPERM" || std::ranges::find(kRefusals, error.code) != kRefusals.end())
    return ReplyFate::refused;
  return ReplyFate::failed;
}

Error error_of(const resp::ReplyError& error) noexcept {
  switch (fate_of(error)) {
    case ReplyFate::refused:
      if (error.code == "OOM") return Error::make(Errc::no_memory, "directory");
      if (error.kind == resp::ReplyError::Kind::no_auth)
        return Error::make(Errc::permission, "directory");
      return Error::make(Errc::unsupported, "directory");
    case ReplyFate::wait:
    case ReplyFate::demoted:
    case ReplyFate::redirected:
      return Error::make(Errc::unreachable, "directory");
    case ReplyFate::no_script:
    case ReplyFate::failed:
      break;
  }
  return Error::make(Errc::protocol, "directory");
}

}  // namespace farlift::kv
