// AddressPolicy: which addresses a RESP connection may name as its own in BLOB.RDMA_HELLO. The
// server opens connections to what is named there, so by default a client may only name the host it
// speaks from.
//
// Invariants: an address is admitted when it equals the peer's own, when both are loopback (peers
//             on a Unix socket count as loopback), or when the operator listed it; everything else
//             is refused. IPv4-mapped IPv6 addresses count as the IPv4 address they wrap.
// Threads:    immutable value. Errors: parse() answers nullopt for a malformed list.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace farlift::blob {

// An IP address in 16 bytes; IPv4 as its mapped form.
struct IpAddress {
  std::array<std::uint8_t, 16> bytes{};
  bool v4() const noexcept;
  bool loopback() const noexcept;
  static std::optional<IpAddress> parse(std::string_view text);
  // Out of the bytes of a sockaddr_in (16) or sockaddr_in6 (28).
  static std::optional<IpAddress> from_sockaddr(std::span<const std::byte> bytes);
  friend bool operator==(const IpAddress&, const IpAddress&) noexcept = default;
};

class AddressPolicy {
 public:
  // "10.0.0.0/8, 192.168.1.7, fd00::/8"; empty is an empty list.
  static std::optional<AddressPolicy> parse(std::string_view list);

  // `peer` is the RESP connection's own address, nullopt for a Unix socket.
  bool admits(const IpAddress& target, const std::optional<IpAddress>& peer) const noexcept;

 private:
  struct Network {
    IpAddress base;
    unsigned prefix_bits = 128;
  };
  std::vector<Network> allowed_;
};

}  // namespace farlift::blob
