// Each planted bug of spec kv 12 is found, and nothing is found without one.
#include <gtest/gtest.h>

#include "tests/sim/runner.h"

namespace farlift::kv::simulation {
namespace {

// A minute each, as the specification has it; a sanitizer makes the same seeds take longer.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::chrono::seconds kLimit{300};
#else
constexpr std::chrono::seconds kLimit{60};
#endif

TEST(KvSimulationPlanted, without_a_bug_nothing_is_found) {
  RunnerOptions options;
  options.count = 30;
  options.limit = std::chrono::seconds(15);
  const RunnerReport report = run_seeds(options);
  EXPECT_FALSE(report.failed.has_value()) << report.what;
}

TEST(KvSimulationPlanted, every_bug_is_found) {
  ASSERT_EQ(known_bugs().size(), 9u);
  for (const auto& [name, bugs] : known_bugs()) {
    RunnerOptions options;
    options.count = 2000;
    options.limit = kLimit;
    options.bugs = bugs;
    const RunnerReport report = run_seeds(options);
    EXPECT_TRUE(report.failed.has_value()) << name << ": " << report.done << " seeds found nothing";
    if (report.failed)
      std::printf("%-24s seed %3llu: %s\n", name.c_str(),
                  static_cast<unsigned long long>(*report.failed),
                  report.what.substr(0, 100).c_str());
  }
}

}  // namespace
}  // namespace farlift::kv::simulation
