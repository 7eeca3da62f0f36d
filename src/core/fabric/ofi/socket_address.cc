#include "core/fabric/ofi/socket_address.h"

#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <sys/socket.h>

namespace farlift::fabric::ofi {
namespace {

template <class T>
Result<Address> to_address(const T& value) {
  return Address::from_bytes(std::as_bytes(std::span(&value, 1)));
}

bool forbidden_v4(std::uint32_t ip) noexcept {  // host order
  return ip == 0 || ip == 0xffffffffu || (ip >> 28) == 0xe || (ip >> 16) == 0xa9fe;
}

Result<Address> normalise_v4(const Address& address) {
  sockaddr_in in{};
  std::memcpy(&in, address.bytes().data(), sizeof in);
  if (forbidden_v4(ntohl(in.sin_addr.s_addr))) return Error::make(Errc::permission, "peer address");
  if (in.sin_port == 0) return Error::make(Errc::permission, "peer port");
  std::memset(in.sin_zero, 0, sizeof in.sin_zero);
  return to_address(in);
}

Result<Address> normalise_v6(const Address& address) {
  sockaddr_in6 in{};
  std::memcpy(&in, address.bytes().data(), sizeof in);
  const in6_addr& ip = in.sin6_addr;
  if (IN6_IS_ADDR_UNSPECIFIED(&ip) || IN6_IS_ADDR_MULTICAST(&ip) || IN6_IS_ADDR_LINKLOCAL(&ip)) {
    return Error::make(Errc::permission, "peer address");
  }
  if (IN6_IS_ADDR_V4MAPPED(&ip)) {
    std::uint32_t v4 = 0;
    std::memcpy(&v4, ip.s6_addr + 12, sizeof v4);
    if (forbidden_v4(ntohl(v4))) return Error::make(Errc::permission, "peer address");
  }
  if (in.sin6_port == 0) return Error::make(Errc::permission, "peer port");
  in.sin6_flowinfo = 0;
  in.sin6_scope_id = 0;
  return to_address(in);
}

}  // namespace

Result<Address> normalise_peer(const Address& address, int family) {
  sa_family_t given = AF_UNSPEC;
  if (address.size() >= sizeof given) std::memcpy(&given, address.bytes().data(), sizeof given);
  if (given != family) return Error::make(Errc::unsupported, "peer address family");
  if (family == AF_INET && address.size() == sizeof(sockaddr_in)) return normalise_v4(address);
  if (family == AF_INET6 && address.size() == sizeof(sockaddr_in6)) return normalise_v6(address);
  return Error::make(Errc::unsupported, "peer address length");
}

Result<Address> socket_address(const std::string& ip, std::uint16_t port, int family) {
  sockaddr_in v4{};
  if (family != AF_INET6 && ::inet_pton(AF_INET, ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    return to_address(v4);
  }
  sockaddr_in6 v6{};
  if (family != AF_INET && ::inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    return to_address(v6);
  }
  return Error::make(Errc::invalid_argument, "listen address");
}

std::string describe_socket_address(const void* address, std::size_t length) {
  char text[INET6_ADDRSTRLEN] = "";
  sa_family_t family = AF_UNSPEC;
  if (address == nullptr || length < sizeof family) return text;
  std::memcpy(&family, address, sizeof family);
  if (family == AF_INET && length >= sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
  } else if (family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
  }
  return text;
}

}  // namespace farlift::fabric::ofi
