// `farlift bench blob` and `bench kv`: a door against what one would use instead, measured in one
// run.
//
// Errors: exit status; a figure is reported only when every byte of its measurement was in place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::apps {

struct BenchOptions {
  bool kv = false;                  // the one-sided cache, else the blob door
  std::vector<std::string> sizes;   // empty: the seven of the goals
  std::vector<unsigned> in_flight;  // empty: 1 and 4
  std::vector<std::string> lanes;   // remote, host, libfabric; empty: all
  std::vector<std::string> only;    // names of contenders; empty: all
  unsigned rounds = 5;
  double seconds = 0.3;  // for each measurement in each round
  bool quick = false;
  std::string mooncake;                  // kv: a Python that has Mooncake; empty: no such rows
  bool scale = false;                    // kv: many values, many tenants, instead of all that
  std::uint64_t scale_values = 1000000;  // of 4 KiB, on one node
  unsigned scale_tenants = 64;           // on another
  bool json = false;
  bool quiet = false;
};

int run_bench(const BenchOptions& options);
// `bench kv --scale`; what run_bench() does then.
int run_kv_scale(const BenchOptions& options);

// The other process of the raw measurements; connects to the parent's port and serves until it
// hangs up.
int run_bench_peer(std::uint16_t parent_port);

}  // namespace farlift::apps
