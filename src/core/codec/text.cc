#include "core/codec/text.h"

#include <array>
#include <limits>

namespace farlift::codec {
namespace {

constexpr std::string_view kHexLower = "0123456789abcdef";
constexpr std::string_view kHexUpper = "0123456789ABCDEF";

constexpr int hex_value(char c) noexcept {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

struct Alphabet {
  std::string_view letters;
  std::array<std::int16_t, 256> values;
  bool padded;
};

constexpr Alphabet make_alphabet(std::string_view letters, bool padded) noexcept {
  Alphabet a{letters, {}, padded};
  a.values.fill(-1);
  for (std::size_t i = 0; i < letters.size(); ++i) {
    a.values[static_cast<unsigned char>(letters[i])] = static_cast<std::int16_t>(i);
  }
  return a;
}

constexpr Alphabet kStandard =
    make_alphabet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", true);
constexpr Alphabet kUrl =
    make_alphabet("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", false);
static_assert(kStandard.letters.size() == 64 && kUrl.letters.size() == 64);

std::string encode64(std::span<const std::byte> bytes, const Alphabet& alphabet) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  std::uint32_t bits = 0;
  unsigned held = 0;  // bits not yet written
  for (const std::byte b : bytes) {
    bits = (bits << 8) | std::to_integer<std::uint32_t>(b);
    held += 8;
    while (held >= 6) {
      held -= 6;
      out.push_back(alphabet.letters[(bits >> held) & 63]);
    }
  }
  if (held > 0) out.push_back(alphabet.letters[(bits << (6 - held)) & 63]);
  while (alphabet.padded && out.size() % 4 != 0) out.push_back('=');
  return out;
}

Result<std::vector<std::byte>> decode64(std::string_view text, const Alphabet& alphabet) {
  const Error malformed = Error::make(Errc::invalid_argument, "base64");
  if (alphabet.padded) {
    if (text.size() % 4 != 0) return malformed;
    for (int i = 0; i < 2 && !text.empty() && text.back() == '='; ++i) text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) return malformed;
  std::vector<std::byte> out;
  out.reserve(text.size() / 4 * 3 + 2);
  std::uint32_t bits = 0;
  unsigned held = 0;
  for (const char c : text) {
    const int value = alphabet.values[static_cast<unsigned char>(c)];
    if (value < 0) return malformed;
    bits = (bits << 6) | static_cast<std::uint32_t>(value);
    held += 6;
    if (held >= 8) {
      held -= 8;
      out.push_back(static_cast<std::byte>(bits >> held));
    }
  }
  if ((bits & ((1u << held) - 1)) != 0) return malformed;
  return out;
}

constexpr bool unreserved(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

}  // namespace

std::string hex_encode(std::span<const std::byte> bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    out.push_back(kHexLower[std::to_integer<std::size_t>(b) >> 4]);
    out.push_back(kHexLower[std::to_integer<std::size_t>(b) & 15]);
  }
  return out;
}

Result<std::vector<std::byte>> hex_decode(std::string_view text) {
  if (text.size() % 2 != 0) return Error::make(Errc::invalid_argument, "hex");
  std::vector<std::byte> out;
  out.reserve(text.size() / 2);
  for (std::size_t i = 0; i < text.size(); i += 2) {
    const int high = hex_value(text[i]);
    const int low = hex_value(text[i + 1]);
    if (high < 0 || low < 0) return Error::make(Errc::invalid_argument, "hex");
    out.push_back(static_cast<std::byte>(high * 16 + low));
  }
  return out;
}

Result<std::uint64_t> parse_u64(std::string_view text) noexcept {
  if (text.empty() || text.size() > kDecimalDigitsMax)
    return Error::make(Errc::invalid_argument, "decimal");
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return Error::make(Errc::invalid_argument, "decimal");
    const auto digit = static_cast<std::uint64_t>(c - '0');
    constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();
    if (value > kMax / 10 || value * 10 > kMax - digit)
      return Error::make(Errc::out_of_range, "decimal");
    value = value * 10 + digit;
  }
  return value;
}

Result<std::uint32_t> parse_u32(std::string_view text) noexcept {
  TRY_ASSIGN(const std::uint64_t value, parse_u64(text));
  if (value > std::numeric_limits<std::uint32_t>::max())
    return Error::make(Errc::out_of_range, "decimal");
  return static_cast<std::uint32_t>(value);
}

std::string format_u64(std::uint64_t value) { return std::to_string(value); }

std::string base64_encode(std::span<const std::byte> bytes) { return encode64(bytes, kStandard); }
std::string base64url_encode(std::span<const std::byte> bytes) { return encode64(bytes, kUrl); }
Result<std::vector<std::byte>> base64_decode(std::string_view text) {
  return decode64(text, kStandard);
}
Result<std::vector<std::byte>> base64url_decode(std::string_view text) {
  return decode64(text, kUrl);
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    // '%' itself is never kept: the result could not be decoded.
    if (unreserved(c) || (c != '%' && keep.find(c) != std::string_view::npos)) {
      out.push_back(c);
      continue;
    }
    const auto value = static_cast<unsigned char>(c);
    out.push_back('%');
    out.push_back(kHexUpper[value >> 4]);
    out.push_back(kHexUpper[value & 15]);
  }
  return out;
}

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3) return Error::make(Errc::invalid_argument, "percent-encoding");
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return Error::make(Errc::invalid_argument, "percent-encoding");
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return out;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

}  // namespace farlift::codec
