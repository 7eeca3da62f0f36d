#include "s3/wire/token.h"

#include "core/codec/text.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstring>
#include <netinet/in.h>

namespace farlift::s3 {
namespace {

constexpr std::size_t kColons[] = {16, 25, 34, 39, 46, 48};
constexpr std::size_t kMarkerAt = 47;
constexpr std::size_t kGidAt = 49;
constexpr std::size_t kHipDigits = 88;

constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

bool all_hex(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(), [](char c) { return hex_value(c) >= 0; });
}

// Of at most 16 digits, all of them checked before.
std::uint64_t hex_number(std::string_view digits) noexcept {
  std::uint64_t value = 0;
  for (const char c : digits) value = (value << 4) | static_cast<std::uint64_t>(hex_value(c));
  return value;
}

constexpr bool wraps(std::uint64_t addr, std::uint64_t size) noexcept {
  return size > 0 && addr > ~std::uint64_t{0} - (size - 1);
}

TokenParse refuse(TokenVerdict verdict, const char* reason) noexcept {
  TokenParse parse;
  parse.verdict = verdict;
  parse.reason = reason;
  return parse;
}

TokenParse malformed(const char* reason) noexcept {
  return refuse(TokenVerdict::malformed, reason);
}

// 88 hex digits, optionally followed by ":addr:size".
bool is_hip_form(std::string_view text) noexcept {
  if (text.size() < kHipDigits || !all_hex(text.substr(0, kHipDigits))) return false;
  text.remove_prefix(kHipDigits);
  if (text.empty()) return true;
  if (text.front() != ':') return false;
  text.remove_prefix(1);
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == text.size()) return false;
  return all_hex(text.substr(0, colon)) && all_hex(text.substr(colon + 1));
}

// V5 and V6, the marker aside.
const char* form_fault(std::string_view text) noexcept {
  for (std::size_t i = 0; i < kTokenLength; ++i) {
    const bool colon = std::find(std::begin(kColons), std::end(kColons), i) != std::end(kColons);
    if (colon != (text[i] == ':')) return "the token's separators are not where they belong";
  }
  for (std::size_t i = 0; i < kTokenLength; ++i) {
    if (text[i] != ':' && i != kMarkerAt && hex_value(text[i]) < 0) {
      return "the token has a character that is no hexadecimal digit";
    }
  }
  return nullptr;
}

// Applies ":addr:size" after the token proper (spec s3 1.3, second form).
const char* narrow(Token& token, std::string_view tail) noexcept {
  if (tail[0] != ':' || tail[17] != ':' || !all_hex(tail.substr(1, 16)) ||
      !all_hex(tail.substr(18, 16))) {
    return "the long token's tail is malformed";
  }
  const std::uint64_t addr = hex_number(tail.substr(1, 16));
  const std::uint64_t size = hex_number(tail.substr(18, 16));
  if (size > 0xffffffffu) return "the long token's window is larger than a token can say";
  const std::uint64_t first = token.addr.raw();
  if (addr < first || addr - first > token.size.raw() || size > token.size.raw() - (addr - first)) {
    return "the long token's window is not inside the registered one";
  }
  token.addr = RemoteAddr(addr);
  token.size = Length(size);
  return nullptr;
}

bool is_zero(const Gid& gid) noexcept {
  return std::all_of(gid.begin(), gid.end(), [](std::byte b) { return b == std::byte{0}; });
}

constexpr std::array<std::byte, 12> kMappedPrefix = {
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0},    std::byte{0},
    std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0}, std::byte{0xff}, std::byte{0xff}};

bool is_mapped(const Gid& gid) noexcept {
  return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin());
}

unsigned octet(const Gid& gid, std::size_t i) noexcept { return std::to_integer<unsigned>(gid[i]); }

}  // namespace

