// Request and Response: one exchange as a server's handler sees it.
//
//   void handle(Request& request, Response& response) {
//     TRY(request.body().read(buffer)) ...
//     response.start(200, headers, length);   // then write() or send_file(), exactly length bytes
//   }
//
// Invariants: `Expect: 100-continue` is answered when the body is first read, never before and
//             never without; who was not told to go on is told that the connection ends, since
//             botocore keeps the state of such an answer for the next one on it. A head is sent
//             once; no more bytes than were announced leave; a body that falls short ends the
//             connection, so that the client sees it.
// Threads:    one, the worker that runs the handler; peer_gone() may be called from any.
// Errors:     as core/net/stream.h; after a failed call the connection ends with the exchange.
#pragma once

#include "core/net/http/input.h"
#include "core/net/http/message.h"

#include <optional>
#include <string>

namespace farlift::net::http {

class Request {
 public:
  Request(RequestHead head, Stream& stream, Input& input, std::string peer, Duration patience);

  const RequestHead& head() const noexcept { return head_; }
  const Headers& headers() const noexcept { return head_.headers; }
  const std::string& method() const noexcept { return head_.method; }
  const std::string& target() const noexcept { return head_.target; }
  // The numeric address of the other end, without its port.
  const std::string& peer() const noexcept { return peer_; }
  Body& body() noexcept { return body_; }
  const Body& body() const noexcept { return body_; }
  // True when the client has closed its end: nobody will read an answer.
  bool peer_gone() const noexcept;
  int fd() const noexcept { return stream_.fd(); }

 private:
  const RequestHead head_;
  Stream& stream_;
  const std::string peer_;
  Body body_;
};

class Response {
 public:
  // `body` of the request, when it has one.
  Response(Stream& stream, const Clock& clock, const RequestHead& request, const Body* body,
           Duration patience)
      : stream_(stream),
        clock_(clock),
        waiting_for_us_(request.expects_continue ? body : nullptr),
        patience_(patience),
        http10_(request.http10),
        no_body_(request.method == "HEAD"),
        keep_alive_(request.keep_alive) {}

  // Sends the head. Without a length the body is chunked (to HTTP/1.0: until close). A HEAD, 204 or
  // 304 carries no body, whatever is announced: write() then drops what it is given. Date,
  // Content-Length, Transfer-Encoding and Connection are added here.
  Status start(std::uint32_t status, Headers headers, std::optional<std::uint64_t> length);
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  // From the file to the socket without passing through here where the system can do it.
  Status send_file(int file, std::uint64_t offset, std::uint64_t length);
  // A whole small reply.
  Status send(std::uint32_t status, Headers headers, std::string_view body);

  // The connection ends after this exchange.
  void close_after() noexcept { keep_alive_ = false; }
  bool started() const noexcept { return started_; }
  std::uint32_t status() const noexcept { return status_; }
  std::uint64_t body_bytes_sent() const noexcept { return sent_; }

  // For the server. finish() ends the body; false: the connection cannot carry another exchange.
  bool finish();
  bool keep_alive() const noexcept { return keep_alive_; }

 private:
  Status put(std::span<const std::byte> bytes);
  Status note(Status status);

  Stream& stream_;
  const Clock& clock_;
  const Body* const waiting_for_us_;
  const Duration patience_;
  const bool http10_;
  bool no_body_;
  bool keep_alive_;
  bool started_ = false;
  bool chunked_ = false;
  bool until_close_ = false;
  bool failed_ = false;
  std::uint32_t status_ = 0;
  std::uint64_t left_ = 0;  // of the announced length
  std::uint64_t sent_ = 0;
};

}  // namespace farlift::net::http
