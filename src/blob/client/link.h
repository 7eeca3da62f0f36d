// Link: what belongs to one RESP connection besides RESP: its own fabric endpoint, the binding made
// by BLOB.RDMA_HELLO, and whether a MULTI is open on it. A new connection has a new Link, so it
// shakes hands anew (spec blob 10.2 rule 7).
//
// Invariants: at most one endpoint for the Link's life; after cut_off() it lands nothing.
// Threads:    one at a time (the holder of the connection), except cut_off().
// Errors:     as returned.
#pragma once

#include "blob/client/assistant.h"
#include "core/base/adaptive_spin.h"
#include "core/base/mutex.h"
#include "core/fabric/fabric.h"
#include "core/net/resp/connection.h"

#include <atomic>
#include <memory>
#include <string>

namespace farlift::client {

class ClientCore;

class Link final : public resp::Connection::Companion {
 public:
  // Transfers from this size on are landed by two threads.
  static constexpr std::uint64_t kAssistedBytesMin = std::uint64_t{4} << 20;
  // Over a transfer of at most so many bytes the caller polls for the reply as long as the bytes
  // may take at kPolledBytesPerUsec, besides RdmaConfiguration::spin_us.
  static constexpr std::uint64_t kPolledBytesMax = std::uint64_t{1} << 20;
  static constexpr std::uint64_t kPolledBytesPerUsec = 2000;

  // The Link of a connection, made on first use.
  static Link& of(ClientCore& core, resp::Connection& connection);
  explicit Link(ClientCore& core);
  ~Link() override;

  struct Handshake {
    enum class Outcome { bound, refused, lost };
    Outcome outcome = Outcome::bound;
    std::string text;  // refused: for the caller
    Error error;       // lost: how
  };
  bool bound() const noexcept { return bound_; }
  // Sends BLOB.RDMA_HELLO unless this connection is bound already.
  Handshake ensure_bound(resp::Connection& connection);

  // Waits for the next reply without limit, landing bytes meanwhile. closed: the client was closed,
  // and everything is quiet. Another error: the connection or the endpoint is lost; call cut_off().
  Result<resp::Value> await_reply(resp::Connection& connection, std::uint64_t expected_bytes);

  // Nothing lands through this connection's endpoint any more once it returns. Any thread.
  void cut_off() noexcept;

  bool multi_open() const noexcept { return multi_open_; }
  void set_multi_open(bool open) noexcept;

 private:
  Handshake open_endpoint(const resp::Connection& connection);
  Handshake take_greeting(const resp::Value& reply);
  Result<bool> poll_for_reply(resp::Connection& connection, std::uint64_t expected_bytes);
  Result<resp::Value> await_landing(resp::Connection& connection, std::uint64_t expected_bytes);

  ClientCore& core_;
  AdaptiveSpin spin_;
  bool bound_ = false;
  bool multi_open_ = false;
  Mutex mutex_;
  bool cut_ GUARDED_BY(mutex_) = false;
  std::unique_ptr<fabric::TargetEndpoint> endpoint_;  // set once, under mutex_
  Assistant assistant_;                               // ends before the endpoint
};

}  // namespace farlift::client
