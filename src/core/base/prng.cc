#include "core/base/prng.h"

#include "core/base/assert.h"

#include <bit>
#include <cerrno>
#include <sys/random.h>

namespace farlift {

namespace {

std::uint64_t splitmix(std::uint64_t& s) noexcept {
  s += 0x9E3779B97F4A7C15u;
  std::uint64_t z = s;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

Prng::Prng(std::uint64_t seed) noexcept {
  for (std::uint64_t& word : state_) word = splitmix(seed);
}

// xoshiro256**.
std::uint64_t Prng::next() noexcept {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Prng::below(std::uint64_t bound) noexcept {
  ASSERT(bound > 0);
  // Rejects the short last run, so that every value is equally likely.
  const std::uint64_t threshold = (0 - bound) % bound;
  for (;;) {
    const std::uint64_t r = next();
    if (r >= threshold) return r % bound;
  }
}

void secure_random(std::span<std::byte> out) noexcept {
  while (!out.empty()) {
    const ssize_t got = ::getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      ASSERT(errno == EINTR);
      continue;
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

std::uint64_t secure_random_u64() noexcept {
  std::uint64_t value = 0;
  secure_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace farlift
