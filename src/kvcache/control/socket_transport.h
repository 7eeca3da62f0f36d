// SocketTransport: links over nonblocking TCP, IPv4 and IPv6, plain or TLS 1.3, for real processes.
//
//   TRY_ASSIGN(auto transport, SocketTransport::open(clock, {}));
//   TRY_ASSIGN(auto link, transport->connect("::1", 7000));
//   poll(transport->wait_fd()), transport->step(), link->receive() ...
//
// Invariants: those of control/link.h. No call waits: names are resolved on a thread of their own.
//             What a peer sends never costs more than kReceivedBytesMax and one frame of memory for
//             a link; garbage, a wrong checksum or an announced length beyond the limit ends that
//             link and no other. Every descriptor is in one epoll descriptor, wait_fd().
// Threads:    one, that of the loop. Ownership: links and listeners may outlive the transport; they
//             are lost then.
// Errors:     as control/link.h. connect: exhausted (too many names being resolved), io. listen:
//             invalid_argument (no numeric address), already_exists (the address is taken),
//             permission, io.
#pragma once

#include "core/base/clock.h"
#include "core/net/tls.h"
#include "kvcache/control/link.h"

#include <cstdint>
#include <memory>
#include <string>

namespace farlift::kv {

struct SocketTransportOptions {
  Duration connect_timeout = std::chrono::seconds(2);  // name, TCP and TLS together
  std::uint32_t keepalive_s = 10;                      // idle seconds before TCP probes
  int backlog = 512;
  // Whom connect() trusts and how it proves itself; null: plain.
  std::shared_ptr<const net::TlsContext> client_tls = {};
  // What accepted links prove (TlsContext::make_server); null: plain.
  std::shared_ptr<const net::TlsContext> server_tls = {};
};

class SocketTransport : public Transport {
 public:
  // Undelivered frames of one link; beyond it the peer is left to wait.
  static constexpr std::size_t kReceivedBytesMax = std::size_t{4} << 20;
  static constexpr std::size_t kReadAtOnce = std::size_t{256} << 10;  // of one link in one step

  static Result<std::unique_ptr<SocketTransport>> open(const Clock& clock,
                                                       SocketTransportOptions options);

  struct Counters {
    std::uint64_t accepted = 0;
    std::uint64_t refused = 0;    // connections dropped for want of descriptors
    std::uint64_t connected = 0;  // started
    std::uint64_t lost = 0;       // links that were not closed by us
    std::uint64_t garbage = 0;    // of these: the peer broke the protocol
  };
  virtual Counters counters() const = 0;
};

}  // namespace farlift::kv
