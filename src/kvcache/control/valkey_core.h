// ValkeyCore: sends commands to whoever serves their keys and brings each to one answer in time:
// lanes, routing, redirections, retries, reconnects. It knows no schema.
//
// Invariants: `done` of a command runs exactly once, from step() or from the destructor; not_run is
//             certain. See valkey_directory.h for what is sent again.
// Threads:    one, that of the loop.
// Errors:     busy, timeout, connection_lost, unreachable, permission, closed, protocol, ...
#pragma once

#include "core/base/clock.h"
#include "core/base/unique_fd.h"
#include "kvcache/control/valkey_command.h"
#include "kvcache/control/valkey_connector.h"
#include "kvcache/control/valkey_directory.h"
#include "kvcache/control/valkey_lane.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farlift::kv {

class ValkeyCore {
 public:
  static Result<std::unique_ptr<ValkeyCore>> open(const Clock& clock, ValkeyOptions options,
                                                  std::string* reason);
  ~ValkeyCore();

  void submit(ValkeyCommandPtr command);  // sent by the next flush() or step()
  void flush();
  bool step();
  int wait_fd() const noexcept { return poller_.get(); }
  std::size_t pending() const noexcept { return pending_; }
  const ValkeyDirectory::Counters& counters() const noexcept { return counters_; }
  Instant deadline() const noexcept { return clock_.now() + options_.timeout; }  // from now

 private:
  ValkeyCore(const Clock& clock, ValkeyOptions options, std::unique_ptr<ValkeyConnector> connector,
             UniqueFd poller, UniqueFd timer);
  Status start();
  ValkeyLane& lane_of(const resp::Endpoint& endpoint);
  const resp::Endpoint* owner_of(const std::string& key) const;
  void route(ValkeyCommandPtr command);
  void send_by(ValkeyLane& lane, ValkeyCommandPtr command);
  void finish(ValkeyCommandPtr&& command, ValkeyAnswer answer);
  void on_reply(const resp::Endpoint& from, ValkeyCommandPtr command, resp::Value reply);
  void redirect(const resp::Endpoint& from, ValkeyCommandPtr command,
                const resp::ReplyError& error);
  void on_lost(ValkeyCommandPtr command, const Error& error);
  void lane_down(ValkeyLane& lane, const Error& error);
  void connect(ValkeyLane& lane);
  void on_connected(const resp::Endpoint& endpoint, std::uint64_t generation,
                    Result<std::unique_ptr<resp::Connection>> connection);
  void want_location();
  void on_located(Result<ValkeyConnector::Located> located);
  void reroute();
  bool expire();
  void maintain();
  void send_all();
  void arm_timer();
  void set_timer(Instant when);
  bool run_ready();

  const Clock& clock_;
  const ValkeyOptions options_;
  const std::unique_ptr<ValkeyConnector> connector_;
  const UniqueFd poller_;
  const UniqueFd timer_;
  Instant armed_ = Instant::max();
  Instant sweep_at_ = Instant::max();  // no command's time ends before

  std::map<resp::Endpoint, std::unique_ptr<ValkeyLane>> lanes_;
  std::uint64_t next_lane_ = 2;
  std::optional<resp::Topology> topology_;
  std::optional<resp::Endpoint> primary_;
  std::vector<ValkeyCommandPtr> homeless_;  // nobody is known to serve them
  std::vector<ValkeyCommandPtr> patient_;   // not_before
  std::size_t elsewhere_ = 0;               // with the connector
  bool closing_ = false;
  bool location_wanted_ = false;
  bool locating_ = false;
  Instant locate_at_{};
  Duration locate_backoff_{};

  std::deque<std::function<void()>> ready_;
  std::size_t pending_ = 0;
  ValkeyDirectory::Counters counters_;
};

}  // namespace farlift::kv
