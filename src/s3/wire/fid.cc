#include "s3/wire/fid.h"

#include "core/codec/text.h"

#include <array>
#include <charconv>
#include <cstddef>
#include <span>

namespace farlift::s3 {
namespace {

constexpr std::size_t kCookieDigits = 8;
constexpr std::size_t kDigitsMax = 24;

bool parse_hex(std::string_view digits, std::uint64_t& value) noexcept {
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

std::string_view fid_without_suffix(std::string_view text) noexcept {
  return text.substr(0, text.find('_'));
}

Result<Fid> Fid::parse(std::string_view text) {
  const Error malformed = Error::make(Errc::invalid_argument, "fid");
  const std::string_view base = fid_without_suffix(text);
  std::uint64_t delta = 0;
  if (base.size() != text.size()) {
    const auto parsed = codec::parse_u64(text.substr(base.size() + 1));
    if (!parsed.ok()) return malformed;
    delta = *parsed;
  }
  const std::size_t comma = base.find(',');
  if (comma == std::string_view::npos) return malformed;
  const auto volume = codec::parse_u32(base.substr(0, comma));
  const std::string_view digits = base.substr(comma + 1);
  if (!volume.ok() || digits.size() <= kCookieDigits || digits.size() > kDigitsMax)
    return malformed;
  Fid fid;
  fid.volume = *volume;
  std::uint64_t cookie = 0;
  if (!parse_hex(digits.substr(0, digits.size() - kCookieDigits), fid.needle) ||
      !parse_hex(digits.substr(digits.size() - kCookieDigits), cookie)) {
    return malformed;
  }
  if (delta > ~std::uint64_t{0} - fid.needle) return malformed;
  fid.needle += delta;
  fid.cookie = static_cast<std::uint32_t>(cookie);
  return fid;
}

std::string Fid::format() const {
  std::array<std::byte, 12> bytes{};
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::byte>(needle >> (56 - 8 * i));
  for (std::size_t i = 0; i < 4; ++i) bytes[8 + i] = static_cast<std::byte>(cookie >> (24 - 8 * i));
  std::size_t first = 0;
  while (first < 7 && bytes[first] == std::byte{0}) ++first;
  return std::to_string(volume) + "," + codec::hex_encode(std::span(bytes).subspan(first));
}

}  // namespace farlift::s3
