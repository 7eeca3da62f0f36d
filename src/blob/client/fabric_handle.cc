#include "blob/client/fabric_handle.h"

#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"

#include <arpa/inet.h>
#include <cstring>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <optional>
#include <sys/socket.h>
#include <utility>

namespace farlift::client {
namespace {

constexpr const char kLoopback[] = "127.0.0.1";

// Numeric form; an IPv4 address inside IPv6 is written as IPv4, since that is what the server can
// connect to.
std::optional<std::string> numeric(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, address, sizeof v4);
    if (::inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text) != nullptr) return std::string(text);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 v6{};
    std::memcpy(&v6, address, sizeof v6);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      if (::inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof text) != nullptr)
        return std::string(text);
    } else if (!IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) &&
               ::inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text) != nullptr) {
      return std::string(text);
    }
  }
  return std::nullopt;
}

bool is_numeric(const std::string& text) {
  in6_addr scratch{};
  return ::inet_pton(AF_INET, text.c_str(), &scratch) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), &scratch) == 1;
}

bool is_v6(const std::string& ip) { return ip.find(':') != std::string::npos; }

// An address of the interface, of the family of `like` if it has one.
std::optional<std::string> address_of_interface(const std::string& name, const std::string& like) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return std::nullopt;
  std::optional<std::string> found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || name != one->ifa_name) continue;
    std::optional<std::string> ip = numeric(one->ifa_addr);
    if (!ip) continue;
    const bool same_family = is_v6(*ip) == is_v6(like);
    if (!found || same_family) found = std::move(ip);
    if (same_family) break;
  }
  ::freeifaddrs(all);
  return found;
}

// The interface that owns an address, for providers that are asked for by interface.
std::string interface_of_address(const std::string& ip) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return {};
  std::string name;
  for (const ifaddrs* one = all; one != nullptr && name.empty(); one = one->ifa_next) {
    if (one->ifa_addr != nullptr && numeric(one->ifa_addr) == ip) name = one->ifa_name;
  }
  ::freeifaddrs(all);
  return name;
}

fabric::ofi::VersionRule version_rule(RdmaProvider provider) {
  return provider == RdmaProvider::efa_direct ? fabric::ofi::kVersionClient
                                              : fabric::ofi::kVersionAny;
}

Result<std::unique_ptr<fabric::Domain>> open_ofi(const RdmaConfiguration& configuration,
                                                 const std::string& local_ip, const Clock& clock,
                                                 std::string* why) {
  fabric::ofi::OfiOptions options;
  options.version = version_rule(configuration.provider);
  switch (configuration.provider) {
    case RdmaProvider::verbs:
      options.provider = fabric::ofi::Provider::verbs;
      break;
    case RdmaProvider::efa_direct:
      options.provider = fabric::ofi::Provider::efa;
      break;
    default:
      options.provider = fabric::ofi::Provider::tcp;
      break;
  }
  if (configuration.interface_name.empty()) {
    if (configuration.provider == RdmaProvider::tcp)
      options.interface_name = interface_of_address(local_ip);
  } else if (is_numeric(configuration.interface_name)) {
    options.listen_ip = configuration.interface_name;
  } else {
    options.interface_name = configuration.interface_name;
  }
  if (configuration.provider == RdmaProvider::tcp && options.listen_ip.empty() &&
      configuration.interface_name.empty()) {
    options.listen_ip = local_ip;
  }
  return fabric::ofi::open_domain(options, clock, why);
}

}  // namespace

const char* provider_name(RdmaProvider provider) noexcept {
  switch (provider) {
    case RdmaProvider::soft:
      return "Soft";
    case RdmaProvider::tcp:
      return "Tcp";
    case RdmaProvider::efa_direct:
      return "EfaDirect";
    case RdmaProvider::verbs:
      return "Verbs";
  }
  return "unknown";
}

RdmaUsability provider_usability(RdmaProvider provider) {
  if (provider == RdmaProvider::soft) return {true, "", ""};
  fabric::ofi::LibraryStatus status = fabric::ofi::library_status(version_rule(provider));
  return {status.usable, std::move(status.version), std::move(status.reason)};
}

Expected<std::string> listen_ip(const RdmaConfiguration& configuration,
                                const std::string& local_ip) {
  if (configuration.provider != RdmaProvider::soft) return std::string();
  if (configuration.interface_name.empty()) return local_ip;
  if (is_numeric(configuration.interface_name)) return configuration.interface_name;
  std::optional<std::string> ip = address_of_interface(configuration.interface_name, local_ip);
  if (!ip) {
    return ClientError{ErrorKind::configuration, "rdma: there is no network interface named '" +
                                                     configuration.interface_name +
                                                     "' with a usable address"};
  }
  return *std::move(ip);
}

Expected<std::shared_ptr<FabricHandle>> open_fabric(const RdmaConfiguration& configuration,
                                                    const std::string& local_ip) {
  auto handle = std::make_shared<FabricHandle>();
  std::string why;
  auto domain = [&]() -> Result<std::unique_ptr<fabric::Domain>> {
    if (configuration.provider != RdmaProvider::soft)
      return open_ofi(configuration, local_ip, handle->clock, &why);
    Expected<std::string> ip = listen_ip(configuration, local_ip);
    if (!ip) {
      why = ip.error().text;
      return Error::make(Errc::not_found, "rdma interface");
    }
    fabric::soft::SoftOptions options;
    options.listen_ip = *ip;
    options.spin_us = configuration.spin_us;
    options.host_lane = configuration.host_lane;
    options.host_lane = configuration.host_lane;
    return fabric::soft::open_domain(options, handle->clock);
  }();
  if (!domain.ok()) {
    return ClientError{
        ErrorKind::configuration,
        std::string("rdma: the ") + provider_name(configuration.provider) +
            " provider cannot be opened here: " + (why.empty() ? domain.error().describe() : why)};
  }
  handle->domain = std::move(domain).value();
  return handle;
}

std::string local_ip_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return kLoopback;
  std::optional<std::string> ip = numeric(reinterpret_cast<const sockaddr*>(&address));
  return ip ? *std::move(ip) : std::string(kLoopback);
}

}  // namespace farlift::client
