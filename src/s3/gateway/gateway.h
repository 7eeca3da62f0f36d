// Gateway: S3 over HTTP: who asks, what for, whether they may, and the line of the access log.
//
// Invariants: nothing is done for a request before its signature, its signed headers and its right
// were checked
//             (spec s3 2.1). Every request gets exactly one answer, and one line of the log.
// Threads:    start() and stop() by the owner; operations run on the server's workers.
// Errors:     start(): those of the HTTP server.
#pragma once

#include "core/net/http/server.h"
#include "s3/gateway/call.h"

#include <functional>
#include <memory>
#include <string>

namespace farlift::s3::gateway {

class Gateway {
 public:
  // One JSON line, ended by LF; called from several threads.
  using AccessLog = std::function<void(const std::string&)>;

  static Result<std::unique_ptr<Gateway>> start(Services services, net::http::ServerOptions server,
                                                AccessLog access_log);
  Gateway(Services services, AccessLog access_log)
      : services_(std::move(services)), access_log_(std::move(access_log)) {}
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  std::uint16_t port() const noexcept { return server_->port(); }
  void stop(Duration grace) { server_->stop(grace); }

  // One request, to its answer; what the server calls.
  void handle(net::http::Request& request, net::http::Response& response);

 private:
  S3Status serve(Call& call);
  S3Status authenticate(Call& call);
  void answer(Call& call, const S3Error& error);
  void log(const Call& call, std::int64_t began_ms, std::int64_t took_us);

  Services services_;
  const AccessLog access_log_;
  std::unique_ptr<net::http::Server> server_;
};

}  // namespace farlift::s3::gateway
