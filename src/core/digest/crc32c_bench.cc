// How fast CRC-32C is, and whether copying and checking block by block beats one after the other.
#include "core/digest/crc32c.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <vector>

namespace farlift::digest {
namespace {

void checksum(benchmark::State& state) {
  const std::vector<std::byte> bytes(static_cast<std::size_t>(state.range(0)), std::byte{0x5A});
  for (auto _ : state) benchmark::DoNotOptimize(crc32c(bytes));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void copy_and_check(benchmark::State& state, bool by_block) {
  const std::vector<std::byte> from(static_cast<std::size_t>(state.range(0)), std::byte{0x5A});
  std::vector<std::byte> to(from.size());
  for (auto _ : state) {
    if (by_block) {
      benchmark::DoNotOptimize(crc32c_copy(to, from));
    } else {
      std::memcpy(to.data(), from.data(), from.size());
      benchmark::ClobberMemory();
      benchmark::DoNotOptimize(crc32c(to));
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void combine(benchmark::State& state) {
  Crc32c crc(1);
  for (auto _ : state)
    benchmark::DoNotOptimize(crc = crc32c_combine(crc, Crc32c(2), Length(1u << 20)));
}

BENCHMARK(checksum)->RangeMultiplier(16)->Range(64, 64 << 20);
BENCHMARK_CAPTURE(copy_and_check, one_after_the_other, false)
    ->RangeMultiplier(16)
    ->Range(64 << 10, 64 << 20);
BENCHMARK_CAPTURE(copy_and_check, by_block, true)->RangeMultiplier(16)->Range(64 << 10, 64 << 20);
BENCHMARK(combine);

}  // namespace
}  // namespace farlift::digest
