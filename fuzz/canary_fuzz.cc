// A target that must fail: it has planted bugs, and a harness that does not find them finds
// nothing. The environment variable FARLIFT_CANARY names the bug (default: crash); each hides
// behind four bytes that only coverage leads to. tools/run_fuzz.py expects every one to be found
// within seconds, ctest expects the corpus runner to find the first.
//
//   crash      abort()                         found by anything
//   overread   one byte past the input         AddressSanitizer
//   overflow   signed overflow                 UndefinedBehaviorSanitizer
//   leak       an allocation that is lost      LeakSanitizer
//   hang       an input that never ends        libFuzzer's -timeout
//   memory     an allocation of 3 GiB          libFuzzer's -malloc_limit_mb
#include <climits>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

std::string_view planted() {
  static const char* const name = std::getenv("FARLIFT_CANARY");
  return name == nullptr ? "crash" : name;
}

// Out of the optimiser's sight.
volatile int g_sink = 0;
void* volatile g_lost = nullptr;

void be_buggy(const std::uint8_t* data, std::size_t size) {
  const std::string_view bug = planted();
  if (bug == "overread") {
    g_sink = data[size];
  } else if (bug == "overflow") {
    g_sink = INT_MAX;
    g_sink = g_sink + static_cast<int>(size);
  } else if (bug == "leak") {
    g_lost = std::malloc(97);
    g_lost = nullptr;
  } else if (bug == "hang") {
    while (g_sink == 0) {
    }
  } else if (bug == "memory") {
    g_lost = std::malloc(std::size_t{3} << 30);
    std::free(g_lost);
  } else {
    std::fputs("canary: the planted bug was found\n", stderr);
    std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr char kMagic[] = {'b', 'u', 'g', '!'};
  if (size >= sizeof kMagic && data[0] == kMagic[0] && data[1] == kMagic[1] &&
      data[2] == kMagic[2] && data[3] == kMagic[3]) {
    be_buggy(data, size);
  }
  return 0;
}
