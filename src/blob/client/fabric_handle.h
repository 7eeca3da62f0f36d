// FabricHandle: the fabric domain of one client, and how a provider is opened on this machine.
//
// Invariants: the domain outlives every registration made from it, since each holds the handle.
// Threads:    any.
// Errors:     in words for the user: why a provider cannot serve here (spec blob 10.1).
#pragma once

#include "core/fabric/fabric.h"
#include <farlift/expected.h>
#include <farlift/options.h>
#include <farlift/rdma.h>

#include <memory>
#include <string>

namespace farlift::client {

struct FabricHandle {
  SystemClock clock;  // the domain refers to it
  std::unique_ptr<fabric::Domain> domain;
};

// What this machine offers for `provider`; soft is always usable and loads nothing, the others load
// libfabric.
RdmaUsability provider_usability(RdmaProvider provider);
const char* provider_name(RdmaProvider provider) noexcept;

// `local_ip`: the local address of a connection to the server, where the server can reach us unless
// an interface is named.
Expected<std::shared_ptr<FabricHandle>> open_fabric(const RdmaConfiguration& configuration,
                                                    const std::string& local_ip);

// The address that endpoints of a connection listen on: numeric, empty where the provider decides.
Expected<std::string> listen_ip(const RdmaConfiguration& configuration,
                                const std::string& local_ip);

// The local address of a connected socket, numeric; a Unix socket or a failure gives the loopback
// address.
std::string local_ip_of(int fd);

}  // namespace farlift::client
