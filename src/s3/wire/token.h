// Token: the 81 bytes by which a client lends a window of its memory (spec s3 1).
//
//   const TokenParse parse = parse_token(header_value);
//   switch (parse.verdict) { case TokenVerdict::accepted: use(parse.token); ... }
//
//   addr(16) ":" size(8) ":" rkey(8) ":" lid(4) ":" dctn(6) ":" "1" ":" gid(32)     hex, big endian
//
// Invariants: an accepted token passes V2 to V9: addr + size does not pass 2^64, dctn is not 0, the
//             gid is neither zero nor multicast. The long form is applied: addr and size are the
//             effective window. encode() gives 81 lower-case bytes that parse to the same token.
// Threads:    plain values. Errors: a verdict and a reason in words, never a guess.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::s3 {

using Gid = std::array<std::byte, 16>;  // network byte order

inline constexpr std::size_t kTokenLength = 81;
inline constexpr std::size_t kLongTokenLength = 115;
inline constexpr std::size_t kTokenHeaderMax = 512;
inline constexpr std::uint32_t kDefaultDcKey = 0xffeeddcc;

struct Token {
  RemoteAddr addr;
  Length size;  // fits 32 bits on the wire
  std::uint32_t rkey = 0;
  std::uint16_t lid = 0;
  std::uint32_t dctn = 0;  // 24 bits
  Gid gid{};

  std::string encode() const;
  // For logs: address, size and gid; the key is masked (spec s3 8.1).
  std::string masked() const;
  friend bool operator==(const Token&, const Token&) noexcept = default;
};

enum class TokenVerdict : std::uint8_t {
  accepted,
  malformed,     // 400 InvalidRDMAToken
  declined,      // 501: a form or routing that is legal for others and not served here
  declined_hip,  // 501, and x-amz-rdma-protocol-status: unsupported
};

struct TokenParse {
  TokenVerdict verdict = TokenVerdict::malformed;
  Token token;              // when accepted
  const char* reason = "";  // when not; a literal
};

// One header value, as received. A header that came twice is the caller's to refuse (V1); a
// comma-joined list is refused here.
TokenParse parse_token(std::string_view header) noexcept;

// The software fabric's reading of a token (spec s3 11.1): gid and dctn are the address and port of
// the client's endpoint, as the bytes of a sockaddr_in (16) or sockaddr_in6 (28).
// out_of_range: dctn is no port.
Result<std::vector<std::byte>> socket_address_of(const Token& token);
// The other way round, for who makes tokens; unsupported: another length or family.
struct GidAndPort {
  Gid gid{};
  std::uint16_t port = 0;
};
Result<GidAndPort> gid_of(std::span<const std::byte> socket_address);
// The 64-bit key of the software fabric.
constexpr RKey provider_key(std::uint32_t dc_key, std::uint32_t rkey) noexcept {
  return RKey((std::uint64_t{dc_key} << 32) | rkey);
}

// IPv4 as ::ffff:a.b.c.d; nullopt when the text is no numeric address.
std::optional<Gid> gid_from_ip(std::string_view numeric_ip);
std::string ip_of(const Gid& gid);  // numeric, IPv4 where it is one

// Where a token may make us connect to (spec s3 11.3, V12).
class AddressRules {
 public:
  // "10.0.0.0/8,::1,192.168.1.7/32"; invalid_argument for anything else. Empty text allows nothing.
  static Result<AddressRules> parse(std::string_view cidr_list);
  // `peer`: who sent the request, when that is known. Wildcard, multicast, broadcast and link-local
  // are refused whatever the rules say.
  bool allow(const Gid& target, const std::optional<Gid>& peer) const noexcept;

 private:
  struct Range {
    Gid base{};
    unsigned bits = 0;
  };
  std::vector<Range> ranges_;
};

// False for wildcard, multicast, broadcast and link-local.
bool may_be_target(const Gid& gid) noexcept;

}  // namespace farlift::s3
