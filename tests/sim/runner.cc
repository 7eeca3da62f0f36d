#include "tests/sim/runner.h"

#include <csignal>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace farlift::kv::simulation {
namespace {

std::string program = "kvcache_sim_test";  // NOLINT: of main()
char last_words[512];                      // NOLINT: for the signal handler
void say_last_words(int signal) {
  (void)!::write(STDERR_FILENO, last_words, std::strlen(last_words));
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

}  // namespace

void set_program(std::string name) { program = std::move(name); }
const std::string& program_name() { return program; }
std::string replay_command(std::uint64_t seed) {
  return program + " --seed " + std::to_string(seed) + " --trace";
}

RunnerReport run_seeds(const RunnerOptions& options) {
  using Real = std::chrono::steady_clock;
  const auto begin = Real::now();
  RunnerReport report;
  std::signal(SIGABRT, say_last_words);
  std::signal(SIGSEGV, say_last_words);
  for (std::uint64_t i = 0; i < options.count && Real::now() - begin < options.limit; ++i) {
    const std::uint64_t seed = options.from + i;
    std::snprintf(last_words, sizeof last_words, "\nthe program ends in seed %llu; repeat: %s\n",
                  static_cast<unsigned long long>(seed), replay_command(seed).c_str());
    World world(Plan::of(seed), options.bugs, options.trace);
    world.run();
    ++report.done;
    report.steps += world.steps();
    for (const auto& [what, count] : world.tally()) report.tally[what] += count;
    if (world.ledger().failure()) {
      report.failed = seed;
      report.what = *world.ledger().failure() + "\n  " + world.plan().describe();
      break;
    }
  }
  std::signal(SIGABRT, SIG_DFL);
  std::signal(SIGSEGV, SIG_DFL);
  report.seconds = std::chrono::duration<double>(Real::now() - begin).count();
  return report;
}

const std::map<std::string, Bugs>& known_bugs() {
  static const std::map<std::string, Bugs> bugs = [] {
    std::map<std::string, Bugs> all;
#ifdef FARLIFT_PLANTED_BUGS
    const auto node = [](PlantedBug bug) {
      Bugs b;
      b.node = bug;
      return b;
    };
    all["skip_grace_and_fence"] = node(PlantedBug::skip_grace_and_fence);
    all["constant_key"] = node(PlantedBug::constant_key);
    all["purge_by_version"] = node(PlantedBug::purge_by_version);
    all["crc_before_grant_close"] = node(PlantedBug::crc_before_grant_close);
    all["restored_incarnation"] = node(PlantedBug::restored_incarnation);
    all["free_on_unknown_publish"] = node(PlantedBug::free_on_unknown_publish);
    all["tag_without_key"] = node(PlantedBug::tag_without_key);
    all["tag_without_key"].client.tag_without_key = true;
    all["report_on_soft_timeout"].client.report_on_soft_timeout = true;
    all["fence_mr_everywhere"] = node(PlantedBug::fence_mr_everywhere);
    all["fence_mr_everywhere"].client.skip_crc = true;
#endif
    return all;
  }();
  return bugs;
}

}  // namespace farlift::kv::simulation
