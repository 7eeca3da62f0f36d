// The simulation's program: GoogleTest, or with --seed one world, or with --from and --count a
// range of them.
//
//   kvcache_sim_test --seed 17 --trace         repeats one seed and tells what happens
//   kvcache_sim_test --from 5000 --count 100000 --seconds 3600 --jobs 0    on all cores
//   kvcache_sim_planted_test --bug constant_key --count 1000
#include "core/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/sim/runner.h"

namespace {

using namespace farlift::kv::simulation;

int usage(const char* program) {
  std::fprintf(
      stderr,
      "usage: %s [--seed N] [--from N] [--count N] [--seconds N] [--jobs N] [--progress N] "
      "[--trace] [--print] [--bug NAME]\n",
      program);
  for (const auto& [name, bugs] : known_bugs()) std::fprintf(stderr, "  bug %s\n", name.c_str());
  return 2;
}

int run(const RunnerOptions& options) {
  const RunnerReport report = run_seeds(options);
  for (const auto& [what, count] : report.tally) {
    std::printf("%8llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
  std::printf("%s\n", progress_line(options, report).c_str());
  if (!report.failed) {
    std::printf("no violation; go on with --from %llu\n",
                static_cast<unsigned long long>(options.from + report.done));
    return 0;
  }
  std::printf("seed %llu: %s\n  repeat: %s\n", static_cast<unsigned long long>(*report.failed),
              report.what.c_str(), replay_command(*report.failed).c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  set_program(argv[0]);
  farlift::set_log_sink(
      [](farlift::LogLevel, std::string_view) noexcept {});  // faults are the rule here
  RunnerOptions options;
  bool own = false;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--trace") || is("--print")) {
      (is("--trace") ? options.trace : options.print) = true;
      continue;
    }
    const bool known = is("--seed") || is("--from") || is("--count") || is("--seconds") ||
                       is("--bug") || is("--jobs") || is("--progress");
    if (!known) continue;  // GoogleTest's
    if (i + 1 == argc) return usage(argv[0]);
    const char* const value = argv[i + 1];
    const auto number = std::strtoull(value, nullptr, 10);
    if (is("--bug")) {
      const auto at = known_bugs().find(value);
      if (at == known_bugs().end()) return usage(argv[0]);
      options.bugs = at->second;
    } else if (is("--seconds")) {
      options.limit = std::chrono::seconds(number);
    } else if (is("--progress")) {
      options.report_every = std::chrono::seconds(number);
    } else if (is("--jobs")) {
      options.jobs = number > 0 ? static_cast<std::uint32_t>(number)
                                : std::max(1u, std::thread::hardware_concurrency());
    } else {
      (is("--count") ? options.count : options.from) = number;
    }
    own = true;
    ++i;
  }
  if (own) return run(options);
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
