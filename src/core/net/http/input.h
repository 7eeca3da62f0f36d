// Input: what arrives on a stream, buffered only as far as heads and lines need it; bodies go from
// the socket straight into the caller's memory.
// Body: the body of one message, whatever its framing, read from an Input.
//
// Invariants: a body ends exactly where its framing says; what follows stays in the Input.
// Threads:    one at a time.
// Errors:     protocol (bad chunking; a head, line or trailer too long), connection_lost (the peer
//             ended early: what was read is not the whole), timeout, closed (we cut it off).
#pragma once

#include "core/net/http/message.h"
#include "core/net/stream.h"

#include <functional>
#include <string>

namespace farlift::net::http {

inline constexpr std::size_t kChunkLineMax = 256;           // a chunk's size and extensions
inline constexpr std::size_t kTrailerBytesMax = 16 * 1024;  // all trailer fields of one body

class Input {
 public:
  Input(Stream& stream, const Clock& clock) : stream_(stream), clock_(clock) {}

  // Takes in what is there now; again when nothing is. too_large when `bytes_max` are held already.
  Status fill_now(std::size_t bytes_max);
  // A whole head with its empty line, if it is here.
  std::optional<std::string> take_head();
  // A whole head; protocol when it is longer than `bytes_max`.
  Result<std::string> read_head(std::size_t bytes_max, Deadline deadline);
  // A line without its CRLF; protocol when it is longer or ends otherwise.
  Result<std::string> read_line(std::size_t bytes_max, Deadline deadline);
  // At least one byte.
  Result<std::size_t> read_some(std::span<std::byte> into, Deadline deadline);
  std::size_t buffered() const noexcept { return buffer_.size() - start_; }
  // Empty lines before a request line are to be ignored (RFC 9112 2.2).
  void skip_empty_lines() noexcept;
  const Clock& clock() const noexcept { return clock_; }

 private:
  std::string_view rest() const noexcept { return std::string_view(buffer_).substr(start_); }
  void drop(std::size_t count) noexcept;
  Status fill(std::size_t bytes_max, Deadline deadline);

  Stream& stream_;
  const Clock& clock_;
  std::string buffer_;
  std::size_t start_ = 0;
  std::size_t looked_ = 0;  // no head ends before this place of rest()
};

class Body {
 public:
  enum class Framing : std::uint8_t { length, chunked, until_close };

  // `patience` is how long each read waits for the next byte.
  Body(Input& input, Framing framing, std::uint64_t length, Duration patience)
      : input_(input),
        framing_(framing),
        patience_(patience),
        left_(length),
        ended_(framing == Framing::length && length == 0) {}

  // 0 at the end, again and again. `into` must not be empty.
  Result<std::size_t> read(std::span<std::byte> into);
  // The whole rest when it has at most `bytes_max` bytes; too_large otherwise.
  Result<std::string> read_all(std::size_t bytes_max);
  bool ended() const noexcept { return ended_; }
  bool touched() const noexcept { return touched_; }
  bool failed() const noexcept { return failed_; }
  const Headers& trailers() const noexcept { return trailers_; }  // once ended
  // Called once, before the first byte is waited for.
  void on_first_read(std::function<Status()> call) { on_first_read_ = std::move(call); }

 private:
  Result<std::size_t> read_framed(std::span<std::byte> into);
  Status next_chunk();
  Status read_trailers();
  Deadline deadline() const { return Deadline::after(input_.clock(), patience_); }

  Input& input_;
  const Framing framing_;
  const Duration patience_;
  std::uint64_t left_;  // of the body, or of the chunk
  bool ended_;
  bool touched_ = false;
  bool failed_ = false;
  bool after_first_chunk_ = false;
  Headers trailers_;
  std::function<Status()> on_first_read_;
};

}  // namespace farlift::net::http
