// What a small object costs: bytes of bookkeeping and time, with a million of them alive.
#include "core/base/prng.h"
#include "core/store/pool.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <malloc.h>
#include <vector>

namespace farlift::store {
namespace {

constexpr std::size_t kObjects = 1'000'000;

struct Setup {
  memory::PinnedBudget budget{memory::PinnedBudget::kUnlimited};
  std::unique_ptr<Pool> pool;

  Setup() {
    PoolOptions options;
    options.segment_size = Length(std::uint64_t{1} << 30);
    options.chunk_size = Length(8u << 20);
    options.mapping.huge_pages = false;
    pool = Pool::create({}, options, budget).value();
  }
};

void million(benchmark::State& state) {
  for (auto _ : state) {
    Setup setup;
    std::vector<ObjectRef> objects(kObjects);
    const auto before = mallinfo2().uordblks;
    for (ObjectRef& object : objects)
      object = std::move(setup.pool->reserve(Length(4096)).value()).seal(Crc32c(0));
    const auto after = mallinfo2().uordblks;
    state.counters["bytes_per_object"] =
        static_cast<double>(after - before) / static_cast<double>(kObjects);
    state.PauseTiming();
    Prng prng(1);
    for (std::size_t i = kObjects - 1; i > 0; --i)
      std::swap(objects[i], objects[prng.below(i + 1)]);
    state.ResumeTiming();
    objects.clear();  // in random order
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kObjects));
}

void large(benchmark::State& state) {
  Setup setup;
  for (auto _ : state) {
    benchmark::DoNotOptimize(setup.pool->reserve(Length(256u << 20)).value());
  }
}

void small_in_a_fragmented_pool(benchmark::State& state) {
  Setup setup;
  std::vector<ObjectRef> objects;
  for (std::size_t i = 0; i < kObjects; ++i) {
    objects.push_back(std::move(setup.pool->reserve(Length(4096)).value()).seal(Crc32c(0)));
  }
  for (std::size_t i = 0; i < objects.size(); i += 2) objects[i].reset();
  for (auto _ : state)
    benchmark::DoNotOptimize(std::move(setup.pool->reserve(Length(8192)).value()).seal(Crc32c(0)));
}

BENCHMARK(million)->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK(large);
BENCHMARK(small_in_a_fragmented_pool);

}  // namespace
}  // namespace farlift::store
