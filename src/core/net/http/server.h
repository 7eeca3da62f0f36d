// Server: HTTP/1.1 for blocking handlers. One thread watches the connections that wait for a
// request; a head that is complete goes to one of a fixed number of workers, which runs the handler
// to its end, so memory is bounded by workers, and waiting clients cost one small buffer each.
//
// Invariants: at most connections_max connections (further ones wait in the kernel's backlog) and
// at
//             most `workers` handlers at a time. Requests of one connection are handled in order. A
//             head that takes longer than head_timeout is answered 408, one that is too large 431,
//             one that is malformed 400, and the connection ends.
// Threads:    start() and stop() by the owner; handlers run on the workers, several at a time.
// Errors:     start(): io, permission, invalid_argument (address). A handler that throws is a bug
//             and ends the process.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/net/http/exchange.h"

#include <functional>
#include <memory>
#include <string>

namespace farlift::net {
class TlsContext;
}

namespace farlift::net::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // a numeric address
  std::uint16_t port = 0;          // 0: any free one, see Server::port()
  std::shared_ptr<const TlsContext> tls = {};
  std::size_t workers = 16;
  std::size_t connections_max = 1024;
  std::size_t head_bytes_max = kHeadBytesMax;
  Duration head_timeout = std::chrono::seconds(20);   // from the first byte, and the TLS handshake
  Duration idle_timeout = std::chrono::seconds(75);   // between requests
  Duration body_patience = std::chrono::seconds(60);  // for the next byte, either way
};

// What a client is told about a request that never reached the handler.
using RefusalText = std::function<std::string(const Refusal&, Headers&)>;

class Server {
 public:
  using Handler = std::function<void(Request&, Response&)>;

  // `refusal_text`, when set, makes the body of 4xx answers to malformed heads.
  static Result<std::unique_ptr<Server>> start(ServerOptions options, Handler handler,
                                               const Clock& clock, RefusalText refusal_text = {});
  virtual ~Server() = default;
  virtual std::uint16_t port() const noexcept = 0;
  // Refuses new requests, lets running handlers finish for `grace`, then cuts their connections and
  // waits for them. Idempotent; the destructor does it without grace.
  virtual void stop(Duration grace) = 0;
};

}  // namespace farlift::net::http