TokenParse parse_token(std::string_view header) noexcept {
  while (!header.empty() && (header.front() == ' ' || header.front() == '\t'))
    header.remove_prefix(1);
  while (!header.empty() && (header.back() == ' ' || header.back() == '\t'))
    header.remove_suffix(1);
  // The order is that of spec s3 1.2.
  if (header.find(',') != std::string_view::npos) return malformed("more than one token");  // V1
  if (header.size() > kTokenHeaderMax) return malformed("the token is too long");           // V2
  for (const char c : header) {
    if (c <= ' ' || c > '~') return malformed("the token has a blank or an unprintable character");
  }
  if (is_hip_form(header)) {  // V3
    return refuse(TokenVerdict::declined_hip, "tokens of this form are not served here");
  }
  if (header.starts_with("rc:") || header.find(":ofi1:") != std::string_view::npos) {
    return refuse(TokenVerdict::declined, "tokens of this form are not served here");
  }
  if (header.size() != kTokenLength && header.size() != kLongTokenLength) {  // V4
    return malformed("the token's length is not 81 bytes");
  }
  if (const char* fault = form_fault(header)) return malformed(fault);  // V5, V6
  if (header[kMarkerAt] == '0') {                                       // V7
    return refuse(TokenVerdict::declined, "routing by LID alone is not served here");
  }
  if (header[kMarkerAt] != '1') return malformed("the token's format marker is not 1");
  TokenParse parse;
  Token& token = parse.token;
  token.addr = RemoteAddr(hex_number(header.substr(0, 16)));
  token.size = Length(hex_number(header.substr(17, 8)));
  token.rkey = static_cast<std::uint32_t>(hex_number(header.substr(26, 8)));
  token.lid = static_cast<std::uint16_t>(hex_number(header.substr(35, 4)));
  token.dctn = static_cast<std::uint32_t>(hex_number(header.substr(40, 6)));
  for (std::size_t i = 0; i < token.gid.size(); ++i) {
    token.gid[i] = static_cast<std::byte>(hex_number(header.substr(kGidAt + 2 * i, 2)));
  }
  if (wraps(token.addr.raw(), token.size.raw())) {  // V8
    return malformed("the token's window passes the end of the address space");
  }
  if (token.dctn == 0) return malformed("the token names no target");  // V9
  if (is_zero(token.gid) || token.gid[0] == std::byte{0xff}) {
    return malformed("the token's gid is zero or multicast");
  }
  if (header.size() == kLongTokenLength) {
    if (const char* fault = narrow(token, header.substr(kTokenLength))) return malformed(fault);
  }
  parse.verdict = TokenVerdict::accepted;
  return parse;
}

std::string Token::encode() const {
  char head[kGidAt + 1];
  std::snprintf(head, sizeof head,
                "%016llx:%08llx:%08x:%04x:%06x:1:", static_cast<unsigned long long>(addr.raw()),
                static_cast<unsigned long long>(size.raw() & 0xffffffffu), rkey, lid,
                dctn & 0xffffffu);
  return std::string(head) + codec::hex_encode(gid);
}

std::string Token::masked() const {
  std::string text = encode();
  text.replace(26, 8, "********");
  return text;
}

Result<std::vector<std::byte>> socket_address_of(const Token& token) {
  if (token.dctn == 0 || token.dctn > 65535) return Error::make(Errc::out_of_range, "token port");
  const auto port = htons(static_cast<std::uint16_t>(token.dctn));
  const auto bytes_of = [](const auto& address) {
    const auto bytes = std::as_bytes(std::span(&address, 1));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  if (is_mapped(token.gid)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = port;
    std::memcpy(&address.sin_addr, token.gid.data() + kMappedPrefix.size(), 4);
    return bytes_of(address);
  }
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = port;
  std::memcpy(&address.sin6_addr, token.gid.data(), token.gid.size());
  return bytes_of(address);
}

Result<GidAndPort> gid_of(std::span<const std::byte> socket_address) {
  GidAndPort out;
  sockaddr_in v4{};
  sockaddr_in6 v6{};
  if (socket_address.size() == sizeof v4) {
    std::memcpy(&v4, socket_address.data(), sizeof v4);
    if (v4.sin_family != AF_INET) return Error::make(Errc::unsupported, "token address");
    std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), out.gid.begin());
    std::memcpy(out.gid.data() + kMappedPrefix.size(), &v4.sin_addr, 4);
    out.port = ntohs(v4.sin_port);
    return out;
  }
  if (socket_address.size() != sizeof v6) return Error::make(Errc::unsupported, "token address");
  std::memcpy(&v6, socket_address.data(), sizeof v6);
  if (v6.sin6_family != AF_INET6) return Error::make(Errc::unsupported, "token address");
  std::memcpy(out.gid.data(), &v6.sin6_addr, out.gid.size());
  out.port = ntohs(v6.sin6_port);
  return out;
}

