// Runner: many seeds, one after another or in several processes at once, and the one command that
// repeats a failing one.
//
// Invariants: every seed from `from` to `from + done - 1` has run to its end, however many
//             processes shared them; so a run that ended by time goes on with the next.
// Threads:    one; the processes are children and end with the caller. Errors: the first failing
//             seed ends the run (of several that fail at once: the lowest that was seen).
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
  std::chrono::seconds limit{3600};  // of real time; each process finishes the seed it is at
  std::uint32_t jobs = 1;            // processes
  Bugs bugs;
  bool trace = false;
  bool print = false;                    // a line for each seed: its steps and its fingerprint
  std::chrono::seconds report_every{0};  // a line about how far it is; 0: none
};
struct RunnerReport {
  std::uint64_t done = 0;
  std::optional<std::uint64_t> failed;
  std::string what;
  std::uint64_t steps = 0;
  std::map<std::string, std::uint64_t> tally;
  double seconds = 0;
  double cpu_seconds = 0;
};
// An ASSERT of the code under test prints the seed before the program ends; in a process of
// several it is the report of that seed.
RunnerReport run_seeds(const RunnerOptions& options);
std::string replay_command(std::uint64_t seed);
// Seeds run, how fast, and what is left of them, with the command for that.
std::string progress_line(const RunnerOptions& options, const RunnerReport& report);
// Set by main(): how this program was called.
void set_program(std::string name);
const std::string& program_name();
const std::map<std::string, Bugs>& known_bugs();  // by name; empty where none are compiled in

}  // namespace farlift::kv::simulation
