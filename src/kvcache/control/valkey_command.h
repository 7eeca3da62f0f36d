// ValkeyCommand: one command on its way to a Valkey server, and what its error replies mean; for
// the files of ValkeyDirectory.
//
// Threads: plain values.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/net/resp/reply_error.h"
#include "core/net/resp/value.h"
#include "kvcache/control/scripts.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace farlift::kv {

// How a command ended: a reply that is no error, or an Error.
struct ValkeyAnswer {
  Result<resp::Value> reply;
  bool may_have_run = false;  // of an Error: false is certain
};

struct ValkeyCommand {
  std::vector<std::string> words;
  std::string key;                 // says where it goes
  bool repeatable = false;         // running it twice is as good as once: sent again after a loss
  const Script* script = nullptr;  // words are EVALSHA's; EVAL takes over when it is not known
  Instant deadline{};              // unset: the usual time from now
  std::function<void(ValkeyAnswer)> done;

  // Of the way so far.
  std::uint32_t turns = 0;                               // redirections and retries
  Instant not_before{};                                  // a server asked for patience
  bool asking = false;                                   // ASKING goes ahead, this once
  bool may_have_run = false;                             // an earlier sending may have
  Error last = Error::make(Errc::timeout, "directory");  // why it still waits

  std::size_t bytes() const noexcept;
};
using ValkeyCommandPtr = std::unique_ptr<ValkeyCommand>;

enum class ReplyFate : std::uint8_t {
  no_script,   // not run: say EVAL
  redirected,  // not run: MOVED or ASK
  wait,        // not run: later, at the same place
  demoted,     // not run: this is no primary (any more)
  refused,     // not run: and never will
  failed,      // an error from within: may have run in part
};
ReplyFate fate_of(const resp::ReplyError& error) noexcept;
Error error_of(const resp::ReplyError& error) noexcept;

}  // namespace farlift::kv
