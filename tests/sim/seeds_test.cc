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

// However many processes share the seeds: the same ones run, and the same one fails.
TEST(KvSimulation, processes_run_what_one_runs) {
  RunnerOptions options;
  options.from = 20;
  options.count = 24;
  const RunnerReport one = run_seeds(options);
  options.jobs = 3;
  const RunnerReport three = run_seeds(options);
  EXPECT_EQ(one.done, 24u);
  EXPECT_EQ(three.done, 24u);
  EXPECT_EQ(one.failed, three.failed) << one.what << three.what;
  options.limit = std::chrono::seconds(0);
  const RunnerReport none = run_seeds(options);
  EXPECT_EQ(none.done, 0u);
  EXPECT_NE(progress_line(options, none).find("24 remain"), std::string::npos);
}

// Bounded in time, so that a slow machine runs fewer seeds and not longer. The million of a long
// run are the program's own to run (tools/run_tests.py), on all cores.
TEST(KvSimulation, P1_to_P17_and_L1_to_L3_hold) {
  RunnerOptions options;
  options.count = testing::repeats<std::uint64_t>(400, 4000);
  options.limit = std::chrono::seconds(testing::repeats(30, 120));
  const RunnerReport report = run_seeds(options);
  std::printf("%s %s\n", program_name().c_str(), progress_line(options, report).c_str());
  EXPECT_FALSE(report.failed.has_value())
      << report.what << "\n  repeat: " << replay_command(report.failed.value_or(0));
  EXPECT_GE(report.done, 3u) << "too few seeds to mean anything";
  for (const char* must : {"get OK", "put OK", "remove OK"}) {
    EXPECT_GT(report.tally.count(must), 0u) << must << " never happened";
  }
}

}  // namespace
}  // namespace farlift::kv::simulation
