// Socket addresses as fabric addresses: what may be a target, and how one is written.
//
// Invariants: normalised bytes compare equal exactly when they name the same listener.
// Threads:    pure functions.
// Errors:     unsupported (length or family); permission (must never be a target, or has no
//             port).
#pragma once

#include "core/base/result.h"
#include "core/fabric/fabric.h"

#include <cstdint>
#include <string>

namespace farlift::fabric::ofi {

// A sockaddr_in (16 bytes) or sockaddr_in6 (28) of `family`, padding and flow label cleared.
Result<Address> normalise_peer(const Address& address, int family);

// From a numeric IPv4 or IPv6 text; `family` 0 takes either.
Result<Address> socket_address(const std::string& ip, std::uint16_t port, int family);

std::string describe_socket_address(const void* address,
                                    std::size_t length);  // "127.0.0.1", empty when it is none

}  // namespace farlift::fabric::ofi
