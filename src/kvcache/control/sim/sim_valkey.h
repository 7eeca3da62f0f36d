// SimValkey: a model of a Valkey deployment for simulations; SimDirectories are opened on it, one
// for each party, and each is a Directory as the real one is.
//
//   SimValkey valkey(clock, {.seed = 7});
//   auto directory = valkey.open_directory("n1");
//   valkey.set_faults({.reply_lost = 20, .applied_late = 20});
//   ... directory->step() after the clock moved; valkey.next_due() says how far to move it
//
// Invariants: the same seed, options and calls give the same outcomes. Commands are applied
//             atomically, in the order in which they arrive. An operation whose outcome is
//             `unknown` was applied, or was not, or will be, up to late_max after its caller gave
//             up, even when the caller has gone. `not_done` was never applied and never will be.
// Threads:    one for everything made from it. Ownership: the clock outlives it; directories may
//             outlive it, their operations then end as connection_lost.
// Errors:     as control/directory.h.
#pragma once

#include "core/base/clock.h"
#include "kvcache/control/directory.h"
#include "kvcache/control/sim/valkey_state.h"

#include <cstdint>
#include <memory>
#include <string>

namespace farlift::kv::sim {

// Chances out of 1000, drawn once for each operation in this order.
struct SimValkeyFaults {
  std::uint32_t refused = 0;        // not sent at all: not_done, busy
  std::uint32_t never_applied = 0;  // the connection breaks before it arrives; nobody can tell
  std::uint32_t reply_lost = 0;     // applied, then the connection breaks
  std::uint32_t applied_late = 0;   // the caller gives up; applied within late_max
  std::uint32_t slow = 0;           // each way takes up to slow_max; may pass the time limit
  std::uint32_t lagging = 0;        // resolves: answered by a replica up to lag_max behind
  Duration late_max = std::chrono::seconds(30);
  Duration slow_max = std::chrono::seconds(2);
  Duration lag_max = std::chrono::seconds(5);
};

struct SimValkeyOptions {
  std::uint64_t seed = 1;
  Duration delay_min = std::chrono::microseconds(20);  // one way
  Duration delay_max = std::chrono::microseconds(500);
  Duration timeout = kControlTimeout;
  std::size_t pending_max = 65536;  // operations of one directory
  SimValkeyFaults faults;
};

class SimValkey {
 public:
  class World;

  SimValkey(const Clock& clock, const SimValkeyOptions& options);
  ~SimValkey();
  SimValkey(const SimValkey&) = delete;
  SimValkey& operator=(const SimValkey&) = delete;

  std::unique_ptr<Directory> open_directory(std::string party);

  void set_faults(const SimValkeyFaults& faults);
  // Down for everybody, or for one party (a partition). Operations under way end as unknown, and
  // those that had arrived stay applied; new ones end as not_done.
  void set_down(bool down);
  void set_down(const std::string& party, bool down);
  // A replica that was `back` behind takes over: the writes of that time are gone and connections
  // break.
  void fail_over(Duration back);
  void flush_all();
  void evict(const std::string& name);    // one key, thus maybe half a pair
  void evict_some(std::uint32_t chance);  // each live key with a chance out of 1000
  // Written by somebody else: forged, replayed or corrupt.
  void write(const std::string& name, Bytes value, Duration px = kDescriptorTtl);
  // Everything, for checkers and for forging beyond write(). Reading it is no command.
  ValkeyState& state();

  // Applies what has arrived by now; directories do it in their step().
  bool step();
  // step(), and whether a directory of this party has callbacks to run.
  bool ready(const std::string& party);
  Instant next_due() const;

  struct Counters {
    std::uint64_t operations = 0;
    std::uint64_t mgets = 0;  // one for each key resolved
    std::uint64_t publishes = 0;
    std::uint64_t unpublishes = 0;
    std::uint64_t unknown = 0;  // outcomes reported so
    std::uint64_t late = 0;     // applied after the caller was told unknown
  };
  Counters counters() const;

 private:
  std::shared_ptr<World> world_;
};

}  // namespace farlift::kv::sim
