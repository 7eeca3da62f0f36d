#include "core/net/http/client.h"

#include <cstdio>
#include <poll.h>
#include <utility>

namespace farlift::net::http {

ClientExchange::ClientExchange(Client& client, std::unique_ptr<Connection> connection,
                               std::string head, std::string_view method,
                               std::optional<std::uint64_t> length, Deadline deadline)
    : client_(client),
      connection_(std::move(connection)),
      head_text_(std::move(head)),
      is_head_(method == "HEAD"),
      deadline_(deadline),
      chunked_(!length.has_value()),
      left_(length.value_or(0)),
      repeatable_(length == std::uint64_t{0}) {}

ClientExchange::~ClientExchange() {
  const bool clean = !failed_ && left_ == 0 && body_.has_value() && body_->ended() &&
                     head_.keep_alive && !connection_->stream->is_cut();
  if (clean) client_.keep(std::move(connection_));
}

Status ClientExchange::send_head() {
  const Status sent =
      connection_->stream->write_all(std::as_bytes(std::span(head_text_)), deadline_);
  failed_ = !sent.ok();
  return sent;
}

Status ClientExchange::write(std::span<const std::byte> bytes) {
  if (failed_) return Error::make(Errc::connection_lost, "a request that failed before");
  if (bytes.empty()) return {};
  Stream& stream = *connection_->stream;
  const auto put = [&](std::span<const std::byte> part) {
    const Status done =
        stream.write_all(part, Deadline::after(client_.clock_, client_.options_.patience));
    failed_ = !done.ok();
    return done;
  };
  if (!chunked_) {
    ASSERT(bytes.size() <= left_);
    TRY(put(bytes));
    left_ -= bytes.size();
    return {};
  }
  char size[24];
  const int digits = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
  TRY(put(std::as_bytes(std::span(size, static_cast<std::size_t>(digits)))));
  TRY(put(bytes));
  return put(std::as_bytes(std::span("\r\n", 2)));
}

Result<ResponseHead> ClientExchange::read_head() {
  for (;;) {
    TRY_ASSIGN(const std::string text,
               connection_->input.read_head(client_.options_.head_bytes_max, deadline_));
    auto parsed = parse_response_head(text);
    if (std::holds_alternative<Refusal>(parsed))
      return Error::make(Errc::protocol, "head of an HTTP response");
    ResponseHead head = std::get<ResponseHead>(std::move(parsed));
    if (head.status >= 200) return head;  // interim ones are not the answer
  }
}

Result<const ResponseHead*> ClientExchange::finish() {
  ASSERT(!body_.has_value());
  if (chunked_ && !failed_) {
    const Status ended =
        connection_->stream->write_all(std::as_bytes(std::span("0\r\n\r\n", 5)), deadline_);
    failed_ = !ended.ok();
  }
  // A server may answer, and close, before it has read all of a body it refuses: the answer is
  // worth more than our write error.
  Result<ResponseHead> head = read_head();
  const bool stale = !head.ok() && connection_->kept && repeatable_ &&
                     head.code() == Errc::connection_lost && connection_->input.buffered() == 0;
  if (stale) {
    TRY_ASSIGN(connection_, client_.connect(deadline_));
    TRY(send_head());
    head = read_head();
  }
  if (!head.ok()) {
    failed_ = true;
    return head.error();
  }
  head_ = std::move(head).value();
  const bool none = is_head_ || head_.status == 204 || head_.status == 304;
  auto framing = Body::Framing::length;
  if (!none && head_.chunked) framing = Body::Framing::chunked;
  if (!none && !head_.chunked && !head_.content_length) {
    framing = Body::Framing::until_close;
    head_.keep_alive = false;
  }
  body_.emplace(connection_->input, framing, none ? 0 : head_.content_length.value_or(0),
                client_.options_.patience);
  return &std::as_const(head_);
}

Client::Client(ClientOptions options, const Clock& clock)
    : options_(std::move(options)), clock_(clock) {}

Client::~Client() = default;

void Client::shut() {
  MutexLock lock(mutex_);
  kept_.clear();
}

Result<std::unique_ptr<Client::Connection>> Client::connect(Deadline deadline) {
  TRY_ASSIGN(auto stream, connect_stream(options_.stream, clock_, deadline));
  return std::make_unique<Connection>(std::move(stream), clock_);
}

// The newest one that is silent: bytes or an end on an idle connection mean that it is over.
std::unique_ptr<Client::Connection> Client::take_kept() {
  MutexLock lock(mutex_);
  while (!kept_.empty()) {
    auto connection = std::move(kept_.back());
    kept_.pop_back();
    pollfd fd{connection->stream->fd(), POLLIN | POLLRDHUP, 0};
    const bool silent = ::poll(&fd, 1, 0) == 0 && connection->stream->pending() == 0;
    if (silent && connection->input.buffered() == 0) return connection;
  }
  return nullptr;
}

void Client::keep(std::unique_ptr<Connection> connection) {
  connection->kept = true;
  MutexLock lock(mutex_);
  if (kept_.size() < options_.kept_connections_max) kept_.push_back(std::move(connection));
}

Result<std::unique_ptr<ClientExchange>> Client::start(std::string_view method,
                                                      std::string_view target, Headers headers,
                                                      std::optional<std::uint64_t> length,
                                                      Deadline deadline) {
  if (!headers.has("Host")) {
    const std::string& host = options_.stream.host;
    const bool v6 = host.find(':') != std::string::npos;
    headers.add("Host",
                (v6 ? "[" + host + "]" : host) + ":" + std::to_string(options_.stream.port));
  }
  if (!length.has_value()) {
    headers.set("Transfer-Encoding", "chunked");
  } else if (*length > 0 || method == "PUT" || method == "POST") {
    headers.set("Content-Length", std::to_string(*length));
  }
  std::string line(method);
  line += ' ';
  line += target;
  line += " HTTP/1.1";
  auto connection = take_kept();
  if (connection == nullptr) {
    TRY_ASSIGN(connection, connect(deadline));
  }
  std::unique_ptr<ClientExchange> exchange(new ClientExchange(
      *this, std::move(connection), format_head(line, headers), method, length, deadline));
  Status sent = exchange->send_head();
  if (!sent.ok() && exchange->connection_->kept && sent.code() == Errc::connection_lost) {
    // Nothing of the body has left yet, so nothing can have been done.
    TRY_ASSIGN(exchange->connection_, connect(deadline));
    sent = exchange->send_head();
  }
  if (!sent.ok()) return sent.error();
  return exchange;
}

}  // namespace farlift::net::http
