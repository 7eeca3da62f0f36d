// Socket addresses as fabric addresses: a sockaddr_in (16 bytes) or sockaddr_in6 (28), as spec blob
// 5.1 lays them out.
//
// Threads: pure functions. Errors: unsupported: another length or family; permission: an address
//          that must never be a
// target (spec s3 11.3: wildcard, multicast, broadcast, link-local; also port 0 and IPv4 inside
// IPv6).
#pragma once

#include "core/fabric/fabric.h"

#include <cstdint>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

namespace farlift::fabric::soft {

class SocketAddress {
 public:
  static Result<SocketAddress> parse(const std::string& numeric_ip,
                                     std::uint16_t port);  // invalid_argument
  static Result<SocketAddress> decode(const Address& address);
  static Result<SocketAddress> of_socket(int fd);  // getsockname

  Address encode() const;
  int family() const noexcept { return storage_.ss_family; }
  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const noexcept {
    return family() == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  }
  std::uint16_t port() const noexcept;
  // The rules for a place that we connect to; the port is looked at only when asked.
  Status check_target(bool with_port) const;

 private:
  sockaddr_storage storage_{};
};

}  // namespace farlift::fabric::soft
