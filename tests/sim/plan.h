// Plan: everything a seed decides before the world starts: how many take part, what they may do,
// and which faults strike how often. Faults during the run draw from the world's own Prng.
//
// Invariants: the same seed gives the same plan. Threads: plain values. Errors: none.
#pragma once

#include "core/base/clock.h"
#include "core/fabric/sim/sim.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::kv::simulation {

// Weights of what may strike; 0: never.
struct FaultWeights {
  std::uint32_t partition = 0, lose_links = 0, pause = 0, crash = 0, crash_client = 0;
  std::uint32_t valkey_down = 0, fail_over = 0, flush_all = 0, evict = 0, evict_half = 0;
  std::uint32_t forge = 0, replay = 0, swap = 0, across_tenants = 0;
  std::uint32_t jump = 0;  // a party's clock: every timer of it fires early
  std::uint32_t rotate = 0, rotate_all = 0, hand_over = 0, drain = 0, reconcile = 0;
  std::uint32_t total() const;
};

struct Plan {
  std::uint64_t seed = 1;
  bool calm = false;  // no fault but rotations: stricter checks hold
  std::uint32_t nodes = 1, clients = 2, tenants = 1, lanes = 3, keys = 6;
  std::uint32_t rails = 1;
  std::uint32_t operations = 80;  // of all clients together
  fabric::FenceMode fence = fabric::FenceMode::mr;
  fabric::sim::SimOptions fabric;
  sim::SimLinkFaults links;
  sim::SimValkeyFaults valkey;
  std::uint32_t close_fails = 0;  // of a registration, out of 1000
  std::uint64_t arenas_quota = 3;
  Duration grace{}, lease{}, operation_limit{}, reconcile_every{}, think_max{};
  Duration fault_every{};
  std::vector<std::size_t> lengths;  // of values
  bool rogue = true;                 // a client that breaks every rule it can
  bool pushes = true;
  bool deletes = true;
  bool spin = false;  // everybody is stepped in every turn, as by loops that never wait
  FaultWeights faults;

  static Plan of(std::uint64_t seed);
  std::string describe() const;
};

}  // namespace farlift::kv::simulation
