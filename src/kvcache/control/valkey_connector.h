// ValkeyConnector: what may block, on threads of its own: connecting, asking a cluster or sentinels
// who serves what, and commands too large for a socket's buffer. Its answers come back through
// step() on the loop's thread.
//
// Invariants: a callback runs exactly once, from step(); those left when the connector is destroyed
//             do not. At most kTasksMax tasks wait.
// Threads:    everything from the loop's thread; the workers are inside.
// Errors:     of connect: those of resp::Connection; wrong_type: the server is no primary where one
//             was asked for. exhausted: too many tasks wait.
#pragma once

#include "core/base/bounded_queue.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/net/resp/connection.h"
#include "core/net/resp/topology.h"
#include "kvcache/control/valkey_command.h"
#include "kvcache/control/valkey_directory.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace farlift::kv {

class ValkeyConnector {
 public:
  static constexpr std::size_t kTasksMax = 1024;
  // A dead server costs one of them its connect timeout.
  static constexpr std::size_t kWorkers = 2;

  static Result<std::unique_ptr<ValkeyConnector>> open(const Clock& clock, ValkeyOptions options,
                                                       std::string* reason);
  ~ValkeyConnector();

  struct Located {
    std::optional<resp::Topology> topology;  // cluster
    std::optional<resp::Endpoint> primary;   // sentinel
  };
  using OnConnected = std::function<void(Result<std::unique_ptr<resp::Connection>>)>;
  using OnLocated = std::function<void(Result<Located>)>;
  using OnAnswer = std::function<void(ValkeyCommandPtr, Result<resp::Value>, bool may_have_run)>;

  void connect(const resp::Endpoint& endpoint, const OnConnected& done);
  // `known`: cluster nodes that may be asked besides the seeds.
  void locate(std::vector<resp::Endpoint> known, const OnLocated& done);
  void run(const resp::Endpoint& endpoint, ValkeyCommandPtr command, const OnAnswer& done);

  bool step();
  // Ends what is being done (a name being resolved takes its time); every task is then answered
  // with an error. Idempotent.
  void stop();
  int fd() const noexcept { return event_.get(); }

 private:
  ValkeyConnector(const Clock& clock, ValkeyOptions options, UniqueFd event);
  bool push(std::function<void()> task);
  void answer(std::function<void()> callback);
  void work();
  Result<std::unique_ptr<resp::Connection>> open_connection(const resp::Endpoint& endpoint,
                                                            Duration connect_timeout,
                                                            Duration request_timeout) const;
  Result<resp::Value> run_now(const resp::Endpoint& endpoint, const ValkeyCommand& command,
                              bool& may_have_run) const;
  Result<std::unique_ptr<resp::Connection>> open_sentinel(const resp::Endpoint& endpoint) const;
  Result<Located> ask_cluster(const std::vector<resp::Endpoint>& known) const;
  Result<Located> ask_sentinels() const;

  const Clock& clock_;
  ValkeyOptions options_;
  const UniqueFd event_;
  std::shared_ptr<net::WakeSignal> stop_;
  std::shared_ptr<const net::TlsContext> tls_;
  std::shared_ptr<const net::TlsContext> sentinel_tls_;
  BoundedQueue<std::function<void()>> tasks_;
  Mutex mutex_;
  std::vector<std::function<void()>> answers_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace farlift::kv
