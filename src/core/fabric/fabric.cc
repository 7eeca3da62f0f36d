#include "core/fabric/fabric.h"

#include <algorithm>
#include <string_view>

namespace farlift::fabric {

Result<Address> Address::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() > kBytesMax) {
    return Error::make(Errc::invalid_argument, "fabric address must be 1 to 64 bytes");
  }
  Address address;
  std::copy(bytes.begin(), bytes.end(), address.bytes_.begin());
  address.size_ = static_cast<std::uint8_t>(bytes.size());
  return address;
}

std::string Address::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(std::size_t{size_} * 2);
  for (const std::byte b : bytes()) {
    text.push_back(kDigits[std::to_integer<unsigned>(b) >> 4]);
    text.push_back(kDigits[std::to_integer<unsigned>(b) & 15u]);
  }
  return text;
}

std::string_view to_string(FenceMode mode) noexcept {
  switch (mode) {
    case FenceMode::mr:
      return "mr";
    case FenceMode::endpoint:
      return "endpoint";
    case FenceMode::drain:
      return "drain";
  }
  return "unknown";
}

}  // namespace farlift::fabric
