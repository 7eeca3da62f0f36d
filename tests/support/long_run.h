// long_run: the numbers of `./test --long`. Fixed seeds and counts stay the same in every ordinary
// run; a long one goes on from there.
#pragma once

#include <cstdlib>

namespace farlift::testing {

// Read once: the environment does not change under a test.
inline bool long_run() noexcept {
  static const bool value = std::getenv("FARLIFT_LONG") != nullptr;
  return value;
}

template <class N>
N repeats(N ordinary, N at_length) noexcept {
  return long_run() ? at_length : ordinary;
}

}  // namespace farlift::testing
