// Faults: what strikes a world while it works (spec kv 11, 12). Each strike is drawn from the
// plan's weights.
//
// Threads: one. Errors: none; what a fault breaks is the world's to survive.
#pragma once

#include "tests/sim/world.h"

namespace farlift::kv::simulation {

class Faults {
 public:
  explicit Faults(World& world);
  // Strikes when it is time, and brings back what was to come back. True: something changed.
  bool step();
  Instant next() const;

 private:
  struct Strike {
    std::uint32_t weight = 0;
    const char* name = "";
    void (Faults::*strike)() = nullptr;
  };
  NodeParty& any_node();
  ClientParty& any_client();
  Name any_name();
  Duration some(Duration at_most);
  bool come_back();

  void partition();
  void lose_links();
  void pause();
  void crash();
  void crash_client();
  void valkey_down();
  void fail_over();
  void flush_all();
  void evict();
  void evict_half();
  void forge();
  void replay();
  void swap();
  void across_tenants();
  void jump();
  void rotate();
  void rotate_all();
  void hand_over();
  void drain();
  void reconcile();
  void put_pair(const Name& name, const std::optional<Bytes>& descriptor,
                const std::optional<Bytes>& tag);

  World& world_;
  std::vector<Strike> strikes_;
  Instant due_;
  Instant heal_links_ = Instant::max();
  Instant valkey_up_ = Instant::max();
};

}  // namespace farlift::kv::simulation
