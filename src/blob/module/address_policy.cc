#include "blob/module/address_policy.h"

#include "core/codec/text.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstring>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>

namespace farlift::blob {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::size_t kEntriesMax = 1024;

IpAddress mapped(const in_addr& v4) {
  IpAddress out;
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), out.bytes.begin());
  std::memcpy(out.bytes.data() + 12, &v4, 4);
  return out;
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

bool same_prefix(const IpAddress& a, const IpAddress& b, unsigned bits) {
  const std::size_t whole = bits / 8;
  if (std::memcmp(a.bytes.data(), b.bytes.data(), whole) != 0) return false;
  const unsigned rest = bits % 8;
  if (rest == 0) return true;
  const auto mask = static_cast<std::uint8_t>(0xff00u >> rest);
  return (a.bytes[whole] & mask) == (b.bytes[whole] & mask);
}

}  // namespace

bool IpAddress::v4() const noexcept {
  return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes.begin());
}

bool IpAddress::loopback() const noexcept {
  if (v4()) return bytes[12] == 127;
  return std::all_of(bytes.begin(), bytes.end() - 1, [](std::uint8_t b) { return b == 0; }) &&
         bytes[15] == 1;
}

std::optional<IpAddress> IpAddress::parse(std::string_view text) {
  const std::string copy(text);
  in_addr v4{};
  if (inet_pton(AF_INET, copy.c_str(), &v4) == 1) return mapped(v4);
  IpAddress out;
  if (inet_pton(AF_INET6, copy.c_str(), out.bytes.data()) == 1) return out;
  return std::nullopt;
}

std::optional<IpAddress> IpAddress::from_sockaddr(std::span<const std::byte> bytes) {
  if (bytes.size() == sizeof(sockaddr_in)) {
    sockaddr_in in{};
    std::memcpy(&in, bytes.data(), sizeof in);
    if (in.sin_family != AF_INET) return std::nullopt;
    return mapped(in.sin_addr);
  }
  if (bytes.size() == sizeof(sockaddr_in6)) {
    sockaddr_in6 in{};
    std::memcpy(&in, bytes.data(), sizeof in);
    if (in.sin6_family != AF_INET6) return std::nullopt;
    IpAddress out;
    std::memcpy(out.bytes.data(), &in.sin6_addr, 16);
    return out;
  }
  return std::nullopt;
}

std::optional<AddressPolicy> AddressPolicy::parse(std::string_view list) {
  AddressPolicy out;
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    const std::string_view entry = trim(list.substr(0, comma));
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    if (entry.empty()) continue;
    const std::size_t slash = entry.find('/');
    const auto base = IpAddress::parse(entry.substr(0, slash));
    if (!base || out.allowed_.size() >= kEntriesMax) return std::nullopt;
    unsigned bits = 128;
    if (slash != std::string_view::npos) {
      const auto given = codec::parse_u32(entry.substr(slash + 1));
      if (!given.ok() || *given > (base->v4() ? 32u : 128u)) return std::nullopt;
      bits = *given + (base->v4() ? 96u : 0u);
    }
    out.allowed_.push_back({*base, bits});
  }
  return out;
}

bool AddressPolicy::admits(const IpAddress& target,
                           const std::optional<IpAddress>& peer) const noexcept {
  if (peer && target == *peer) return true;
  if (target.loopback() && (!peer || peer->loopback())) return true;
  return std::any_of(allowed_.begin(), allowed_.end(),
                     [&](const Network& n) { return same_prefix(n.base, target, n.prefix_bits); });
}

}  // namespace farlift::blob
