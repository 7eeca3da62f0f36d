// Client: HTTP/1.1 to one server, over kept connections.
//
//   TRY_ASSIGN(auto exchange, client.start("GET", "/3,01637037d6", {}, 0, deadline));
//   TRY_ASSIGN(const ResponseHead* head, exchange->finish());
//   while ((got = exchange->body().read(buffer)) > 0) ...
//
// Invariants: a connection is used again only when its last exchange ended exactly where its
// framing
//             says. A request is sent again by itself only when it has no body, its connection was
//             a kept one, and no byte of an answer came.
// Threads:    start() and shut() from any; an exchange belongs to one thread, but cut_off() may be
//             called from any while it exists. Exchanges end before the client.
// Errors:     unreachable, timeout, connection_lost, protocol (no HTTP, or a head too large),
// closed.
#pragma once

#include "core/base/mutex.h"
#include "core/net/http/input.h"
#include "core/net/http/message.h"
#include "core/net/stream.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farlift::net::http {

struct ClientOptions {
  StreamOptions stream;                   // where the server is
  std::size_t kept_connections_max = 16;  // idle ones
  std::size_t head_bytes_max = kHeadBytesMax;
  Duration patience = std::chrono::seconds(60);  // for the next byte of a body, either way
};

class Client;

class ClientExchange {
 public:
  ~ClientExchange();
  ClientExchange(const ClientExchange&) = delete;
  ClientExchange& operator=(const ClientExchange&) = delete;

  // The request's body, as announced; not more.
  Status write(std::span<const std::byte> bytes);
  // Ends the request and waits for the head of the answer.
  Result<const ResponseHead*> finish();
  // Of the answer; after finish().
  Body& body() { return *body_; }
  // Any thread: ends every wait of this exchange.
  void cut_off() noexcept { connection_->stream->cut_off(); }
  int fd() const noexcept { return connection_->stream->fd(); }

 private:
  friend class Client;
  struct Connection {
    Connection(std::unique_ptr<Stream> owned, const Clock& clock)
        : stream(std::move(owned)), input(*stream, clock) {}
    std::unique_ptr<Stream> stream;
    Input input;
    bool kept = false;
  };
  ClientExchange(Client& client, std::unique_ptr<Connection> connection, std::string head,
                 std::string_view method, std::optional<std::uint64_t> length, Deadline deadline);
  Status send_head();
  Result<ResponseHead> read_head();

  Client& client_;
  std::unique_ptr<Connection> connection_;
  const std::string head_text_;
  const bool is_head_;
  const Deadline deadline_;
  bool chunked_;
  std::uint64_t left_;  // of the announced length
  bool repeatable_;
  bool failed_ = false;
  ResponseHead head_;
  std::optional<Body> body_;
};

class Client {
 public:
  Client(ClientOptions options, const Clock& clock);
  ~Client();

  // Connects, or takes a kept connection, and sends the head. Host, Content-Length or
  // Transfer-Encoding are added; without `length` the body is chunked. `deadline` bounds
  // everything up to the head of the answer.
  Result<std::unique_ptr<ClientExchange>> start(std::string_view method, std::string_view target,
                                                Headers headers,
                                                std::optional<std::uint64_t> length,
                                                Deadline deadline);
  // Closes the kept connections.
  void shut();

 private:
  friend class ClientExchange;
  using Connection = ClientExchange::Connection;
  Result<std::unique_ptr<Connection>> connect(Deadline deadline);
  std::unique_ptr<Connection> take_kept();
  void keep(std::unique_ptr<Connection> connection);

  const ClientOptions options_;
  const Clock& clock_;
  Mutex mutex_;
  std::vector<std::unique_ptr<Connection>> kept_ GUARDED_BY(mutex_);
};

}  // namespace farlift::net::http
