// SocketLink: one TCP connection that carries frames; for socket_transport.cc.
//
// Invariants: see socket_transport.h. The owner feeds it readiness (edge-triggered) and calls
//             pump(); it never waits. lost() is true only once every frame that arrived was taken.
// Threads:    one.
// Errors:     as control/link.h.
#pragma once

#include "core/base/unique_fd.h"
#include "core/net/stream.h"
#include "kvcache/control/link.h"
#include "kvcache/control/name_resolver.h"
#include "kvcache/control/socket_transport.h"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <sys/uio.h>
#include <utility>
#include <vector>

namespace farlift::kv {

// What all links of a transport share. `links` is how events find them; a link leaves by itself.
struct SocketWorld;

class SocketLink final : public Link {
 public:
  // Over a connected socket.
  SocketLink(std::shared_ptr<SocketWorld> world, std::uint64_t id, std::string peer);
  ~SocketLink() override;

  Status send(const Frame& frame) override;
  Result<Frame> receive() override;
  void close() noexcept override;
  bool lost() const noexcept override { return closed_ || (failure_ && inbox_.empty()); }
  const std::string& peer() const noexcept override { return peer_; }

  // Of an accepted socket.
  void adopt(UniqueFd fd);
  // Tries the addresses in turn, all before `deadline`; empty: the name is unknown.
  void start_connecting(std::vector<SocketAddress> addresses);
  void set_host(std::string host) { host_ = std::move(host); }  // the name TLS expects
  // The descriptor reported something. True: receive() has news.
  bool on_ready(bool readable, bool writable);
  // Moves what can be moved, at most kReadAtOnce inwards. True: receive() has news.
  bool pump();
  // Reading stopped because it was enough for one step, not because there was no more.
  bool wants_pump() const noexcept {
    return state_ == State::open && may_read_ && !failure_ && inbox_bytes_ < kInboxMax;
  }
  void limit_until(Instant deadline);  // of connecting and the TLS handshake
  void fail(Error error);
  void flush();

 private:
  static constexpr std::size_t kInboxMax = SocketTransport::kReceivedBytesMax;
  enum class State : std::uint8_t { resolving, connecting, open, ended };

  void connect_next();
  void check_connected();
  void opened();
  void lift_limit();
  bool fill();
  bool parse();
  Result<std::size_t> read_some(std::span<std::byte> into);
  Result<std::size_t> write_some(std::span<const iovec> from);
  int fd() const noexcept { return stream_ != nullptr ? stream_->fd() : fd_.get(); }

  const std::shared_ptr<SocketWorld> world_;
  const std::uint64_t id_;
  const std::string peer_;
  std::string host_;
  State state_ = State::resolving;
  bool accepted_ = false;
  bool closed_ = false;
  bool may_read_ = false;
  bool may_write_ = false;
  bool write_failed_ = false;
  std::optional<Error> failure_;
  Instant deadline_ =
      Instant::max();  // lifted when the connection (TLS: its first byte) is through
  std::vector<SocketAddress> addresses_;  // still to be tried, the next one last
  UniqueFd fd_;                           // until a TLS stream owns it
  std::unique_ptr<net::Stream> stream_;   // TLS only
  Bytes input_;                           // received, not yet a frame
  std::deque<Frame> inbox_;
  std::size_t inbox_bytes_ = 0;
  std::deque<Bytes> output_;
  std::size_t output_sent_ = 0;  // of the first
  std::size_t output_bytes_ = 0;
};

struct SocketWorld {
  SocketWorld(const Clock& world_clock, SocketTransportOptions world_options)
      : clock(world_clock), options(std::move(world_options)) {}
  void watch(int fd, std::uint64_t id) const;  // edge-triggered, both ways

  const Clock& clock;
  const SocketTransportOptions options;
  bool open = true;  // false: the transport has gone
  UniqueFd poller;
  std::map<std::uint64_t, SocketLink*> links;
  std::set<std::pair<Instant, std::uint64_t>> deadlines;
  std::set<std::uint64_t> hot;  // links to be pumped although nothing more will be reported
  bool held = false;
  std::vector<std::uint64_t> unsent;  // links that were sent to while held
  Bytes scratch;                      // every read lands here first
  SocketTransport::Counters counters;
};

}  // namespace farlift::kv
