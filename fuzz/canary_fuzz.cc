// A target that must fail: it has a planted bug, and a harness that does not find it finds nothing.
// ctest expects it to die with the words below.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr char kMagic[] = {'b', 'u', 'g', '!'};
  if (size >= sizeof kMagic && data[0] == kMagic[0] && data[1] == kMagic[1] &&
      data[2] == kMagic[2] && data[3] == kMagic[3]) {
    std::fputs("canary: the planted bug was found\n", stderr);
    std::abort();
  }
  return 0;
}
