// Stream: a connected byte stream (TCP, Unix, TLS over either) with deadlines, which another thread
// can cut off.
//
//   TRY_ASSIGN(auto stream, connect_stream(options, clock, Deadline::after(clock, 2s)));
//   TRY(stream->write_all(bytes, deadline));
//   TRY_ASSIGN(const std::size_t got, stream->read_some(buffer, deadline));   // got > 0
//
// Invariants: after cut_off() every call fails with Errc::closed, also those that were waiting; the
//             peer sees the end of the stream at once. A failed stream stays failed. No signal is
//             raised for a broken pipe.
// Threads:    one at a time, except cut_off() and is_cut(), which any thread may call while the
//             stream exists.
// Errors:     again (try_* only: nothing to do now), timeout, connection_lost (the peer ended or
//             reset the stream), closed (we did), unreachable (connecting), permission (TLS
//             refused: see last_error_text()), io.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/unique_fd.h"
#include "core/net/deadline.h"
#include "core/net/wake_signal.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <sys/uio.h>

namespace farlift::net {

class TlsContext;

enum class Interest : std::uint8_t { read = 1, write = 2, either = 3 };

struct Readiness {
  bool readable = false;
  bool writable = false;
};

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Nonblocking scatter read and gather write; at least one byte, or an error (Errc::again: nothing
  // now). A write that said `again` must be repeated with the same bytes first (TLS has the record
  // half sent).
  virtual Result<std::size_t> try_read(std::span<const iovec> into) = 0;
  virtual Result<std::size_t> try_write(std::span<const iovec> from) = 0;
  // Bytes already decrypted or buffered here, which poll(2) on fd() would not show.
  virtual std::size_t pending() const noexcept { return 0; }

  // True when the bytes on the descriptor are not the bytes of the stream (TLS).
  virtual bool encrypted() const noexcept { return false; }

  // The poll(2) events after which try_read or try_write is worth calling, for loops that watch
  // fd() themselves. Look at pending() first.
  short events(Interest interest) const noexcept { return poll_events(interest); }

  // Waits until try_read or try_write is worth calling. At least one member of the answer is true.
  Result<Readiness> wait(Interest interest, Deadline deadline);

  Result<std::size_t> read_some(std::span<std::byte> into, Deadline deadline);
  Status write_all(std::span<const std::byte> bytes, Deadline deadline);

  int fd() const noexcept { return fd_.get(); }
  void cut_off() noexcept;
  bool is_cut() const noexcept;
  // What the last failure was, in words, as far as more is known than the Error says (TLS);
  // otherwise empty.
  const std::string& last_error_text() const noexcept { return error_text_; }

 protected:
  Stream(UniqueFd fd, std::shared_ptr<WakeSignal> own, std::shared_ptr<const WakeSignal> stop,
         const Clock& clock);

  // The poll(2) events that make progress for `interest`; TLS may need to write in order to read.
  virtual short poll_events(Interest interest) const noexcept;
  void set_error_text(std::string text) { error_text_ = std::move(text); }

 private:
  const Clock& clock_;
  const UniqueFd fd_;
  const std::shared_ptr<WakeSignal> own_;
  // Somebody else's: cuts off this and other streams; may be null.
  const std::shared_ptr<const WakeSignal> stop_;
  std::string error_text_;
};

struct StreamOptions {
  std::string host = "127.0.0.1";  // a numeric address or a name
  std::uint16_t port = 0;
  std::string unix_path = {};                  // when not empty, used instead of host and port
  std::shared_ptr<const TlsContext> tls = {};  // null: plain
  std::uint32_t keepalive_s = 30;              // idle seconds before TCP probes; 0: off
  // When raised, connecting and the stream end with Errc::closed; may be null.
  std::shared_ptr<const WakeSignal> stop = {};
};

// Resolves, connects, and where asked for shakes hands by TLS, all before `deadline` (name
// resolution itself cannot be interrupted). Several addresses are tried in turn, each with its
// share of the time. `reason`, when given, receives one sentence on failure.
Result<std::unique_ptr<Stream>> connect_stream(const StreamOptions& options, const Clock& clock,
                                               Deadline deadline, std::string* reason = nullptr);

// Takes over a connected stream socket (from accept(2) or socketpair(2)) and makes it nonblocking.
Result<std::unique_ptr<Stream>> adopt_stream(UniqueFd fd, const Clock& clock,
                                             std::shared_ptr<const WakeSignal> stop = nullptr);

}  // namespace farlift::net
