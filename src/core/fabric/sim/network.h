// The state behind SimNetwork: what is registered, who listens, what is under way.
//
// Invariants: everything is kept in creation order and chosen by the one Prng, never by address in
//             memory. An operation is in `operations_` while its bytes may move or its end is due.
// Threads:    any; whoever calls holds `mutex`, so a step and a close exclude each other: nothing
//             moves by a registration whose close returned. Errors: as core/fabric/fabric.h.
#pragma once

#include "core/base/mutex.h"
#include "core/base/prng.h"
#include "core/fabric/sim/sim.h"

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace farlift::fabric::sim {

// `open` is guarded by the network's mutex, the rest does not change.
struct Region {
  std::uint32_t domain = 0;
  RKey key;
  RemoteAddr addr;
  std::span<std::byte> bytes;
  Access access = Access::local;
  bool open = true;
};

// `open` and `stopped` are guarded by the network's mutex, the rest does not change.
struct Listener {
  std::uint32_t domain = 0;
  Address address;
  bool open = true;
  bool stopped = false;
};

// Where completions of one initiator gather. Guarded by the network's mutex.
struct Mailbox {
  std::deque<Completion> ready;
  std::size_t in_flight = 0;  // posted and not polled
  bool woken = false;
  bool closed = false;
  std::size_t* ready_of_owner = nullptr;  // of all of them under one name
};

class SimNetwork::State {
 public:
  State(ManualClock& clock, const SimOptions& options);

  Mutex mutex;

  ManualClock& clock() noexcept REQUIRES(mutex) { return clock_; }
  const SimOptions& options() const noexcept { return options_; }
  std::uint32_t add_domain() noexcept REQUIRES(mutex) { return next_domain_++; }

  std::shared_ptr<Region> add_region(std::uint32_t domain, const MemoryRef& memory, Access access)
      REQUIRES(mutex);
  void close_region(Region& region) REQUIRES(mutex);
  std::shared_ptr<Listener> add_listener(std::uint32_t domain, std::uint16_t port) REQUIRES(mutex);
  void close_listener(Listener& listener) REQUIRES(mutex);
  Address next_address(std::uint32_t domain, std::uint16_t port) REQUIRES(mutex);

  void post(const std::shared_ptr<Mailbox>& mailbox, const Address& peer,
            const Operation& operation, Duration connect_deadline) REQUIRES(mutex);
  void abort(const Mailbox& mailbox, const Address& peer) REQUIRES(mutex);
  // Its initiator closed: nothing of it moves any more.
  void forget(const Mailbox& mailbox) REQUIRES(mutex);

  bool step() REQUIRES(mutex);
  std::size_t& ready_of(const std::string& name) REQUIRES(mutex) { return ready_[name]; }
  void stop(const Address& target, bool stopped) REQUIRES(mutex);
  void drop(const Address& target) REQUIRES(mutex);
  void set_faults(const SimFaults& faults) noexcept REQUIRES(mutex) { faults_ = faults; }
  void set_delay_max(Duration delay) noexcept REQUIRES(mutex) { delay_max_ = delay; }
  void set_observer(SimObserver observer) REQUIRES(mutex) { observer_ = std::move(observer); }
  std::size_t moving() const noexcept REQUIRES(mutex) { return operations_.size(); }
  const std::vector<SimEvent>& trace() const noexcept REQUIRES(mutex) { return trace_; }

 private:
  enum class Phase : std::uint8_t { connect, check, move, acknowledge, abort };
  enum class Doom : std::uint8_t { none, connection_lost, not_quiet, spurious_error };
  struct Run {
    std::size_t from = 0;
    std::size_t length = 0;
  };
  struct Active {
    std::uint64_t number = 0;
    std::shared_ptr<Mailbox> mailbox;
    Address peer;
    Operation operation;
    Phase phase = Phase::connect;
    Instant due;
    Instant connect_until;
    Doom doom = Doom::none;
    std::size_t doom_after = 0;  // runs that move before
    bool reported = false;       // not quiet: its bytes move on
    std::shared_ptr<Listener> listener;
    std::shared_ptr<Region> region;
    std::vector<Run> runs;                            // still to move, last first
    mutable std::shared_ptr<Listener> peer_listener;  // of `peer`, as found last
    mutable std::uint64_t found_at = 0;               // listeners_changed_ of then
  };

  bool same_link(const Active& a, const Active& b) const noexcept {
    return a.mailbox == b.mailbox && a.peer == b.peer;
  }
  bool runnable(std::size_t index) const REQUIRES(mutex);
  void advance(std::size_t index) REQUIRES(mutex);
  void connect(std::size_t index) REQUIRES(mutex);
  void check(std::size_t index) REQUIRES(mutex);
  void move(std::size_t index) REQUIRES(mutex);
  bool meet_doom(std::size_t index) REQUIRES(mutex);
  void refuse(std::size_t index) REQUIRES(mutex);
  // It and everything on the same link.
  void end_link(std::size_t index, Errc code) REQUIRES(mutex);
  void report(Active& active, const Status& status) REQUIRES(mutex);
  void finish(std::size_t index, const Status& status) REQUIRES(mutex);
  void cut(Active& active) REQUIRES(mutex);
  void later(Active& active) REQUIRES(mutex);
  Doom draw_doom() REQUIRES(mutex);
  std::shared_ptr<Region> find_region(const Active& active) const REQUIRES(mutex);
  std::shared_ptr<Listener> find_listener(const Address& address) const REQUIRES(mutex);
  const std::shared_ptr<Listener>& listener_of(const Active& active) const REQUIRES(mutex);
  void show(SimAccess::When when, const Active& active, Run run) const REQUIRES(mutex);
  void note(SimEvent::What what, std::uint64_t operation, std::uint64_t offset = 0,
            std::uint64_t length = 0, Errc code = Errc{}) REQUIRES(mutex);

  ManualClock& clock_ GUARDED_BY(mutex);
  const SimOptions options_;  // but for the faults and the delay, see below
  SimFaults faults_ GUARDED_BY(mutex);
  Duration delay_max_ GUARDED_BY(mutex);
  SimObserver observer_ GUARDED_BY(mutex);
  Prng prng_ GUARDED_BY(mutex);
  std::uint32_t next_domain_ GUARDED_BY(mutex) = 0;
  std::uint64_t next_operation_ GUARDED_BY(mutex) = 1;
  std::map<std::uint32_t, std::uint16_t> next_port_ GUARDED_BY(mutex);
  std::map<std::uint32_t, std::uint64_t> next_key_ GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Region>> regions_ GUARDED_BY(mutex);  // open ones
  std::vector<std::pair<std::uint32_t, RKey>> closed_keys_ GUARDED_BY(mutex);
  std::vector<std::shared_ptr<Listener>> listeners_ GUARDED_BY(mutex);  // open ones
  std::uint64_t listeners_changed_ GUARDED_BY(mutex) = 1;
  std::vector<std::unique_ptr<Active>> operations_ GUARDED_BY(mutex);
  std::map<std::string, std::size_t> ready_ GUARDED_BY(mutex);  // completions, by name
  std::vector<std::size_t> runnable_ GUARDED_BY(mutex);         // scratch of step()
  std::vector<SimEvent> trace_ GUARDED_BY(mutex);
};

}  // namespace farlift::fabric::sim
