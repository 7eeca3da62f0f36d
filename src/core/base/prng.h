// Random numbers. Prng is seeded and repeatable (tests, placement, jitter); secure_random() is the
// kernel's and is what keys, nonces and secrets are drawn from.
//
// Threads: a Prng belongs to one thread; secure_random() may be called from any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace farlift {

class Prng {
 public:
  explicit Prng(std::uint64_t seed) noexcept;
  std::uint64_t next() noexcept;                      // uniform over 64 bits
  std::uint64_t below(std::uint64_t bound) noexcept;  // uniform in [0, bound); bound > 0
  bool chance(std::uint32_t numerator, std::uint32_t denominator) noexcept {
    return below(denominator) < numerator;
  }

 private:
  std::uint64_t state_[4];
};

// Fills `out` from getrandom(2); aborts when the kernel cannot serve it, since a weak key must
// never be issued.
void secure_random(std::span<std::byte> out) noexcept;
std::uint64_t secure_random_u64() noexcept;

}  // namespace farlift
