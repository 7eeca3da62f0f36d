// Runner: many seeds, one after another, and the one command that repeats a failing one.
//
// Threads: one. Errors: the first failing seed ends the run.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "tests/sim/world.h"

namespace farlift::kv::simulation {

struct RunnerOptions {
  std::uint64_t from = 1;
  std::uint64_t count = 1;
  std::chrono::seconds limit{3600};  // of real time
  Bugs bugs;
  bool trace = false;
};
struct RunnerReport {
  std::uint64_t done = 0;
  std::optional<std::uint64_t> failed;
  std::string what;
  std::uint64_t steps = 0;
  std::map<std::string, std::uint64_t> tally;
  double seconds = 0;
};
// An ASSERT of the code under test prints the seed before the program ends.
RunnerReport run_seeds(const RunnerOptions& options);
std::string replay_command(std::uint64_t seed);
// Set by main(): how this program was called.
void set_program(std::string name);
const std::string& program_name();
const std::map<std::string, Bugs>& known_bugs();  // by name; empty where none are compiled in

}  // namespace farlift::kv::simulation
