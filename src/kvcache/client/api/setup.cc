#include "kvcache/client/api/setup.h"

#include "core/base/prng.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"
#include "core/net/tls.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <utility>

namespace farlift::kv::client {
namespace {

ClientError refuse(std::string text) { return {ErrorKind::configuration, std::move(text)}; }

std::string numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    if (::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text) != nullptr) return text;
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    if (!IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) &&
        ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text) != nullptr) {
      return text;
    }
  }
  return {};
}

bool is_numeric(const std::string& text) {
  in6_addr scratch{};
  return ::inet_pton(AF_INET, text.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &scratch) == 1;
}

// The address by which this host would reach that one; nothing is sent. Loopback when it cannot be
// told.
std::string local_ip_towards(const NodeAddress& there) {
  std::string ip = "127.0.0.1";
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(there.host.c_str(), std::to_string(there.port).c_str(), &hints, &found) != 0) {
    return ip;
  }
  const UniqueFd fd(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  if (fd && ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    const std::string text = numeric(reinterpret_cast<const sockaddr*>(&own));
    if (!text.empty()) ip = text;
  }
  ::freeaddrinfo(found);
  return ip;
}

std::string ip_of_interface(const std::string& name) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  std::string ip;
  for (const ifaddrs* one = all; one != nullptr && ip.empty(); one = one->ifa_next) {
    if (one->ifa_addr != nullptr && name == one->ifa_name) ip = numeric(one->ifa_addr);
  }
  ::freeifaddrs(all);
  return ip;
}

Expected<std::unique_ptr<fabric::Domain>> open_soft(const KvOptions& options,
                                                    const std::string& interface,
                                                    const Clock& clock) {
  fabric::soft::SoftOptions soft;
  soft.host_lane = options.host_lane;
  soft.listen_ip = interface.empty()        ? local_ip_towards(options.valkey.front())
                   : is_numeric(interface) ? interface
                                           : ip_of_interface(interface);
  if (soft.listen_ip.empty()) {
    return refuse("there is no network interface named '" + interface + "' with a usable address");
  }
  auto domain = fabric::soft::open_domain(soft, clock);
  if (!domain.ok()) return refuse("the soft provider cannot listen on " + soft.listen_ip);
  return std::move(domain).value();
}

Expected<std::unique_ptr<fabric::Domain>> open_ofi(const KvOptions& options,
                                                   const std::string& interface,
                                                   const Clock& clock) {
  fabric::ofi::OfiOptions ofi;
  ofi.provider = options.provider == RdmaProvider::verbs        ? fabric::ofi::Provider::verbs
                 : options.provider == RdmaProvider::efa_direct ? fabric::ofi::Provider::efa
                                                                : fabric::ofi::Provider::tcp;
  ofi.version = options.provider == RdmaProvider::efa_direct ? fabric::ofi::kVersionClient
                                                             : fabric::ofi::kVersionAny;
  if (is_numeric(interface)) {
    ofi.listen_ip = interface;
  } else {
    ofi.interface_name = interface;
  }
  if (interface.empty() && options.provider == RdmaProvider::tcp) {
    ofi.listen_ip = local_ip_towards(options.valkey.front());
  }
  std::string why;
  auto domain = fabric::ofi::open_domain(ofi, clock, &why);
  if (!domain.ok()) {
    return refuse("the provider cannot be opened here: " +
                  (why.empty() ? domain.error().describe() : why));
  }
  return std::move(domain).value();
}

// A rail hands its domain, opened here so that its provider's name is known, to its one client.
Expected<Rail> open_rail(const KvOptions& options, const std::string& interface,
                         const Clock& clock) {
  auto domain = options.provider == RdmaProvider::soft ? open_soft(options, interface, clock)
                                                       : open_ofi(options, interface, clock);
  if (!domain) return domain.error();
  Rail rail;
  rail.provider = rail_name((*domain)->info().provider);
  auto kept = std::make_shared<std::unique_ptr<fabric::Domain>>(std::move(*domain));
  rail.open_domain = [kept]() -> Result<std::unique_ptr<fabric::Domain>> {
    if (*kept == nullptr) return Error::make(Errc::busy, "kv rail");
    return std::move(*kept);
  };
  return rail;
}

