#include "blob/client/configuration.h"

#include "blob/client/fabric_handle.h"

#include <string>

namespace farlift::client {
namespace {

ClientError refusal(std::string text) { return {ErrorKind::configuration, std::move(text)}; }

struct Unoffered {
  bool wanted;
  const char* name;
};

// Not offered with RDMA by anyone, and by this client not without it either: refused by name rather
// than ignored, since each changes what a caller relies on.
Expected<void> check_unoffered(const ClientOptions& options) {
  const Unoffered all[] = {
      {options.compression, "compression"},   {options.lazy_connect, "lazy_connect"},
      {options.read_only, "read_only"},       {options.static_discovery, "static_discovery"},
      {options.asynchronous, "asynchronous"}, {options.client_pool, "client_pool"},
  };
  for (const Unoffered& one : all) {
    if (!one.wanted) continue;
    if (options.rdma) {
      return refusal(std::string("the options 'rdma' and '") + one.name + "' exclude each other");
    }
    return refusal(std::string("the option '") + one.name + "' is not offered by this client");
  }
  return {};
}

Expected<void> check_place(const ClientOptions& options) {
  if (!options.unix_path.empty()) {
    if (options.cluster) return refusal("the options 'unix_path' and 'cluster' exclude each other");
    return {};
  }
  if (options.addresses.empty()) return refusal("'addresses' must name at least one server");
  for (const NodeAddress& address : options.addresses) {
    if (address.host.empty()) return refusal("a host in 'addresses' is empty");
    if (address.port == 0) return refusal("a port in 'addresses' is 0");
  }
  return {};
}

}  // namespace

Expected<void> check_options(const ClientOptions& options) {
  if (Expected<void> ok = check_unoffered(options); !ok) return ok;
  if (Expected<void> ok = check_place(options); !ok) return ok;
  if (options.resp_version != 2 && options.resp_version != 3) {
    return refusal("'resp_version' must be 2 or 3");
  }
  if (options.request_timeout.count() < 0) return refusal("'request_timeout' must not be negative");
  if (options.connect_timeout.count() <= 0) return refusal("'connect_timeout' must be positive");
  if (!options.tls.enabled &&
      (!options.tls.ca_file.empty() || !options.tls.certificate_file.empty())) {
    return refusal("'tls' names files but is not enabled");
  }
  if (options.tls.certificate_file.empty() != options.tls.key_file.empty()) {
    return refusal("'tls.certificate_file' and 'tls.key_file' go together");
  }
  if (!options.username.empty() && options.password.empty()) {
    return refusal("'username' without 'password'");
  }
  if (!options.rdma) return {};
  if (options.rdma->connections == 0 || options.rdma->connections > kTransferConnectionsMax) {
    return refusal("'rdma.connections' must be 1 to " + std::to_string(kTransferConnectionsMax));
  }
  const RdmaUsability usable = provider_usability(options.rdma->provider);
  if (!usable.usable) {
    return refusal(std::string("rdma: the ") + provider_name(options.rdma->provider) +
                   " provider is not usable here: " + usable.reason);
  }
  return {};
}

}  // namespace farlift::client
