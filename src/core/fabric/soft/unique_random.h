// UniqueRandom32: numbers of 32 bits that nobody can foretell and none of which comes twice before
// all have come: a secret permutation (four Feistel rounds over SHA-256) of a counter. Plain random
// numbers of 32 bits repeat within minutes on a busy server, and a peer that still holds an old key
// would then name somebody else's memory (spec s3 11.1: not reused for 10 minutes).
//
// Threads: one at a time. Errors: none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace farlift::fabric::soft {

class UniqueRandom32 {
 public:
  UniqueRandom32() noexcept;
  std::uint32_t next() noexcept;

 private:
  std::uint16_t round(std::uint8_t number, std::uint16_t half) const noexcept;
  std::array<std::byte, 32> secret_;
  std::uint32_t counter_ = 0;
};

}  // namespace farlift::fabric::soft