net::TlsOptions tls_options(const TlsOptions& options) {
  net::TlsOptions tls;
  tls.ca_file = options.ca_file;
  tls.certificate_file = options.certificate_file;
  tls.key_file = options.key_file;
  tls.server_name = options.server_name;
  tls.insecure = !options.verify_peer;
  return tls;
}

ValkeyOptions valkey_options(const KvOptions& options) {
  ValkeyOptions valkey;
  valkey.connection.username = options.username;
  valkey.connection.password = options.password;
  valkey.connection.database = options.database;
  valkey.connection.client_name = "farlift-kv";
  if (options.tls.enabled) valkey.connection.tls = tls_options(options.tls);
  valkey.sentinel_tls = options.tls.enabled;
  valkey.timeout = options.control_timeout;
  if (options.control == KvOptions::Control::sentinel) {
    valkey.mode = ValkeyOptions::Mode::sentinel;
    valkey.primary_name = options.sentinel_primary;
    for (const NodeAddress& one : options.valkey) valkey.sentinels.push_back({one.host, one.port});
    return valkey;
  }
  valkey.connection.host = options.valkey.front().host;
  valkey.connection.port = options.valkey.front().port;
  if (options.control == KvOptions::Control::cluster) {
    valkey.mode = ValkeyOptions::Mode::cluster;
    for (std::size_t i = 1; i < options.valkey.size(); ++i) {
      valkey.more_seeds.push_back({options.valkey[i].host, options.valkey[i].port});
    }
  }
  return valkey;
}

}  // namespace

Expected<Keyring> read_keys(const KvOptions& options) {
  if (options.development != options.key_file.empty()) {
    return refuse("choose one: a key file, or development mode");
  }
  if (options.development) return Keyring::development();
  std::string why;
  auto keys = Keyring::load(options.key_file, &why);
  if (!keys.ok()) return refuse(why.empty() ? keys.error().describe() : why);
  return std::move(keys).value();
}

ClientOptions client_options(const KvOptions& options, Keyring keys) {
  ClientOptions out;
  out.tenant = options.tenant;
  out.keys = std::move(keys);
  out.lease = options.lease;
  out.operation_limit = options.operation_limit;
  out.control_timeout = options.control_timeout;
  out.reader_lease = options.reader_lease;
  out.cache_entries_max = options.cache_entries_max;
  out.in_flight_max = options.in_flight_max;
  out.hash_threads = options.hash_threads;
  return out;
}

Expected<std::unique_ptr<Setup>> make_setup(const KvOptions& options) {
  if (options.valkey.empty()) return refuse("no address of Valkey is given");
  auto setup = std::make_unique<Setup>();
  SocketTransportOptions links;
  std::string why;
  if (options.node_tls.enabled) {
    auto tls = tls_options(options.node_tls);
    tls.only_tls13 = true;
    auto context = net::TlsContext::make(tls, &why);
    if (!context.ok()) return refuse("node_tls: " + why);
    links.client_tls = std::move(context).value();
  }
  auto transport = SocketTransport::open(setup->clock, links);
  if (!transport.ok()) return refuse("links: " + transport.error().describe());
  setup->transport = std::move(transport).value();
  auto directory = ValkeyDirectory::open(setup->clock, valkey_options(options), &why);
  if (!directory.ok()) {
    return refuse("valkey: " + (why.empty() ? directory.error().describe() : why));
  }
  setup->directory = std::move(directory).value();
  setup->environment = std::make_unique<Environment>(
      Environment{setup->clock,
                  [](std::span<std::byte> out) { secure_random(out); },
                  *setup->directory,
                  *setup->transport,
                  {}});
  const std::vector<std::string> one_rail = {""};
  for (const std::string& name : options.interfaces.empty() ? one_rail : options.interfaces) {
    auto rail = open_rail(options, name, setup->clock);
    if (!rail) return rail.error();
    setup->environment->rails.push_back(std::move(*rail));
  }
  return setup;
}

}  // namespace farlift::kv::client
