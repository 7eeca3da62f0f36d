#include "core/base/assert.h"

#include <cstdio>
#include <cstdlib>

namespace farlift {

void assertion_failed(const char* expression, const char* file, int line) noexcept {
  std::fprintf(stderr, "farlift: assertion failed: %s (%s:%d)\n", expression, file, line);
  std::fflush(stderr);
  std::abort();
}

}  // namespace farlift
