// Samples of one contender, what they come to, and how they are shown.
//
// Threads: plain values. Errors: none.
#pragma once

#include "apps/bench/contender.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace farlift::apps {

// One measurement: some transfers back to back.
struct Sample {
  std::uint64_t bytes = 0;
  double seconds = 0;
  double cpu_here_s = 0;
  double cpu_there_s = 0;
  std::vector<double> latencies_us;
};

struct Row {
  Label label;
  std::uint64_t size = 0;
  unsigned in_flight = 1;
  double gb_per_s = 0;       // median over the rounds
  double gb_per_s_low = 0;   // slowest round
  double gb_per_s_high = 0;  // fastest round
  double p50_us = 0;
  double p99_us = 0;
  double cpu_s_per_gb = 0;  // both sides
  double cpu_here_s_per_gb = 0;
  double cpu_there_s_per_gb = 0;
  std::uint64_t transfers = 0;
  std::vector<std::pair<std::string, double>> more;  // what only some rows can tell
};

Row summarise(const Label& label, const Scene& scene, const std::vector<Sample>& samples);

std::string rows_json(const std::vector<Row>& rows);
// One table for each size and number in flight: figures, and ratios to plain GET and the raw
// stream.
std::string rows_table(const std::vector<Row>& rows);
// The goals that docs/benchmarks.md lists, as far as these rows can judge them.
std::string goals_table(const std::vector<Row>& rows);

}  // namespace farlift::apps
