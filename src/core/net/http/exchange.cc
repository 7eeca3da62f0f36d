#include "core/net/http/exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <memory>
#include <poll.h>
#include <sys/sendfile.h>
#include <unistd.h>
#include <utility>

namespace farlift::net::http {
namespace {

constexpr std::size_t kFilePartBytes = 256 * 1024;  // one sendfile(2), or one read and write
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

Body::Framing framing_of(const RequestHead& head) noexcept {
  return head.chunked ? Body::Framing::chunked : Body::Framing::length;
}

}  // namespace

Request::Request(RequestHead head, Stream& stream, Input& input, std::string peer,
                 Duration patience)
    : head_(std::move(head)),
      stream_(stream),
      peer_(std::move(peer)),
      body_(input, framing_of(head_), head_.content_length.value_or(0), patience) {
  if (!head_.expects_continue) return;
  body_.on_first_read([this, &input, patience]() -> Status {
    // What is here already was not held back for our word.
    if (input.buffered() > 0) return {};
    return stream_.write_all(std::as_bytes(std::span(kContinue)),
                             Deadline::after(input.clock(), patience));
  });
}

bool Request::peer_gone() const noexcept {
  pollfd fd{stream_.fd(), POLLRDHUP, 0};
  return ::poll(&fd, 1, 0) > 0 && (fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

Status Response::note(Status status) {
  if (!status.ok()) {
    failed_ = true;
    keep_alive_ = false;
  }
  return status;
}

Status Response::put(std::span<const std::byte> bytes) {
  if (failed_) return Error::make(Errc::connection_lost, "a response that failed before");
  // The deadline is per piece: a client that reads slowly but reads is served.
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kFilePartBytes));
    TRY(note(stream_.write_all(part, Deadline::after(clock_, patience_))));
    bytes = bytes.subspan(part.size());
  }
  return {};
}

Status Response::start(std::uint32_t status, Headers headers, std::optional<std::uint64_t> length) {
  ASSERT(!started_);
  started_ = true;
  status_ = status;
  if (waiting_for_us_ != nullptr && !waiting_for_us_->touched()) keep_alive_ = false;
  if (!headers.has("Date")) headers.add("Date", format_date(std::time(nullptr)));
  const bool never_body = status == 204 || status == 304 || status < 200;
  if (length.has_value()) {
    left_ = *length;
    if (!never_body) headers.set("Content-Length", std::to_string(*length));
  } else if (!never_body && !http10_) {
    chunked_ = true;
    headers.set("Transfer-Encoding", "chunked");
  } else if (!never_body) {
    until_close_ = true;
    keep_alive_ = false;
  }
  no_body_ = no_body_ || never_body;
  if (!keep_alive_) {
    headers.set("Connection", "close");
  } else if (http10_) {
    headers.set("Connection", "keep-alive");
  }
  std::string line = "HTTP/1.1 " + std::to_string(status) + " ";
  line += reason_phrase(status);
  const std::string head = format_head(line, headers);
  return put(std::as_bytes(std::span(head)));
}

Status Response::write(std::span<const std::byte> bytes) {
  ASSERT(started_);
  if (bytes.empty() || no_body_) return {};
  if (!chunked_ && !until_close_) {
    ASSERT(bytes.size() <= left_);
    left_ -= bytes.size();
  }
  if (chunked_) {
    char size[24];
    const int digits = std::snprintf(size, sizeof size, "%zx\r\n", bytes.size());
    TRY(put(std::as_bytes(std::span(size, static_cast<std::size_t>(digits)))));
  }
  TRY(put(bytes));
  sent_ += bytes.size();
  if (chunked_) TRY(put(std::as_bytes(std::span("\r\n", 2))));
  return {};
}

Status Response::send_file(int file, std::uint64_t offset, std::uint64_t length) {
  ASSERT(started_ && !chunked_);
  if (no_body_) return {};
  ASSERT(length <= left_);
  std::unique_ptr<std::byte[]> buffer;
  while (length > 0) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(length, kFilePartBytes));
    std::size_t done = 0;
    if (!stream_.encrypted()) {
      auto at = static_cast<off_t>(offset);
      const ssize_t sent = ::sendfile(stream_.fd(), file, &at, wanted);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && errno == EAGAIN) {
        const Result<Readiness> ready =
            stream_.wait(Interest::write, Deadline::after(clock_, patience_));
        if (!ready.ok()) return note(ready.error());
        continue;
      }
      if (sent < 0) return note(Error::from_errno("sendfile"));
      done = static_cast<std::size_t>(sent);
    } else {
      if (buffer == nullptr) buffer = std::make_unique<std::byte[]>(kFilePartBytes);
      const ssize_t got = ::pread(file, buffer.get(), wanted, static_cast<off_t>(offset));
      if (got < 0) return note(Error::from_errno("pread"));
      done = static_cast<std::size_t>(got);
      TRY(put({buffer.get(), done}));
    }
    if (done == 0) return note(Error::make(Errc::io, "file shorter than announced"));
    offset += done;
    length -= done;
    left_ -= done;
    sent_ += done;
  }
  return {};
}

Status Response::send(std::uint32_t status, Headers headers, std::string_view body) {
  TRY(start(status, std::move(headers), body.size()));
  return write(body);
}

bool Response::finish() {
  if (failed_ || !started_) return false;
  if (no_body_) return keep_alive_;
  if (chunked_) return put(std::as_bytes(std::span("0\r\n\r\n", 5))).ok() && keep_alive_;
  // Short of what was announced: only the end of the connection can say so.
  return left_ == 0 && keep_alive_;
}

}  // namespace farlift::net::http
