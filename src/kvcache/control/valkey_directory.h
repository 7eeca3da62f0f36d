// ValkeyDirectory: the Directory in a real Valkey (spec kv 6): one server, a cluster, or a primary
// that sentinels know.
//
//   TRY_ASSIGN(auto directory, ValkeyDirectory::open(clock, {.connection = {.port = 6379}}, &why));
//   directory->resolve("t1", {key}, done);
//   poll(directory->wait_fd()); directory->step();
//
// Invariants: those of control/directory.h. Commands leave from the call and replies are taken in
//             step(), on the loop's thread, without waiting; whatever may wait (connecting, names,
//             topology, sentinels) is on threads of its own. Every operation ends within `timeout`.
//             A command is sent again only when the server cannot have run it, or when running it
//             twice is as good as once; scripts never after a loss. Reconnects for ever, with
//             growing pauses.
// Threads:    one, that of the loop.
// Errors:     as control/directory.h, no_memory (the server's limit; not done). open:
//             invalid_argument and one sentence.
#pragma once

#include "core/base/clock.h"
#include "core/net/resp/connection.h"
#include "core/net/resp/reply_error.h"
#include "kvcache/control/directory.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace farlift::kv {

struct ValkeyOptions {
  enum class Mode : std::uint8_t { standalone, cluster, sentinel };
  Mode mode = Mode::standalone;
  // How to talk to a server: user, password, TLS, database, and (not with sentinels) where. Its
  // timeouts and `stop` are not used.
  resp::ConnectionOptions connection = {};
  std::vector<resp::Endpoint> more_seeds = {};  // cluster
  std::vector<resp::Endpoint> sentinels = {};
  std::string primary_name = {};  // as the sentinels call it
  std::string sentinel_username = {};
  std::string sentinel_password = {};
  bool sentinel_tls = false;  // by connection.tls
  Duration timeout = kControlTimeout;
  std::size_t pending_max = 65536;  // commands; an operation is one or a few
};

class ValkeyDirectory : public Directory {
 public:
  static constexpr std::uint32_t kTurnsMax = 16;     // redirections and retries of one command
  static constexpr std::size_t kInFlightMax = 4096;  // commands on one connection

  // Connects to nothing yet.
  static Result<std::unique_ptr<ValkeyDirectory>> open(const Clock& clock, ValkeyOptions options,
                                                       std::string* reason = nullptr);

  struct Counters {
    std::uint64_t commands = 0;
    std::uint64_t connects = 0;  // that came up
    std::uint64_t losses = 0;
    std::uint64_t locates = 0;  // topology or sentinels asked
    std::uint64_t redirections = 0;
    std::uint64_t retries = 0;
    std::uint64_t timeouts = 0;
    std::uint64_t scripts_sent = 0;  // EVAL for want of a cached script
    std::uint64_t refused_busy = 0;
  };
  virtual Counters counters() const = 0;
};

}  // namespace farlift::kv
