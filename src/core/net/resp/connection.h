// Connection: one authenticated conversation with one Valkey server.
//
//   TRY_ASSIGN(auto connection, Connection::connect({.host = "::1", .port = 6379}, clock));
//   TRY_ASSIGN(const Value reply, connection->request({"GET", "key"}));
//
// Invariants: replies come in the order of the commands. An Error from send() or receive() (not an
//             error *reply*, which is a Value) leaves the connection broken for good, since the
//             next reply could not be told from a late one. send() that fails: the server cannot
//             have executed that command. receive() that fails: it may have. While send() is
//             blocked by a full socket it keeps reading, so pipelining cannot deadlock.
// Threads:    one at a time, except cut_off(), which any thread may call while the connection
//             exists.
// Errors:     as core/net/stream.h and core/net/resp/parser.h; invalid_argument for options that
//             cannot work; permission when the server refused the login; protocol when it answered
//             the greeting with nonsense.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/net/deadline.h"
#include "core/net/resp/encoder.h"
#include "core/net/resp/parser.h"
#include "core/net/resp/reply_error.h"
#include "core/net/resp/value.h"
#include "core/net/stream.h"
#include "core/net/tls.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::resp {

enum class Protocol : std::uint8_t { resp2 = 2, resp3 = 3 };

struct ConnectionOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
  std::string unix_path = {};               // when not empty, used instead of host and port
  std::optional<net::TlsOptions> tls = {};  // absent: plain
  // Made from `tls` once for many connections; may be null.
  std::shared_ptr<const net::TlsContext> tls_context = {};
  std::string username = {};  // empty: the default user
  std::string password = {};  // empty: no login
  std::uint32_t database = 0;
  std::string client_name = {};  // shown in CLIENT LIST; empty: none
  // resp3 falls back to resp2 when the server does not know HELLO.
  Protocol protocol = Protocol::resp3;
  Duration connect_timeout = std::chrono::seconds(2);   // all of connect(), greeting included
  Duration request_timeout = std::chrono::seconds(10);  // one send() or one receive()
  ParserLimits limits = {};
  // When raised, everything ends with Errc::closed; may be null.
  std::shared_ptr<const net::WakeSignal> stop = {};

  Endpoint endpoint() const { return {host, port}; }
};

struct ReceiveOptions {
  net::Deadline deadline = net::Deadline::never();
  // Where the first bulk string of the reply goes if it fits; the Value is then borrowed(). It is
  // written even when receive() fails, and not any more once receive() has returned.
  std::span<std::byte> bulk_into = {};
};

class Connection {
 public:
  // Replies that arrive while send() is still writing are kept up to this many bytes of input; then
  // send() only writes.
  static constexpr std::size_t kEarlyReplyBytesMax = std::size_t{64} << 20;
  // Push messages set aside; the oldest beyond it are dropped and counted.
  static constexpr std::size_t kPushesMax = 1024;

  // Something that lives exactly as long as this connection (a fabric endpoint bound to it, say).
  class Companion {
   public:
    virtual ~Companion() = default;
  };

  // `reason`, when given, receives one sentence on failure.
  static Result<std::unique_ptr<Connection>> connect(const ConnectionOptions& options,
                                                     const Clock& clock,
                                                     std::string* reason = nullptr);
  // The same over a stream that is connected already; the greeting is sent.
  static Result<std::unique_ptr<Connection>> over(std::unique_ptr<net::Stream> stream,
                                                  const ConnectionOptions& options,
                                                  const Clock& clock,
                                                  std::string* reason = nullptr);

  // Sends one command within the request timeout. Arguments are not needed any more when it
  // returns.
  Status send(Arguments arguments);
  Status send(std::initializer_list<std::string_view> arguments) {
    return send(Arguments(arguments.begin(), arguments.size()));
  }
  // Several at once, in order. When it fails, those before the last may have been executed.
  Status send_many(std::span<const Arguments> commands);

  // The next reply in order, error replies included. Without options: within the request timeout.
  Result<Value> receive();
  Result<Value> receive(const ReceiveOptions& options);
  // The next reply if it is here already.
  Result<std::optional<Value>> try_receive();

  // send() and receive().
  Result<Value> request(Arguments arguments);
  Result<Value> request(std::initializer_list<std::string_view> arguments) {
    return request(Arguments(arguments.begin(), arguments.size()));
  }

  // Commands sent whose replies have not been received.
  std::size_t unanswered() const noexcept { return unanswered_; }
  // Push messages (RESP3) set aside so far, oldest first.
  std::vector<Value> take_pushes();
  std::uint64_t pushes_dropped() const noexcept { return pushes_dropped_; }

  int fd() const noexcept { return stream_->fd(); }
  // Input that poll(2) on fd() would not show: call try_receive().
  bool has_buffered_input() const noexcept;
  bool broken() const noexcept { return broken_.has_value() || stream_->is_cut(); }
  void cut_off() noexcept { stream_->cut_off(); }
  // In words, when more is known than the Error says; otherwise empty.
  const std::string& last_error_text() const noexcept {
    return refusal_.empty() ? stream_->last_error_text() : refusal_;
  }

  Protocol protocol() const noexcept { return protocol_; }
  const std::string& server_version() const noexcept { return server_version_; }  // empty in RESP2
  Duration request_timeout() const noexcept { return options_.request_timeout; }

  void set_companion(std::unique_ptr<Companion> companion) { companion_ = std::move(companion); }
  Companion* companion() const noexcept { return companion_.get(); }

 private:
  Connection(std::unique_ptr<net::Stream> stream, const ConnectionOptions& options,
             const Clock& clock);
  Status greet(net::Deadline deadline, std::string* reason);
  Status greet_resp3(net::Deadline deadline, std::string* reason, bool& fell_back);
  Status greet_resp2(net::Deadline deadline, std::string* reason);
  Result<Value> ask(Arguments arguments, net::Deadline deadline);
  Status demand(Arguments arguments, net::Deadline deadline, std::string* reason);
  Status send_encoded(std::size_t commands, net::Deadline deadline);
  Status write_pieces(net::Deadline deadline);
  Result<std::optional<Value>> parse_reply();
  Status read_once();
  Status collect_early();
  void learn_refusal();
  void set_aside(Value&& push);
  Error break_with(Error error);
  Value answered(Value&& value, std::span<std::byte> bulk_into);

  const ConnectionOptions options_;
  const Clock& clock_;
  std::unique_ptr<net::Stream> stream_;
  Parser parser_;
  Encoder encoder_;
  std::deque<Value> early_;  // replies received while sending
  std::size_t early_bytes_ = 0;
  std::deque<Value> pushes_;
  std::uint64_t pushes_dropped_ = 0;
  std::size_t unanswered_ = 0;
  std::size_t sending_ = 0;  // commands being written now
  // The error reply with which the server ended the connection while we were sending.
  std::string refusal_;
  std::optional<Error> broken_;
  Protocol protocol_ = Protocol::resp2;
  std::string server_version_;
  std::unique_ptr<Companion> companion_;  // ends first
};

}  // namespace farlift::resp
