// World: real nodes and real clients over a simulated fabric, network, clock and Valkey, on one
// thread and from one seed; faults strike, checkers look after every step (spec kv 12).
//
//   World world(Plan::of(seed));
//   world.run();
//   if (world.ledger().failure()) ...
//
// Invariants: the same plan gives the same run (except where addresses are virtual ones).
// Threads:    one. Errors: the first violation stops the run; the ledger has the sentence.
#pragma once

#include "core/base/prng.h"
#include "core/fabric/sim/sim.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/sim/party.h"
#include "tests/sim/plan.h"

namespace farlift::kv::simulation {

class Checks;
class Rogue;

// Which bugs are planted; only the planted build of the libraries has any.
struct Bugs {
#ifdef FARLIFT_PLANTED_BUGS
  PlantedBug node = PlantedBug::none;
  PlantedClientBugs client;
#endif
};

class World {
 public:
  explicit World(Plan plan, Bugs bugs = {}, bool trace = false);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // The whole story: work and faults, then peace, then the ends that must be reached (L1 to L3).
  void run();

  // For directed cases.
  bool turn();  // one round of everybody; false: stopped by a violation
  bool until(const std::function<bool()>& so, Duration limit);
  void pass(Duration time);
  PutResult put(ClientParty& client, std::size_t lane, const Bytes& key, const Bytes& value,
                PutMode mode, Version expected = {});
  GetResult get(ClientParty& client, std::size_t lane, const Bytes& key,
                ReadMode mode = ReadMode::framed);
  Outcome remove(ClientParty& client, const Bytes& key);
  // The same without waiting: the lane is busy until `done` ran.
  using PutDone = std::function<void(const PutResult&)>;
  using GetDone = std::function<void(const GetResult&)>;
  void start_put(ClientParty& client, Lane& lane, PutRequest request, const Bytes& value,
                 PutDone done);
  void start_gets(ClientParty& client, Lane& lane, std::vector<GetRequest> requests, GetDone each);

  Ledger& ledger() { return ledger_; }
  Registry& registry() { return registry_; }
  std::vector<std::unique_ptr<NodeParty>>& nodes() { return nodes_; }
  std::vector<std::unique_ptr<ClientParty>>& clients() { return clients_; }
  const Plan& plan() const { return plan_; }
  Prng& prng() { return prng_; }
  ManualClock& clock() { return clock_; }
  sim::SimValkey& valkey() { return valkey_; }
  sim::SimLinks& links() { return links_; }
  fabric::sim::SimNetwork& network() { return network_; }
  std::uint64_t steps() const { return steps_; }
  std::uint64_t fingerprint() const;  // of everything that happened
  const std::map<std::string, std::uint64_t>& tally() const { return tally_; }
  void count(const std::string& what) { ++tally_[what]; }

  Bytes key(std::uint64_t number) const;
  Bytes value(std::size_t length);
  std::string tenant(std::uint64_t number) const { return "t" + std::to_string(number + 1); }
  Keyring ring(const std::string& tenant) const;
  Environment environment(const std::string& party, std::uint64_t life, const Clock& clock,
                          Directory& directory, Transport& transport, bool node);
  NodeParty* owner_of(const std::string& party, std::uint64_t life);
  void trace(const std::function<std::string()>& text);
  // What changed in the directory by a fault is nobody's unpublish.
  void directory_changed();

  // Faults, by name, also for directed cases.
  void start_node(NodeParty& party);
  void crash_node(NodeParty& party, bool silent);
  void pause_node(NodeParty& party, bool paused);
  void start_client(ClientParty& party);
  void heal();

 private:
  friend class Faults;
  bool step_parties();
  template <class Party, class Stepped>
  bool step_party(Party& party, Stepped& it);
  void advance();
  void start_operations();
  void start_operation(ClientParty& client, Lane& lane);
  void start_put(ClientParty& client, Lane& lane);
  void start_remove(ClientParty& client, Lane& lane);
  void start_look(ClientParty& client, Lane& lane);
  void finish_get(ClientParty& client, Area& area, const GetResult& result, ReadMode mode,
                  std::uint32_t min_rev);
  void revive();
  void settle();     // L1
  void reclaim();    // L2
  void put_again();  // L3
  bool write_again(ClientParty& client, const Bytes& key);
  bool idle() const;
  bool reclaimed() const;

  const Plan plan_;
  const Bugs bugs_;
  const bool tracing_;
  ManualClock clock_;
  Prng prng_;
  Ledger ledger_;
  Registry registry_;
  fabric::sim::SimNetwork network_;
  sim::SimLinks links_;
  sim::SimValkey valkey_;
  std::vector<std::unique_ptr<NodeParty>> nodes_;
  std::vector<std::unique_ptr<ClientParty>> clients_;
  std::unique_ptr<Checks> checks_;
  std::vector<std::unique_ptr<Rogue>> rogues_;
  std::unique_ptr<class Faults> faults_;
  std::map<Name, Version> latest_;  // as last heard; for mode C
  std::map<std::string, std::uint64_t> tally_;
  std::uint64_t operations_ = 0;
  std::uint64_t next_value_ = 1;
  bool peace_ = false;  // healed: nothing strikes any more
  std::uint64_t steps_ = 0;
  std::uint64_t lives_ = 0;
  std::uint64_t naps_ = 0;
  std::uint64_t heard_ = 0;  // mixed outcomes, for the fingerprint
};

}  // namespace farlift::kv::simulation
