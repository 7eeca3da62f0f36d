// A server with a small set of handlers and a raw client, for the tests of this folder.
#pragma once

#include "core/net/http/server.h"
#include "core/net/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

namespace farlift::net::http {

inline const SystemClock kTestClock;

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline Deadline test_deadline() { return Deadline::after(kTestClock, std::chrono::seconds(20)); }

// A connection on which a test says what it likes, byte by byte.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port) {
    StreamOptions options;
    options.port = port;
    stream_ = connect_stream(options, kTestClock, test_deadline()).value();
  }
  Status say(std::string_view text) { return stream_->write_all(bytes_of(text), test_deadline()); }
  // Until `end` has come (then with what came beyond it), or the connection ended.
  std::string hear_until(std::string_view end) {
    std::string& got = heard_;
    std::byte part[4096];
    while (got.find(end) == std::string::npos) {
      const Result<std::size_t> count = stream_->read_some(part, test_deadline());
      if (!count.ok()) break;
      got.append(reinterpret_cast<const char*>(part), *count);
    }
    return std::exchange(heard_, {});
  }
  std::string hear_all() { return hear_until(std::string_view("\0never\0", 7)); }
  Stream& stream() { return *stream_; }

 private:
  std::unique_ptr<Stream> stream_;
  std::string heard_;
};

// GET /hello          "hello"
// PUT /count          how many bytes the body had, and its trailers
// PUT /ignore         200 without reading the body
// GET /big?N          N bytes of 'x' with a length
// GET /chunked        "one", "two" in two chunks
// GET /short          announces ten bytes and sends three
inline void serve_test(Request& request, Response& response) {
  const std::string& target = request.target();
  if (target == "/hello") {
    response.send(200, {{"X-Method", request.method()}}, "hello").ignore();
  } else if (target == "/count") {
    std::uint64_t total = 0;
    std::byte part[1000];
    for (;;) {
      const Result<std::size_t> got = request.body().read(part);
      if (!got.ok()) {
        response.close_after();
        response.send(400, {}, "broken body\n").ignore();
        return;
      }
      if (*got == 0) break;
      total += *got;
    }
    std::string text = std::to_string(total);
    for (const Field& field : request.body().trailers().all())
      text += " " + field.name + "=" + field.value;
    response.send(200, {}, text).ignore();
  } else if (target == "/ignore") {
    response.send(200, {}, "ignored").ignore();
  } else if (target.starts_with("/big?")) {
    const std::uint64_t total = std::stoull(target.substr(5));
    response.start(200, {}, total).ignore();
    const std::string part(64 * 1024, 'x');
    for (std::uint64_t left = total; left > 0;) {
      const std::size_t count =
          static_cast<std::size_t>(std::min<std::uint64_t>(left, part.size()));
      if (!response.write(std::string_view(part).substr(0, count)).ok()) return;
      left -= count;
    }
  } else if (target == "/chunked") {
    response.start(200, {}, std::nullopt).ignore();
    response.write("one").ignore();
    response.write("two").ignore();
  } else if (target == "/short") {
    response.start(200, {}, 10).ignore();
    response.write("abc").ignore();
  } else {
    response.send(404, {}, "no\n").ignore();
  }
}

inline std::unique_ptr<Server> start_test_server(ServerOptions options = {},
                                                 Server::Handler handler = serve_test) {
  return Server::start(std::move(options), std::move(handler), kTestClock).value();
}

}  // namespace farlift::net::http
