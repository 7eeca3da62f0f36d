// What a value costs on its way over the software provider, driven by the caller's own loop or by a
// rail thread, with and without checking.
#include "core/fabric/soft/soft.h"
#include "core/transfer/crc_pool.h"
#include "core/transfer/runner.h"

#include <benchmark/benchmark.h>

#include <chrono>
#include <future>
#include <poll.h>
#include <vector>

namespace farlift::transfer {
namespace {

struct Setup {
  SystemClock clock;
  std::unique_ptr<fabric::Domain> server;
  std::unique_ptr<fabric::Domain> client;
  std::vector<std::byte> remote;
  std::vector<std::byte> local;
  std::unique_ptr<fabric::Registration> region;
  std::unique_ptr<fabric::TargetEndpoint> target;

  explicit Setup(std::size_t length) : remote(length), local(length) {
    fabric::soft::SoftOptions options;
    options.host_lane = false;
    server = fabric::soft::open_domain(options, clock).value();
    client = fabric::soft::open_domain(options, clock).value();
    region = client->register_memory({remote, -1, 0}, fabric::Access::remote_read_write).value();
    target = client->open_target({}).value();
  }
  Job job(fabric::OpKind kind, bool crc) {
    Job job;
    job.kind = kind;
    job.peer = target->address();
    job.compute_crc = crc;
    job.local.push_back({local, nullptr});
    job.remote.push_back({region->key(), region->addr(), region->length()});
    return job;
  }
};

void by_engine(benchmark::State& state, fabric::OpKind kind, bool crc) {
  Setup setup(static_cast<std::size_t>(state.range(0)));
  auto engine = Engine::create(*setup.server, setup.clock, {}).value();
  engine->bind(setup.target->address());
  for (auto _ : state) {
    bool ok = false;
    engine->submit(setup.job(kind, crc),
                   lend([&ok](const TransferOutcome& o) { ok = o.status.ok(); }));
    while (engine->live() > 0) {
      if (engine->step()) continue;
      pollfd p{engine->wait_fd(), POLLIN, 0};
      ::poll(&p, 1, -1);
    }
    if (!ok) state.SkipWithError("transfer failed");
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

void by_runner(benchmark::State& state, fabric::OpKind kind, bool crc, std::size_t pool_threads) {
  Setup setup(static_cast<std::size_t>(state.range(0)));
  std::unique_ptr<CrcPool> pool;
  RunnerOptions options;
  if (pool_threads > 0) {
    pool = std::make_unique<CrcPool>(pool_threads);
    options.engine.crc_pool = pool.get();
  }
  auto runner = Runner::create(*setup.server, setup.clock, options).value();
  runner->bind(setup.target->address());
  for (auto _ : state) {
    std::promise<bool> promise;
    auto lender = lend([&promise](const TransferOutcome& o) { promise.set_value(o.status.ok()); });
    if (!runner->submit(setup.job(kind, crc), std::move(lender)).ok() ||
        !promise.get_future().get()) {
      state.SkipWithError("transfer failed");
    }
  }
  state.SetBytesProcessed(state.iterations() * state.range(0));
}

using fabric::OpKind;
BENCHMARK_CAPTURE(by_engine, write, OpKind::write, false)
    ->RangeMultiplier(16)
    ->Range(4 << 10, 64 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(by_runner, write, OpKind::write, false, 0)
    ->RangeMultiplier(16)
    ->Range(4 << 10, 64 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(by_runner, read, OpKind::read, false, 0)
    ->RangeMultiplier(16)
    ->Range(4 << 10, 64 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(by_runner, read_checked_here, OpKind::read, true, 0)
    ->RangeMultiplier(16)
    ->Range(4 << 10, 64 << 20)
    ->UseRealTime();
BENCHMARK_CAPTURE(by_runner, read_checked_by_pool, OpKind::read, true, 1)
    ->RangeMultiplier(16)
    ->Range(4 << 10, 64 << 20)
    ->UseRealTime();

}  // namespace
}  // namespace farlift::transfer
