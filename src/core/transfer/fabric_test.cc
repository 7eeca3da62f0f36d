// Transfers over the real software provider (two domains of this process, threads and sockets) and
// over the simulated fabric with its faults, instead of this folder's fake.
#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/fabric/sim/sim.h"
#include "core/fabric/soft/soft.h"
#include "core/transfer/crc_pool.h"
#include "core/transfer/runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/long_run.h"

namespace farlift::transfer {
namespace {

using fabric::OpKind;

// Eight bytes at a time: sanitizers make a loop over bytes slow.
std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::uint64_t> words(length / 8 + 1);
  for (std::uint64_t& word : words) word = prng.next();
  const auto bytes = std::as_bytes(std::span(words)).first(length);
  return {bytes.begin(), bytes.end()};
}

struct Soft : ::testing::TestWithParam<bool> {
  SystemClock clock;
  std::unique_ptr<fabric::Domain> server;
  std::unique_ptr<fabric::Domain> client;
  std::vector<std::byte> memory;
  std::unique_ptr<fabric::Registration> region;
  std::unique_ptr<fabric::TargetEndpoint> target;
  CrcPool pool{1};

  void SetUp() override {
    fabric::soft::SoftOptions options;
    options.host_lane = GetParam();
    server = fabric::soft::open_domain(options, clock).value();
    client = fabric::soft::open_domain(options, clock).value();
    memory.resize(8u << 20);
    region = client->register_memory({memory, -1, 0}, fabric::Access::remote_read_write).value();
    target = client->open_target({}).value();
  }
  void TearDown() override {
    target.reset();
    region.reset();
  }
  RemoteWindow window(std::uint64_t from, std::uint64_t length) const {
    return {region->key(), region->addr() + Offset(from), Length(length)};
  }
  std::unique_ptr<Runner> runner() {
    RunnerOptions options;
    options.engine.crc_pool = &pool;
    return Runner::create(*server, clock, options).value();
  }
};

TEST_P(Soft, values_land_exactly_and_come_back_checked) {
  const auto rail = runner();
  rail->bind(target->address());
  for (const std::size_t length : {1u, 4096u, 1'000'000u, 5'000'001u}) {
    std::fill(memory.begin(), memory.end(), std::byte{0xEE});
    auto value = std::make_shared<std::vector<std::byte>>(pattern(length, length));
    Job write;
    write.peer = target->address();
    write.local.push_back({std::span(*value).first(length / 2), nullptr});
    write.local.push_back({std::span(*value).subspan(length / 2), nullptr});
    write.remote = {window(100, length / 3), window(100 + length / 3, 8'000'000 - length / 3)};
    if (length < 3) write.remote.erase(write.remote.begin());
    TransferOutcome outcome;
    ASSERT_TRUE(
        rail->submit(std::move(write), lend([&, value](const TransferOutcome& o) { outcome = o; }))
            .ok());
    rail->drain();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().describe();
    const auto landed = std::span(memory).subspan(100, length);
    EXPECT_TRUE(std::equal(landed.begin(), landed.end(), value->begin()));
    EXPECT_EQ(memory[99], std::byte{0xEE});
    EXPECT_EQ(memory[100 + length], std::byte{0xEE});

    auto back = std::make_shared<std::vector<std::byte>>(length);
    Job read;
    read.kind = OpKind::read;
    read.peer = target->address();
    read.compute_crc = true;
    read.local.push_back({*back, nullptr});
    read.remote = {window(100, length)};
    ASSERT_TRUE(
        rail->submit(std::move(read), lend([&, back](const TransferOutcome& o) { outcome = o; }))
            .ok());
    rail->drain();
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().describe();
    EXPECT_EQ(*back, *value);
    EXPECT_EQ(outcome.crc, digest::crc32c(*value));
  }
  rail->unbind(target->address());
}

TEST_P(Soft, a_refused_window_fails_its_transfer_alone) {
  const auto rail = runner();
  std::atomic<int> good{0};
  std::atomic<int> refused{0};
  for (int i = 0; i < 60; ++i) {
    auto value = std::make_shared<std::vector<std::byte>>(pattern(100'000, 1));
    Job job;
    job.kind = i % 2 == 0 ? OpKind::write : OpKind::read;
    job.peer = target->address();
    job.local.push_back({*value, nullptr});
    job.remote = {window(0, 100'000)};
    const bool bad = i % 3 == 0;
    if (bad) job.remote[0].key = RKey(region->key().raw() ^ 1);
    ASSERT_TRUE(rail->submit(std::move(job), lend([&, value, bad](const TransferOutcome& o) {
                               if (!bad && o.status.ok()) ++good;
                               if (bad && !o.status.ok() && o.status.code() == Errc::access &&
                                   o.status.error().quiet)
                                 ++refused;
                             }))
                    .ok());
  }
  rail->drain();
  EXPECT_EQ(good.load(), 40);
  EXPECT_EQ(refused.load(), 20);
  EXPECT_EQ(rail->stats().fences, 0u);
}

TEST_P(Soft, a_peer_that_is_gone_is_an_error_not_a_hang) {
  const fabric::Address gone = target->address();
  target.reset();
  const auto rail = runner();
  std::vector<std::byte> value(1000);
  TransferOutcome outcome;
  Job job;
  job.peer = gone;
  job.local.push_back({value, nullptr});
  job.remote = {window(0, 1000)};
  ASSERT_TRUE(
      rail->submit(std::move(job), lend([&](const TransferOutcome& o) { outcome = o; })).ok());
  rail->drain();
  EXPECT_FALSE(outcome.status.ok());
}

INSTANTIATE_TEST_SUITE_P(Lanes, Soft, ::testing::Values(false, true), [](const auto& lane) {
  return lane.param ? std::string("host") : std::string("remote");
});

// Every fault of the simulated fabric, many seeds: what reports success is exact.
TEST(Sim, success_means_the_right_bytes_under_every_fault) {
  set_log_level(LogLevel::error);
  std::uint64_t succeeded = 0;
  std::uint64_t fences = 0;
  for (std::uint64_t seed = 1; seed <= testing::repeats(60u, 3000u); ++seed) {
    ManualClock clock;
    fabric::sim::SimOptions options;
    options.seed = seed;
    options.step_bytes_max = 700;
    options.faults.connection_lost = seed % 2 == 0 ? 10 : 0;
    options.faults.not_quiet = seed % 3 == 0 ? 10 : 0;
    options.faults.spurious_error = seed % 5 == 0 ? 10 : 0;
    fabric::sim::SimNetwork network(clock, options);
    auto server = network.open_domain("server");
    auto client = network.open_domain("client");
    std::vector<std::byte> remote(200'000);
    auto region =
        client->register_memory({remote, -1, 0}, fabric::Access::remote_read_write).value();
    auto target = client->open_target({}).value();
    EngineOptions engine_options;
    engine_options.piece_max = Length(1000);
    auto engine = Engine::create(*server, clock, engine_options).value();
    Prng prng(seed);
    for (std::size_t i = 0; i < 20; ++i) {
      const std::size_t from = i * 10'000;
      const std::size_t length = 1 + prng.below(10'000);
      auto value = std::make_shared<std::vector<std::byte>>(pattern(length, i));
      const auto there = std::span(remote).subspan(from, length);
      Job job;
      job.kind = prng.chance(1, 2) ? OpKind::read : OpKind::write;
      const bool read = job.kind == OpKind::read;
      auto local =
          std::make_shared<std::vector<std::byte>>(read ? std::vector<std::byte>(length) : *value);
      if (read) std::copy(value->begin(), value->end(), there.begin());
      job.compute_crc = read;
      job.peer = target->address();
      job.local.push_back({*local, nullptr});
      job.remote.push_back({region->key(), region->addr() + Offset(from), Length(length)});
      engine->submit(std::move(job),
                     lend([&succeeded, local, value, there, read](const TransferOutcome& o) {
                       if (!o.status.ok()) return;
                       ++succeeded;
                       EXPECT_TRUE(std::equal(there.begin(), there.end(), value->begin()));
                       EXPECT_EQ(*local, *value);
                       if (read) {
                         EXPECT_EQ(o.crc, digest::crc32c(*value));
                       }
                     }));
    }
    for (int idle = 0; engine->live() > 0 && idle < 10'000;) {
      if (engine->step()) continue;
      ++idle;
      engine->wait(1);
    }
    EXPECT_EQ(engine->live(), 0u) << "seed " << seed;
    fences += engine->stats().fences;
    engine.reset();
    target.reset();
    region.reset();
  }
  EXPECT_GT(succeeded, 600u);
  EXPECT_GT(fences, 0u);
}

}  // namespace
}  // namespace farlift::transfer
