#include "core/fabric/soft/address.h"

#include <arpa/inet.h>
#include <cstring>

namespace farlift::fabric::soft {
namespace {

static_assert(sizeof(sockaddr_in) == 16 && sizeof(sockaddr_in6) == 28);

const char* refused_ipv4(std::uint32_t ip) noexcept {
  if ((ip >> 24) == 0) return "wildcard address";
  if ((ip >> 28) == 0xe) return "multicast address";
  if ((ip >> 28) == 0xf) return "broadcast or reserved address";
  if ((ip >> 16) == 0xa9fe) return "link-local address";
  return nullptr;
}

const char* refused_ipv6(const in6_addr& ip) noexcept {
  if (IN6_IS_ADDR_UNSPECIFIED(&ip)) return "wildcard address";
  if (IN6_IS_ADDR_MULTICAST(&ip)) return "multicast address";
  if (IN6_IS_ADDR_LINKLOCAL(&ip)) return "link-local address";
  if (IN6_IS_ADDR_V4MAPPED(&ip) || IN6_IS_ADDR_V4COMPAT(&ip)) {
    if (!IN6_IS_ADDR_LOOPBACK(&ip)) return "IPv4 address inside an IPv6 one";
  }
  return nullptr;
}

}  // namespace

Result<SocketAddress> SocketAddress::parse(const std::string& numeric_ip, std::uint16_t port) {
  SocketAddress out;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (::inet_pton(AF_INET, numeric_ip.c_str(), &v4.sin_addr) == 1) {
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&out.storage_, &v4, sizeof v4);
    return out;
  }
  if (::inet_pton(AF_INET6, numeric_ip.c_str(), &v6.sin6_addr) == 1) {
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&out.storage_, &v6, sizeof v6);
    return out;
  }
  return Error::make(Errc::invalid_argument, "not a numeric IP address");
}

Result<SocketAddress> SocketAddress::decode(const Address& address) {
  SocketAddress out;
  if (address.size() != sizeof(sockaddr_in) && address.size() != sizeof(sockaddr_in6)) {
    return Error::make(Errc::unsupported, "soft addresses have 16 or 28 bytes");
  }
  std::memcpy(&out.storage_, address.bytes().data(), address.size());
  const int family = address.size() == sizeof(sockaddr_in) ? AF_INET : AF_INET6;
  if (out.family() != family)
    return Error::make(Errc::unsupported, "address family does not match its length");
  return out;
}

Result<SocketAddress> SocketAddress::of_socket(int fd) {
  SocketAddress out;
  socklen_t size = sizeof out.storage_;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&out.storage_), &size) != 0)
    return Error::from_errno("getsockname");
  return out;
}

Address SocketAddress::encode() const {
  auto out = Address::from_bytes({reinterpret_cast<const std::byte*>(&storage_), size()});
  ASSERT(out.ok());
  return *out;
}

std::uint16_t SocketAddress::port() const noexcept {
  if (family() == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port);
  return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

Status SocketAddress::check_target(bool with_port) const {
  const char* refusal = nullptr;
  if (family() == AF_INET) {
    refusal = refused_ipv4(ntohl(reinterpret_cast<const sockaddr_in*>(&storage_)->sin_addr.s_addr));
  } else {
    refusal = refused_ipv6(reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_addr);
  }
  if (refusal == nullptr && with_port && port() == 0) refusal = "port 0";
  if (refusal != nullptr) return Error::make(Errc::permission, refusal);
  return {};
}

}  // namespace farlift::fabric::soft
