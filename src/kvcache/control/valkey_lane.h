// ValkeyLane: the loop's connection to one server: commands that wait for it, commands whose
// replies are due.
//
// Invariants: never waits. A batch is sent only while the socket is writable and is at most an
//             eighth of its send buffer, which then has room for it. Replies are matched in order;
//             after anything odd the connection is dropped and take_lost() gives what was on it.
// Threads:    one. Errors: of flush() and collect(): the connection is of no use any more.
#pragma once

#include "core/base/clock.h"
#include "core/net/resp/connection.h"
#include "kvcache/control/valkey_command.h"

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace farlift::kv {

class ValkeyLane {
 public:
  enum class State : std::uint8_t { down, connecting, up };

  ValkeyLane(resp::Endpoint endpoint, std::uint64_t id, int poller, const Clock& clock)
      : endpoint_(std::move(endpoint)), id_(id), poller_(poller), clock_(clock) {}

  const resp::Endpoint& endpoint() const noexcept { return endpoint_; }
  std::uint64_t id() const noexcept { return id_; }

  void open(std::unique_ptr<resp::Connection> connection);
  void drop();  // the connection; what was sent is then to be had from take_lost()
  std::vector<ValkeyCommandPtr> take_lost();
  std::vector<ValkeyCommandPtr> take_waiting();
  // Commands whose time has come, sent or not; a sent one's place in the order stays.
  void take_expired(Instant now, std::vector<ValkeyCommandPtr>& waiting,
                    std::vector<ValkeyCommandPtr>& sent);
  Instant next_deadline() const;
  Instant oldest_sent() const;

  void push(ValkeyCommandPtr command) { waiting_.push_back(std::move(command)); }
  Status flush();
  // Replies that are here, each with its command (none: it has expired).
  using OnReply = std::function<void(ValkeyCommandPtr, resp::Value)>;
  Status collect(const OnReply& on_reply);

  std::size_t batch_bytes_max() const noexcept { return batch_bytes_max_; }
  bool idle() const noexcept { return waiting_.empty() && sent_.empty(); }
  bool has_waiting() const noexcept { return !waiting_.empty(); }

  // For the owner.
  State state = State::down;
  Instant retry_at{};
  Duration backoff{};
  std::uint64_t generation = 0;  // of attempts to connect; an answer of an earlier one is stale

 private:
  struct Sent {
    ValkeyCommandPtr command;  // null: nobody wants the reply
    Instant at;
  };
  void arm(bool writable);

  const resp::Endpoint endpoint_;
  const std::uint64_t id_;
  const int poller_;
  const Clock& clock_;
  std::unique_ptr<resp::Connection> connection_;
  std::size_t batch_bytes_max_ = 0;
  bool armed_writable_ = false;
  std::deque<ValkeyCommandPtr> waiting_;
  std::deque<Sent> sent_;
};

}  // namespace farlift::kv
