// The world without planted bugs keeps every invariant.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/sim/runner.h"
#include "tests/support/long_run.h"

namespace farlift::kv::simulation {
namespace {

TEST(KvSimulation, one_seed_is_one_run) {
  for (const std::uint64_t seed : {3u, 4u, 5u, 6u}) {
    Plan plan = Plan::of(seed);
    plan.fabric.virtual_addressing = false;  // addresses differ from run to run
    World one(plan);
    one.run();
    World other(plan);
    other.run();
    EXPECT_EQ(one.fingerprint(), other.fingerprint()) << "seed " << seed;
  }
}

// Beyond the ordinary range; each found a fault of the node or of a checker once.
TEST(KvSimulation, seeds_that_found_something) {
  for (const std::uint64_t seed : {844u, 2251u, 2417u, 4129u, 4718u}) {
    RunnerOptions options;
    options.from = seed;
    options.count = 1;
    const RunnerReport report = run_seeds(options);
    EXPECT_FALSE(report.failed.has_value())
        << report.what << "\n  repeat: " << replay_command(seed);
  }
}

// Bounded in time, so that a slow machine runs fewer seeds and not longer; a long run goes on from
// where the ordinary ones end.
TEST(KvSimulation, P1_to_P17_and_L1_to_L3_hold) {
  RunnerOptions options;
  options.count = testing::repeats<std::uint64_t>(300, 1'000'000);
  options.limit = std::chrono::seconds(testing::repeats(30, 1200));
  const RunnerReport report = run_seeds(options);
  std::printf("%llu of %llu seeds in %.0f s; to go on: %s --from %llu --count %llu\n",
              static_cast<unsigned long long>(report.done),
              static_cast<unsigned long long>(options.count), report.seconds,
              program_name().c_str(), static_cast<unsigned long long>(options.from + report.done),
              static_cast<unsigned long long>(options.count - report.done));
  EXPECT_FALSE(report.failed.has_value())
      << report.what << "\n  repeat: " << replay_command(report.failed.value_or(0));
  EXPECT_GE(report.done, 3u) << "too few seeds to mean anything";
  for (const char* must : {"get OK", "put OK", "remove OK"}) {
    EXPECT_GT(report.tally.count(must), 0u) << must << " never happened";
  }
}

}  // namespace
}  // namespace farlift::kv::simulation