std::optional<Gid> gid_from_ip(std::string_view numeric_ip) {
  const std::string text(numeric_ip);
  Gid gid{};
  if (inet_pton(AF_INET, text.c_str(), gid.data() + kMappedPrefix.size()) == 1) {
    std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), gid.begin());
    return gid;
  }
  if (inet_pton(AF_INET6, text.c_str(), gid.data()) == 1) return gid;
  return std::nullopt;
}

std::string ip_of(const Gid& gid) {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_mapped(gid)) {
    inet_ntop(AF_INET, gid.data() + kMappedPrefix.size(), text, sizeof text);
  } else {
    inet_ntop(AF_INET6, gid.data(), text, sizeof text);
  }
  return text;
}

bool may_be_target(const Gid& gid) noexcept {
  if (is_mapped(gid)) {
    const unsigned a = octet(gid, 12);
    const unsigned b = octet(gid, 13);
    if (a == 0 || a >= 224) return false;  // wildcard, multicast, reserved, broadcast
    return !(a == 169 && b == 254);        // link-local
  }
  if (is_zero(gid) || octet(gid, 0) == 0xff) return false;
  if (octet(gid, 0) == 0xfe && (octet(gid, 1) & 0xc0) == 0x80) return false;  // link-local
  // IPv4-compatible addresses (::a.b.c.d) but the loopback reach nobody; the kernel may still map
  // them.
  const bool low =
      std::all_of(gid.begin(), gid.begin() + 12, [](std::byte b) { return b == std::byte{0}; });
  return !low ||
         (octet(gid, 12) == 0 && octet(gid, 13) == 0 && octet(gid, 14) == 0 && octet(gid, 15) == 1);
}

Result<AddressRules> AddressRules::parse(std::string_view cidr_list) {
  AddressRules rules;
  while (!cidr_list.empty()) {
    const std::size_t comma = cidr_list.find(',');
    std::string_view one = cidr_list.substr(0, comma);
    cidr_list = comma == std::string_view::npos ? std::string_view() : cidr_list.substr(comma + 1);
    if (comma != std::string_view::npos && cidr_list.empty())
      return Error::make(Errc::invalid_argument, "address range");
    const std::size_t slash = one.find('/');
    const auto base = gid_from_ip(one.substr(0, slash));
    if (!base) return Error::make(Errc::invalid_argument, "address range");
    const unsigned most = is_mapped(*base) && one.find(':') == std::string_view::npos ? 32 : 128;
    unsigned bits = most;
    if (slash != std::string_view::npos) {
      TRY_ASSIGN(bits, codec::parse_u32(one.substr(slash + 1)));
      if (bits > most) return Error::make(Errc::invalid_argument, "address range");
    }
    rules.ranges_.push_back(Range{*base, bits + (128 - most)});
  }
  return rules;
}

bool AddressRules::allow(const Gid& target, const std::optional<Gid>& peer) const noexcept {
  if (!may_be_target(target)) return false;
  if (peer && *peer == target) return true;
  return std::any_of(ranges_.begin(), ranges_.end(), [&](const Range& range) {
    for (unsigned bit = 0; bit < range.bits; ++bit) {
      const unsigned mask = 0x80u >> (bit % 8);
      if ((octet(range.base, bit / 8) & mask) != (octet(target, bit / 8) & mask)) return false;
    }
    return true;
  });
}

}  // namespace farlift::s3
