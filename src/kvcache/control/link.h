// Link: a framed control connection between a client and a node; Transport: how links come to be.
// Real ones are nonblocking sockets (socket_transport.h); the simulation brings its own.
//
// Invariants: frames arrive whole, in order and at most once, or the link is lost; nothing here
//             blocks. A lost link stays lost. Frames sent are kept until the peer's window takes
//             them, at most kQueuedBytesMax.
// Threads:    one (that of the loop), for everything made from a Transport.
// Errors:     send: exhausted (the queue is full: the peer does not read), too_large (the body),
//             closed, connection_lost.
//             receive: again (nothing now), connection_lost (also: could not connect), protocol.
#pragma once

#include "core/base/result.h"
#include "kvcache/wire/frames.h"

#include <cstdint>
#include <memory>
#include <string>

namespace farlift::kv {

class Link {
 public:
  static constexpr std::size_t kQueuedBytesMax = std::size_t{8} << 20;
  virtual ~Link() = default;  // closes
  virtual Status send(const Frame& frame) = 0;
  virtual Result<Frame> receive() = 0;
  virtual void close() noexcept = 0;
  virtual bool lost() const noexcept = 0;  // and every frame that arrived was received
  virtual const std::string& peer() const noexcept = 0;  // for logs: "host:port"
};

class LinkListener {
 public:
  virtual ~LinkListener() = default;
  virtual std::unique_ptr<Link> accept() = 0;  // null: nobody waits; call it until then
  virtual std::uint16_t port() const noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // Starts connecting to an address or a name; frames may be sent at once. A peer that cannot be
  // reached shows in receive().
  virtual Result<std::unique_ptr<Link>> connect(const std::string& host, std::uint16_t port) = 0;
  virtual Result<std::unique_ptr<LinkListener>> listen(const std::string& ip,
                                                       std::uint16_t port) = 0;
  // Moves bytes of every link and listener; true when a receive() or accept() may have something.
  virtual bool step() = 0;
  virtual int wait_fd() const noexcept = 0;  // readable when step() should be called; -1: none
  // What is sent between the two goes out together, at flush() (or sooner).
  virtual void hold() {}
  virtual void flush() {}
};

}  // namespace farlift::kv
