#include "core/net/resp/connection.h"

#include "core/net/resp/reply_error.h"

#include <climits>

#include <algorithm>
#include <iterator>
#include <utility>

namespace farlift::resp {
namespace {

// What a refusal during the greeting means to whoever wants to connect.
Error refusal(const Value& reply, const char* where) {
  const ReplyError error = ReplyError::parse(reply.text());
  if (error.kind == ReplyError::Kind::no_auth || error.code == "DENIED")
    return Error::make(Errc::permission, where);
  if (error.is_retryable()) return Error::make(Errc::again, where);
  if (reply.text().starts_with("ERR max number of clients"))
    return Error::make(Errc::exhausted, where);
  return Error::make(Errc::invalid_argument, where);
}

bool knows_no_hello(std::string_view text) {
  return text.starts_with("NOPROTO") || text.starts_with("ERR unknown command");
}

}  // namespace

Connection::Connection(std::unique_ptr<net::Stream> stream, const ConnectionOptions& options,
                       const Clock& clock)
    : options_(options), clock_(clock), stream_(std::move(stream)), parser_(options.limits) {}

Result<std::unique_ptr<Connection>> Connection::connect(const ConnectionOptions& options,
                                                        const Clock& clock, std::string* reason) {
  const net::Deadline deadline = net::Deadline::after(clock, options.connect_timeout);
  net::StreamOptions to;
  to.host = options.host;
  to.port = options.port;
  to.unix_path = options.unix_path;
  to.stop = options.stop;
  to.tls = options.tls_context;
  if (to.tls == nullptr && options.tls) {
    TRY_ASSIGN(to.tls, net::TlsContext::make(*options.tls, reason));
  }
  TRY_ASSIGN(auto stream, net::connect_stream(to, clock, deadline, reason));
  std::unique_ptr<Connection> connection(new Connection(std::move(stream), options, clock));
  TRY(connection->greet(deadline, reason));
  return connection;
}

Result<std::unique_ptr<Connection>> Connection::over(std::unique_ptr<net::Stream> stream,
                                                     const ConnectionOptions& options,
                                                     const Clock& clock, std::string* reason) {
  std::unique_ptr<Connection> connection(new Connection(std::move(stream), options, clock));
  TRY(connection->greet(net::Deadline::after(clock, options.connect_timeout), reason));
  return connection;
}

Error Connection::break_with(Error error) {
  if (!broken_) broken_ = error;
  parser_.offer_bulk({});
  stream_->cut_off();  // the server learns it now, not when we are destroyed
  return *broken_;
}

// ---- greeting

Result<Value> Connection::ask(Arguments arguments, net::Deadline deadline) {
  encoder_.add(arguments);
  TRY(send_encoded(1, deadline));
  return receive({.deadline = deadline, .bulk_into = {}});
}

Status Connection::demand(Arguments arguments, net::Deadline deadline, std::string* reason) {
  TRY_ASSIGN(const Value reply, ask(arguments, deadline));
  if (!reply.is_error()) return {};
  if (reason != nullptr)
    *reason = std::string(arguments.front()) + " was refused: " + std::string(reply.text());
  return refusal(reply, "greeting the server");
}

Status Connection::greet(net::Deadline deadline, std::string* reason) {
  bool fell_back = options_.protocol == Protocol::resp2;
  Status status;
  if (!fell_back) status = greet_resp3(deadline, reason, fell_back);
  if (status.ok() && fell_back) status = greet_resp2(deadline, reason);
  if (status.ok() && options_.database != 0) {
    const std::string index = std::to_string(options_.database);
    const std::string_view select[] = {"SELECT", index};
    status = demand(select, deadline, reason);
  }
  if (status.ok()) return status;
  if (reason != nullptr && reason->empty()) {
    *reason = "greeting the server: " + status.error().describe();
    if (!last_error_text().empty()) *reason += " (" + last_error_text() + ")";
  }
  return break_with(status.error());
}

Status Connection::greet_resp3(net::Deadline deadline, std::string* reason, bool& fell_back) {
  std::vector<std::string_view> hello{"HELLO", "3"};
  if (!options_.username.empty() || !options_.password.empty()) {
    const std::string_view user =
        options_.username.empty() ? std::string_view("default") : options_.username;
    hello.insert(hello.end(), {"AUTH", user, options_.password});
  }
  if (!options_.client_name.empty()) hello.insert(hello.end(), {"SETNAME", options_.client_name});
  TRY_ASSIGN(const Value reply, ask(hello, deadline));
  if (reply.is_error()) {
    fell_back = knows_no_hello(reply.text());
    if (fell_back) return {};
    if (reason != nullptr) *reason = "HELLO was refused: " + std::string(reply.text());
    return refusal(reply, "greeting the server");
  }
  const Value* proto = reply.type() == Type::map ? reply.find("proto") : nullptr;
  if (proto == nullptr || proto->type() != Type::integer || proto->integer() != 3) {
    return Error::make(Errc::protocol, "answer to HELLO");
  }
  protocol_ = Protocol::resp3;
  const Value* version = reply.find("version");
  if (version != nullptr && version->is_text()) server_version_ = version->text();
  return {};
}

Status Connection::greet_resp2(net::Deadline deadline, std::string* reason) {
  parser_.set_resp3(false);
  protocol_ = Protocol::resp2;
  if (!options_.username.empty()) {
    const std::string_view auth[] = {"AUTH", options_.username, options_.password};
    TRY(demand(auth, deadline, reason));
  } else if (!options_.password.empty()) {
    const std::string_view auth[] = {"AUTH", options_.password};
    TRY(demand(auth, deadline, reason));
  }
  if (!options_.client_name.empty()) {
    const std::string_view name[] = {"CLIENT", "SETNAME", options_.client_name};
    TRY(demand(name, deadline, reason));
  }
  // Proves that a server is there and that we may talk to it.
  const std::string_view ping[] = {"PING"};
  return demand(ping, deadline, reason);
}

// ---- sending

Status Connection::send(Arguments arguments) {
  if (broken_) return *broken_;
  if (arguments.empty()) return Error::make(Errc::invalid_argument, "empty command");
  encoder_.add(arguments);
  return send_encoded(1, net::Deadline::after(clock_, options_.request_timeout));
}

Status Connection::send_many(std::span<const Arguments> commands) {
  if (broken_) return *broken_;
  if (std::ranges::any_of(commands, [](Arguments a) { return a.empty(); })) {
    return Error::make(Errc::invalid_argument, "empty command");
  }
  if (commands.empty()) return {};
  for (const Arguments command : commands) encoder_.add(command);
  return send_encoded(commands.size(), net::Deadline::after(clock_, options_.request_timeout));
}

Status Connection::send_encoded(std::size_t commands, net::Deadline deadline) {
  sending_ = commands;
  const Status written = write_pieces(deadline);
  sending_ = 0;
  encoder_.clear();
  if (written.ok()) {
    unanswered_ += commands;
    return {};
  }
  if (written.error().code == Errc::connection_lost) learn_refusal();
  return break_with(written.error());
}

Status Connection::write_pieces(net::Deadline deadline) {
  std::span<iovec> pieces = encoder_.pieces();
  while (!pieces.empty()) {
    Result<std::size_t> put =
        stream_->try_write(pieces.first(std::min<std::size_t>(pieces.size(), IOV_MAX)));
    if (put.ok()) {
      std::size_t done = *put;
      while (!pieces.empty() && done >= pieces.front().iov_len) {
        done -= pieces.front().iov_len;
        pieces = pieces.subspan(1);
      }
      if (done > 0) {
        pieces.front().iov_base = static_cast<std::byte*>(pieces.front().iov_base) + done;
        pieces.front().iov_len -= done;
      }
      continue;
    }
    if (put.code() != Errc::again) return put.error();
    // A server whose replies we do not read stops reading our commands.
    const bool listen = early_bytes_ < kEarlyReplyBytesMax;
    TRY_ASSIGN(const net::Readiness ready,
               stream_->wait(listen ? net::Interest::either : net::Interest::write, deadline));
    if (ready.readable) TRY(collect_early());
  }
  return {};
}

Status Connection::collect_early() {
  // Bytes that came with an earlier reply may not have been looked at; they count even when no more
  // can be read.
  Status read;
  if (!parser_.has_unparsed()) read = read_once();
  if (!read.ok() && read.error().code != Errc::again) return read;
  for (;;) {
    TRY_ASSIGN(std::optional<Value> value, parse_reply());
    if (!value) return {};
    if (early_.size() >= unanswered_ + sending_)
      return Error::make(Errc::protocol, "reply without a command");
    early_.push_back(*std::move(value));
  }
}

// A server that refuses a command half way (one longer than it takes, say) says why and hangs up;
// the words are here even though writing failed.
void Connection::learn_refusal() {
  sending_ = 1;
  while (collect_early().ok() && early_.size() <= unanswered_) {
    if (!stream_->wait(net::Interest::read, net::Deadline::at(clock_.now())).ok()) break;
  }
  sending_ = 0;
  if (early_.size() > unanswered_ && early_.back().is_error()) refusal_ = early_.back().text();
}

// ---- receiving

Status Connection::read_once() {
  const Parser::Areas areas = parser_.areas();
  TRY_ASSIGN(const std::size_t got, stream_->try_read(areas.used()));
  parser_.commit(got);
  if (sending_ > 0) early_bytes_ += got;
  return {};
}

Result<std::optional<Value>> Connection::parse_reply() {
  for (;;) {
    TRY_ASSIGN(std::optional<Value> value, parser_.next());
    if (!value || value->type() != Type::push) return value;
    set_aside(*std::move(value));
  }
}

void Connection::set_aside(Value&& push) {
  if (pushes_.size() >= kPushesMax) {
    pushes_.pop_front();
    ++pushes_dropped_;
  }
  pushes_.push_back(std::move(push));
}

std::vector<Value> Connection::take_pushes() {
  std::vector<Value> taken(std::make_move_iterator(pushes_.begin()),
                           std::make_move_iterator(pushes_.end()));
  pushes_.clear();
  return taken;
}

Value Connection::answered(Value&& value, std::span<std::byte> bulk_into) {
  --unanswered_;
  parser_.offer_bulk({});
  if (bulk_into.empty()) return std::move(value);
  // A reply that was on its way before the memory was offered lies elsewhere.
  value.move_first_bulk(bulk_into);
  return std::move(value);
}

Result<Value> Connection::receive() {
  return receive(
      {.deadline = net::Deadline::after(clock_, options_.request_timeout), .bulk_into = {}});
}

Result<Value> Connection::receive(const ReceiveOptions& options) {
  if (broken_) return *broken_;
  if (unanswered_ == 0) return Error::make(Errc::invalid_argument, "receive without a command");
  if (!early_.empty()) {
    Value value = std::move(early_.front());
    early_.pop_front();
    if (early_.empty()) early_bytes_ = 0;
    return answered(std::move(value), options.bulk_into);
  }
  parser_.offer_bulk(options.bulk_into);
  for (;;) {
    Result<std::optional<Value>> value = parse_reply();
    if (!value.ok()) return break_with(value.error());
    if (*value) return answered(*std::move(*value), options.bulk_into);
    Status read = read_once();
    if (!read.ok() && read.error().code == Errc::again) {
      const auto ready = stream_->wait(net::Interest::read, options.deadline);
      if (ready.ok()) continue;
      read = ready.error();
    }
    if (!read.ok()) return break_with(read.error());
  }
}

Result<std::optional<Value>> Connection::try_receive() {
  if (broken_) return *broken_;
  if (!early_.empty()) {
    TRY_ASSIGN(Value value, receive({}));
    return std::optional<Value>(std::move(value));
  }
  for (;;) {
    Result<std::optional<Value>> value = parse_reply();
    if (!value.ok()) return break_with(value.error());
    if (*value) {
      if (unanswered_ == 0)
        return break_with(Error::make(Errc::protocol, "reply without a command"));
      return std::optional<Value>(answered(*std::move(*value), {}));
    }
    const Status read = read_once();
    if (read.ok()) continue;
    if (read.error().code == Errc::again) return std::optional<Value>();
    return break_with(read.error());
  }
}

Result<Value> Connection::request(Arguments arguments) {
  TRY(send(arguments));
  return receive();
}

bool Connection::has_buffered_input() const noexcept {
  return !early_.empty() || parser_.has_unparsed() || stream_->pending() > 0;
}

}  // namespace farlift::resp
