// A deterministic fabric for tests: one thread, one seed, a clock of its own. Bytes move in small
// steps whose order the seed decides, and everything that real providers do wrong or merely may do
// can be asked for: late landings, flushed neighbours, lost connections, errors that are not quiet,
// repeated keys, delays.
//
//   ManualClock clock;
//   SimNetwork network(clock, {.seed = 7, .fence_mode = FenceMode::endpoint});
//   auto server = network.open_domain("server");
//   auto client = network.open_domain("client");
//   ... the interface of core/fabric/fabric.h; poll(), wait() and progress() advance the simulation
//
// Invariants: the same seed, options and calls give the same trace, byte for byte. The contract of
//             fabric.h holds unless a knob of SimFaults says otherwise. Nothing sleeps: waiting
//             moves the clock.
// Threads:    as core/fabric/fabric.h; the same trace needs one thread for everything made from a
//             network. SimNetwork: any, but for trace(): while nothing else runs.
// Errors:     as core/fabric/fabric.h.
#pragma once

#include "core/base/clock.h"
#include "core/fabric/fabric.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace farlift::fabric::sim {

// Chances out of 1000, drawn once for each operation unless said otherwise.
struct SimFaults {
  std::uint32_t connection_lost = 0;  // it and everything to that peer ends as connection_lost
  std::uint32_t not_quiet = 0;        // it is reported as a failure while its bytes still move
  std::uint32_t spurious_error = 0;   // it ends as io, quiet, after some of its bytes moved
  std::uint32_t repeated_key = 0;     // per registration: a key that was closed is given out again
};

struct SimOptions {
  std::uint64_t seed = 1;
  // mr: a closed registration refuses the next step of an operation under way. endpoint: the key is
  // checked once, when the operation arrives; its bytes keep landing after the registration closed.
  FenceMode fence_mode = FenceMode::mr;
  bool virtual_addressing = false;
  bool local_registration_required = false;
  bool counting_keys = false;  // a domain's keys are 1, 2, 3...: software providers after a restart
  bool refusal_flushes = true;  // a refused operation takes the others to that peer with it
  bool in_order = false;        // operations to one peer one after another, bytes upwards
  std::uint32_t in_flight_max = 64;
  std::size_t step_bytes_max = 4096;  // longest run of bytes that moves in one step
  Duration delay_max = std::chrono::microseconds(50);  // between the steps of an operation
  SimFaults faults;
};

// What happened, in order. `operation` counts post() calls of the network from 1.
struct SimEvent {
  enum class What : std::uint8_t { post, connect, check, move, complete, close, fault };
  Instant at;
  What what = What::post;
  std::uint64_t operation = 0;
  std::uint64_t offset = 0;  // of move: from the start of the operation
  std::uint64_t length = 0;
  Errc code{};  // of a failed completion
  friend bool operator==(const SimEvent&, const SimEvent&) noexcept = default;
};

// One moment of an operation, for checkers that must see every access: when it is posted, when its
// key is accepted, and just before each run of bytes moves.
struct SimAccess {
  enum class When : std::uint8_t { posted, admitted, moving };
  When when = When::posted;
  std::uint64_t operation = 0;
  OpKind kind = OpKind::write;
  Address peer;
  RKey key;
  RemoteAddr addr;
  std::span<const std::byte> local;   // posted and admitted: all of it; moving: this run
  std::span<const std::byte> remote;  // empty when posted
  bool reported = false;              // as not quiet: its bytes move on
};
using SimObserver = std::function<void(const SimAccess&)>;

class SimNetwork {
 public:
  class State;

  // `clock` outlives the network; the network advances it.
  SimNetwork(ManualClock& clock, const SimOptions& options);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;
  ~SimNetwork();  // after everything made from it

  std::unique_ptr<Domain> open_domain(std::string name);

  // One step of one operation; moves the clock to it when none is due. False: nothing can happen.
  bool step();

  // A stopped endpoint serves nothing and answers nothing, as a stopped process would on a software
  // provider; operations to it hang until it goes on.
  void stop(const Address& target, bool stopped);
  // Ends the connections to `target`: what is under way ends as connection_lost.
  void drop(const Address& target);

  void set_faults(const SimFaults& faults);  // from now on
  void set_delay_max(Duration delay);        // above zero; of the steps planned from now on
  void set_observer(SimObserver observer);

  // Completions wait in an initiator of a domain opened under this name.
  bool ready(const std::string& name) const;
  // Operations whose bytes may still move, reported or not.
  std::size_t moving() const noexcept;
  const std::vector<SimEvent>& trace() const noexcept;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace farlift::fabric::sim
