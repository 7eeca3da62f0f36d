// main() of a fuzz target where there is no libFuzzer: replays a corpus through the target, each
// input whole, cut at every byte, with every bit flipped and with seeded damage, so that ordinary
// test runs (and their sanitizers) walk the same code. A large corpus gets fewer copies of each.
//
//   TARGET [-runs=N] PATH...      N runs of the whole corpus, about; files or directories; an empty
//   corpus is a failure, since it would prove nothing
#include "core/base/prng.h"
#include "core/codec/text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

constexpr std::size_t kRunsMax = 15'000;  // without -runs
constexpr std::size_t kCutsMax = 2048;    // prefixes tried of one input
constexpr std::size_t kFlipsMax = 4096;   // copies tried of one input with one bit flipped
constexpr std::size_t kDamagedMax = 256;  // damaged copies tried of one input
constexpr std::size_t kInputMax = 1 << 20;

using Input = std::vector<std::uint8_t>;

void run(const Input& input) {
  // A copy of exactly the right size, so that AddressSanitizer sees a read past the end.
  const Input exact(input.begin(), input.end());
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

void damage(Input& input, farlift::Prng& prng) {
  const std::uint64_t edits = 1 + prng.below(4);
  for (std::uint64_t i = 0; i < edits && !input.empty(); ++i) {
    const auto at = static_cast<std::size_t>(prng.below(input.size()));
    const auto where = input.begin() + static_cast<std::ptrdiff_t>(at);
    switch (prng.below(4)) {
      case 0:
        *where = static_cast<std::uint8_t>(*where ^ (1U << prng.below(8)));
        break;
      case 1:
        *where = static_cast<std::uint8_t>(prng.next());
        break;
      case 2:
        input.erase(where);
        break;
      default:
        input.insert(where, static_cast<std::uint8_t>(prng.next()));
        break;
    }
  }
}

std::size_t replay(const Input& seed, std::size_t runs_max) {
  std::size_t runs = 0;
  const std::size_t cuts_max = std::clamp<std::size_t>(runs_max / 4, 1, kCutsMax);
  const std::size_t flips_max = std::clamp<std::size_t>(runs_max / 2, 1, kFlipsMax);
  const std::size_t damaged_max = std::min(runs_max / 4, kDamagedMax);
  const std::size_t step = std::max<std::size_t>(1, seed.size() / cuts_max);
  for (std::size_t cut = 0; cut < seed.size(); cut += step, ++runs) {
    run(Input(seed.begin(), seed.begin() + static_cast<std::ptrdiff_t>(cut)));
  }
  run(seed);
  const std::size_t bits = seed.size() * 8;
  const std::size_t stride = std::max<std::size_t>(1, bits / flips_max);
  for (std::size_t bit = 0; bit < bits; bit += stride, ++runs) {
    Input copy = seed;
    copy[bit / 8] = static_cast<std::uint8_t>(copy[bit / 8] ^ (1U << (bit % 8)));
    run(copy);
  }
  farlift::Prng prng(seed.size());
  for (std::size_t i = 0; i < damaged_max; ++i, ++runs) {
    Input copy = seed;
    damage(copy, prng);
    run(copy);
  }
  return runs + 1;
}

bool read_file(const std::filesystem::path& path, Input& into) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return false;
  into.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  return into.size() <= kInputMax;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::filesystem::path> paths;
  std::size_t runs_max = kRunsMax;
  for (int i = 1; i < argc; ++i) {
    if (const std::string_view word = argv[i]; word.starts_with("-runs=")) {
      const auto number = farlift::codec::parse_u32(word.substr(6));
      if (!number.ok()) {
        std::fprintf(stderr, "replay: %s is no number of runs\n", argv[i]);
        return 1;
      }
      runs_max = *number;
    } else if (std::filesystem::is_directory(argv[i])) {
      for (const auto& entry : std::filesystem::recursive_directory_iterator(argv[i])) {
        if (entry.is_regular_file()) paths.push_back(entry.path());
      }
    } else {
      paths.emplace_back(argv[i]);
    }
  }
  std::sort(paths.begin(), paths.end());
  if (paths.empty()) {
    std::fprintf(stderr, "replay: no inputs given\n");
    return 1;
  }
  std::size_t runs = 0;
  for (const auto& path : paths) {
    Input seed;
    if (!read_file(path, seed)) {
      std::fprintf(stderr, "replay: cannot read %s, or it is too long\n", path.c_str());
      return 1;
    }
    std::fprintf(stderr, "replay: %s\n", path.filename().c_str());
    runs += replay(seed, runs_max / paths.size());
  }
  std::fprintf(stderr, "replay: %zu inputs, %zu runs\n", paths.size(), runs);
  return 0;
}
