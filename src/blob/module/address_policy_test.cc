#include "blob/module/address_policy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <netinet/in.h>

namespace farlift::blob {
namespace {

IpAddress ip(std::string_view text) {
  const auto parsed = IpAddress::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(IpAddress());
}

TEST(AddressPolicy, own_address_and_loopback) {
  const AddressPolicy policy;
  EXPECT_TRUE(policy.admits(ip("10.1.2.3"), ip("10.1.2.3")));
  EXPECT_FALSE(policy.admits(ip("10.1.2.4"), ip("10.1.2.3")));
  EXPECT_FALSE(policy.admits(ip("127.0.0.1"), ip("10.1.2.3")));
  EXPECT_TRUE(policy.admits(ip("127.0.0.9"), ip("127.0.0.1")));
  EXPECT_TRUE(policy.admits(ip("::1"), ip("127.0.0.1")));
  EXPECT_TRUE(policy.admits(ip("::ffff:10.1.2.3"), ip("10.1.2.3")));
  EXPECT_FALSE(policy.admits(ip("fe80::1"), ip("fe80::2")));
}

TEST(AddressPolicy, unix_socket_peers_count_as_loopback) {
  const AddressPolicy policy;
  EXPECT_TRUE(policy.admits(ip("127.0.0.1"), std::nullopt));
  EXPECT_TRUE(policy.admits(ip("::1"), std::nullopt));
  EXPECT_FALSE(policy.admits(ip("10.0.0.1"), std::nullopt));
}

TEST(AddressPolicy, allowed_networks) {
  const auto policy = AddressPolicy::parse(" 10.0.0.0/8, 192.168.7.9 ,fd00::/7,, 172.16.0.0/12");
  ASSERT_TRUE(policy);
  const IpAddress peer = ip("203.0.113.1");
  EXPECT_TRUE(policy->admits(ip("10.255.1.2"), peer));
  EXPECT_TRUE(policy->admits(ip("192.168.7.9"), peer));
  EXPECT_TRUE(policy->admits(ip("fc00::5"), peer));
  EXPECT_TRUE(policy->admits(ip("172.31.255.255"), peer));
  EXPECT_FALSE(policy->admits(ip("11.0.0.1"), peer));
  EXPECT_FALSE(policy->admits(ip("192.168.7.8"), peer));
  EXPECT_FALSE(policy->admits(ip("172.32.0.0"), peer));
  EXPECT_FALSE(policy->admits(ip("127.0.0.1"), peer));
  EXPECT_TRUE(AddressPolicy::parse("0.0.0.0/0")->admits(ip("8.8.8.8"), peer));
  EXPECT_FALSE(AddressPolicy::parse("0.0.0.0/0")->admits(ip("2001:db8::1"), peer));
}

TEST(AddressPolicy, malformed_lists) {
  for (const char* bad :
       {"10.0.0.0/33", "::/129", "10.0.0/8", "host", "10.0.0.1/", "10.0.0.1/-1", "1.2.3.4/8/8"}) {
    EXPECT_FALSE(AddressPolicy::parse(bad)) << bad;
  }
  EXPECT_TRUE(AddressPolicy::parse(""));
}

TEST(IpAddress, from_sockaddr) {
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(0x7f000001);
  const auto bytes = std::as_bytes(std::span(&in, 1));
  EXPECT_EQ(IpAddress::from_sockaddr(bytes), ip("127.0.0.1"));
  in.sin_family = AF_INET6;
  EXPECT_FALSE(IpAddress::from_sockaddr(bytes));
  for (std::size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(IpAddress::from_sockaddr(bytes.first(n)));
}

}  // namespace
}  // namespace farlift::blob
