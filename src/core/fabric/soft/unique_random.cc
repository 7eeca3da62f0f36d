#include "core/fabric/soft/unique_random.h"

#include "core/base/prng.h"
#include "core/digest/hash.h"

#include <algorithm>

namespace farlift::fabric::soft {

UniqueRandom32::UniqueRandom32() noexcept { secure_random(secret_); }

std::uint16_t UniqueRandom32::round(std::uint8_t number, std::uint16_t half) const noexcept {
  std::array<std::byte, 35> message;
  std::copy(secret_.begin(), secret_.end(), message.begin());
  message[32] = std::byte{number};
  message[33] = static_cast<std::byte>(half >> 8);
  message[34] = static_cast<std::byte>(half & 0xff);
  const digest::Sha256Digest hashed = digest::sha256(message);
  return static_cast<std::uint16_t>(std::to_integer<unsigned>(hashed[0]) << 8 |
                                    std::to_integer<unsigned>(hashed[1]));
}

std::uint32_t UniqueRandom32::next() noexcept {
  constexpr std::uint8_t kRounds = 4;
  auto left = static_cast<std::uint16_t>(counter_ >> 16);
  auto right = static_cast<std::uint16_t>(counter_ & 0xffff);
  ++counter_;
  for (std::uint8_t i = 0; i < kRounds; ++i) {
    const auto mixed = static_cast<std::uint16_t>(left ^ round(i, right));
    left = right;
    right = mixed;
  }
  return std::uint32_t{left} << 16 | right;
}

}  // namespace farlift::fabric::soft
