// Interfaces: from what an operator writes in fabric-interfaces to numeric addresses of this
// machine.
//
// Threads: any; reads the system's interface list. Errors: nullopt when there is no such interface
//          or address.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::blob {

// Entries of a comma list, trimmed, empty ones dropped.
std::vector<std::string> split_list(std::string_view list);

// A numeric address as it is; an interface name as its first IPv4 address, or its first IPv6
// address if it has no IPv4.
std::optional<std::string> resolve_interface(const std::string& entry);

// The address a lone service listens by when nothing was asked for: the first IPv4 address that is
// up and not loopback, else 127.0.0.1.
std::string default_interface_address();

}  // namespace farlift::blob
