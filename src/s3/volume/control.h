// Control: the port by which the object service makes this volume move bytes (spec s3 6). JSON
// lines over TCP; no payload crosses it.
//
// Invariants
//   - A push is checked in the order the spec gives, the JWT first; keys may change between two
//     requests of one connection.
//   - Replies may come out of order, at most kControlOutstandingMax requests of a connection are
//     outstanding: more are not read.
//   - Commits never wait behind requests that wait for memory which commits would free: pushes,
//     prepares and the rest have workers of their own.
//
// Threads: start() and stop() by the owner; connection_max + workers threads of its own.
// Errors:  start(): invalid_argument (address), io.
#pragma once

#include "core/base/bounded_queue.h"
#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/net/stream.h"
#include "s3/volume/access.h"
#include "s3/volume/mover.h"
#include "s3/volume/store.h"
#include "s3/volume/uploads.h"
#include "s3/volume/writes.h"
#include "s3/wire/control_line.h"

#include <atomic>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace farlift::s3::volume {

struct ControlOptions {
  std::string listen_ip = "127.0.0.1";  // numeric
  std::uint16_t port = 0;               // 0: any
  std::string transport{kTransportSoft};
  std::uint32_t dc_key = kDefaultDcKey;
  Length max_transfer{64u << 20};
  std::size_t connections_max = 256;
  std::size_t push_workers = 8;
  std::size_t prepare_workers = 4;
  std::size_t other_workers = 4;  // commit, abort, query, ping
  // Where tokens may make us connect to; empty: anywhere but what is always refused (spec s3 11.3).
  std::optional<AddressRules> targets = {};
  // The two readings of a token; the software fabric's by default.
  std::function<Result<RemoteTarget>(const Token&)> target_of = {};
  std::function<Result<Token>(const Window&)> token_of = {};
};

struct ControlCounters {
  std::uint64_t connections = 0;
  std::uint64_t pushes = 0;
  std::uint64_t pushed_bytes = 0;
  std::uint64_t prepares = 0;
  std::uint64_t commits = 0;
  std::uint64_t committed_bytes = 0;
  std::uint64_t refused = 0;  // replies that were not ok
};

class Control {
 public:
  // What it works on; all outlive it.
  struct Parts {
    Store& store;
    Writes& writes;
    Uploads& uploads;
    Mover& mover;
    Access& access;
    const Clock& clock;
  };
  static Result<std::unique_ptr<Control>> start(const Parts& parts, ControlOptions options);
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;
  ~Control();  // stop()

  std::uint16_t port() const noexcept { return port_; }
  ControlCounters counters() const noexcept;
  // Ends all connections and everything in progress. Idempotent.
  void stop();

 private:
  class Connection;
  struct Task {
    std::shared_ptr<Connection> connection;
    ControlRequest request;
    Instant deadline;
  };
  using Queue = BoundedQueue<Task>;

  Control(const Parts& parts, ControlOptions options);
  Status listen();
  void accept_loop();
  void serve(const std::shared_ptr<Connection>& connection);
  void take_line(const std::shared_ptr<Connection>& connection, std::string_view line, bool* go_on);
  void work(Queue& queue);
  void upkeep_loop();
  void reap(bool all);
  void answer(Connection& connection, const ControlReply& reply);

  void run(Task task);
  void push(Task task);
  ControlReply prepare(const Task& task);
  ControlReply commit(const Task& task);
  ControlReply about_handle(const Task& task);
  std::string hello() const;
  Result<RemoteTarget> target_of(const Token& token) const;
  Result<Token> token_of(const Window& window) const;

  const Parts parts_;
  const ControlOptions options_;
  UniqueFd listener_;
  std::uint16_t port_ = 0;
  std::shared_ptr<net::WakeSignal> stop_signal_;
  Queue pushes_;
  Queue prepares_;
  Queue others_;
  std::atomic<std::uint64_t> next_connection_{1};
  std::atomic<std::uint64_t> connections_{0}, pushes_done_{0}, pushed_bytes_{0}, prepares_done_{0},
      commits_{0}, committed_bytes_{0}, refused_{0};

  Mutex mutex_;
  CondVar stop_changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  struct Reader {
    std::shared_ptr<Connection> connection;
    std::thread thread;
  };
  std::list<Reader> readers_ GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // the owner's
};

}  // namespace farlift::s3::volume
