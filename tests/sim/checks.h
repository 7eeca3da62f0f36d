// Checks: the invariants of spec kv 12 that can be seen from outside, after every step and at every
// access of the fabric.
//
// Threads: one. Errors: Ledger::fail().
#pragma once

#include "core/fabric/sim/sim.h"

#include <map>
#include <optional>
#include <set>

#include "tests/sim/world.h"

namespace farlift::kv::simulation {

class Checks {
 public:
  explicit Checks(World& world) : world_(world) {}

  void access(const fabric::sim::SimAccess& access);  // P2, P5, P8, P9, P10, P12, P13, P16
  void after_step();                                  // P11, and now and then the nodes
  void nodes();                                       // P2, P3, P5, P6, P7, P14
  void started(const NodeParty& party);               // P8: an incarnation is never seen again
  void lane_quiet(const ClientParty& client,
                  const Lane& lane);  // P13: guards and what was reported
  void directory_changed();
  void end_of_calm_world();  // accounting: the directory names no retired generation

 private:
  struct Found {
    NodeParty* party = nullptr;
    ArenaId arena;
    ArenaGen gen;
    node::ArenaState state{};
    std::size_t offset = 0;
  };
  Found find_arena(std::span<const std::byte> bytes) const;
  static bool inside(std::span<const std::byte> part, std::span<const std::byte> whole);
  std::pair<ClientParty*, Area*> find_area(std::span<const std::byte> bytes) const;
  const node::SlotView* slot_at(const std::vector<node::SlotView>& slots, const Found& found,
                                std::span<const std::byte> bytes) const;
  void posted(const fabric::sim::SimAccess& access);
  static std::optional<Instant> told(const ClientParty& client, const Area& area,
                                     const Record& record);
  void posted_into(const ClientParty& client, const Area& area, const Record& record);
  void moving(const fabric::sim::SimAccess& access);
  void arena(NodeParty& party, const node::ArenaView& view);
  void slots(NodeParty& party, const node::ArenaView& view,
             const std::vector<node::SlotView>& slots);
  void slot(NodeParty& party, const node::SlotView& slot);
  void kept(NodeParty& party, const node::ArenaView& view,
            const std::vector<node::SlotView>& slots);
  void registrations(NodeParty& party, const node::ArenaView& view,
                     const std::vector<node::SlotView>& slots);
  void disjoint();
  void directory();

  World& world_;
  std::map<std::uint64_t, std::pair<Incarnation, ArenaGen>> admitted_;  // by operation
  std::set<Incarnation> incarnations_;
  using Life = std::pair<std::string, std::uint64_t>;
  std::map<std::pair<Life, std::size_t>, std::map<RKey, std::pair<ArenaId, ArenaGen>>> arena_keys_;
  std::map<std::pair<Life, std::size_t>, std::vector<std::pair<RKey, const std::byte*>>> grants_;
  struct Watched {
    Name name;
    std::string descriptor;  // its key in the directory
    std::optional<Bytes> before;
  };
  std::vector<Watched> watched_;
  std::uint64_t revision_ = 0;  // of the directory, when it was looked at
  Instant expires_{};           // and may have changed by itself
  std::uint64_t ticks_ = 0;
  node::ArenaView view_;               // used again and again
  std::vector<node::SlotView> slots_;  // so is this
};

}  // namespace farlift::kv::simulation
