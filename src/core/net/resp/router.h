// Router: connections to one server or to all primaries of a cluster, and the rules for when a
// command may be sent again.
//
//   TRY_ASSIGN(auto router, Router::open(options, clock));
//   TRY_ASSIGN(const Value reply, router->request("key", {"GET", "key"}));
//
//   // With work of one's own on the connection (a handshake, a transfer):
//   router->run("key", [&](Connection& connection) -> Attempt { ... });
//
// Invariants: a command is sent again only if the server cannot have run it: it was never sent
//             whole, or the reply said so (MOVED, ASK, TRYAGAIN, CLUSTERDOWN, LOADING).
//             Redirections and retries are counted and end. A broken connection is never lent
//             again. At most `connections_per_node` exist for a node.
// Threads:    any. A Lease belongs to one thread and must end before the Router does. cut_off()
//             ends every wait.
// Errors:     unreachable, timeout (no connection), busy (lease_timeout), closed (after cut_off()),
//             exhausted (too many redirections), again (no node serves the slot), those of
//             Connection.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/prng.h"
#include "core/base/result.h"
#include "core/net/resp/connection.h"
#include "core/net/resp/reply_error.h"
#include "core/net/resp/topology.h"

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::resp {

struct RouterOptions {
  // host, port or unix_path: the server, or the first seed. Its `stop` is not used.
  ConnectionOptions connection = {};
  std::vector<Endpoint> more_seeds = {};  // cluster: further nodes to ask for the topology
  bool cluster = false;
  std::uint32_t connections_per_node = 1;
  std::uint32_t redirects_max = 16;  // MOVED and ASK of one command together
  std::uint32_t retries_max = 8;     // of one command, with growing, jittered pauses
  Duration backoff_first = std::chrono::milliseconds(10);
  Duration backoff_max = std::chrono::seconds(1);
  Duration lease_timeout = Duration::max();  // waiting for a lent connection; max: no limit
};

// What came of working on a connection once.
struct Attempt {
  Result<Value> reply;  // an error reply is a Value
  // With an Error: the server may have run the command, so it is not sent again.
  bool may_have_run = false;
};

class Router {
 public:
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;
    ~Lease() { give_back(); }
    Connection& operator*() const noexcept { return *connection_; }
    Connection* operator->() const noexcept { return connection_; }
    explicit operator bool() const noexcept { return connection_ != nullptr; }
    // Early; a broken connection is destroyed.
    const Endpoint& node() const noexcept { return node_; }
    void give_back() noexcept;

   private:
    friend class Router;
    Router* router_ = nullptr;
    Connection* connection_ = nullptr;
    Endpoint node_;
  };

  struct Counters {
    std::uint64_t connects = 0;
    std::uint64_t moved = 0;
    std::uint64_t asked = 0;
    std::uint64_t retries = 0;
    std::uint64_t refreshes = 0;
  };

  // Connects once (and learns the topology of a cluster), so that wrong options are found at once.
  static Result<std::unique_ptr<Router>> open(RouterOptions options, const Clock& clock,
                                              std::string* reason = nullptr);
  ~Router();

  // A connection to the primary of `key` (standalone: to the server), for exclusive use.
  Result<Lease> lease(std::string_view key, std::string* reason = nullptr);
  Result<Lease> lease_node(const Endpoint& node, std::string* reason = nullptr);

  // Runs `work` on the right connection, following redirections and retrying as the invariants
  // allow. ASKING is sent ahead where needed. The final error reply is returned as a Value.
  using Work = std::function<Attempt(Connection& connection)>;
  Result<Value> run(std::string_view key, const Work& work, std::string* reason = nullptr);
  Result<Value> request(std::string_view key, Arguments arguments, std::string* reason = nullptr);
  Result<Value> request(std::string_view key, std::initializer_list<std::string_view> arguments,
                        std::string* reason = nullptr) {
    return request(key, Arguments(arguments.begin(), arguments.size()), reason);
  }
  // Sends and receives once.
  static Attempt attempt(Connection& connection, Arguments arguments,
                         const ReceiveOptions& receive);

  // After a MOVED reply: remembers the new owner and asks for the whole topology again when next
  // needed.
  void on_moved(const ReplyError& moved, const Endpoint& answered_by);
  Status refresh(std::string* reason = nullptr);

  // Ends everything for good: connects and waits in progress, every connection, lent ones included.
  void cut_off() noexcept;

  bool is_cluster() const noexcept { return options_.cluster; }
  const RouterOptions& options() const noexcept { return options_; }
  // The primaries known now; standalone: the server.
  Counters counters() const;
  std::vector<Endpoint> nodes() const;

 private:
  struct Node;
  struct Course;

  Router(RouterOptions options, const Clock& clock, std::shared_ptr<net::WakeSignal> stop);
  void give_back(const Endpoint& endpoint, Connection* connection) noexcept;
  Result<Connection*> take_idle(const Endpoint& endpoint, net::Deadline deadline);
  Result<std::unique_ptr<Connection>> connect(const Endpoint& endpoint, std::string* reason) const;
  std::vector<Endpoint> seeds() const;
  Result<Topology> ask_topology(const Endpoint& endpoint, std::string* reason) const;
  void adopt(Topology topology);
  Result<Endpoint> owner_of(std::string_view key, std::string* reason);
  static Endpoint target_of(const ReplyError& redirect, const Endpoint& answered_by);
  Attempt run_once(std::string_view key, const Work& work, const Course& course, Endpoint& node,
                   std::string* reason);
  Status redirect(Course& course, const ReplyError& error, const Endpoint& answered_by);
  Result<bool> again_later(Course& course);
  Status pause(std::uint32_t turn);
  bool is_stale() const;
  void set_stale();

  // Constant.
  const RouterOptions options_;
  const Clock& clock_;
  const std::shared_ptr<net::WakeSignal> stop_;
  // Taken before mutex_: one thread asks for the topology, the others wait for its answer.
  Mutex refreshing_;
  mutable Mutex mutex_;
  CondVar returned_;
  std::map<Endpoint, std::unique_ptr<Node>> nodes_ GUARDED_BY(mutex_);
  Topology topology_ GUARDED_BY(mutex_);
  bool stale_ GUARDED_BY(mutex_) = true;
  Counters counters_ GUARDED_BY(mutex_);
  Prng prng_ GUARDED_BY(mutex_);
};

}  // namespace farlift::resp
