// Evictor: decides which arenas to rotate so that puts find room (spec kv 8.3).
//
// Invariants: the unit is the arena. Above high_percent of the quota it rotates the lowest scores
//             until low_percent would be left; who was told FULL gets one rotation at least. Score
//             is live bytes x heat; the oldest goes first among equals. Nobody waits for it.
// Threads:    one. Errors: none.
#pragma once

#include "kvcache/node/rotation.h"

namespace farlift::kv::node {

class Evictor {
 public:
  static constexpr Duration kEvery = std::chrono::milliseconds(100);
  static constexpr Duration kCoolEvery = std::chrono::minutes(1);
  static constexpr std::uint32_t kCooledPerStep = 1u << 16;

  Evictor(Core& core, Rotation& rotation) : core_(core), rotation_(rotation) {}

  bool step();
  Instant next_deadline() const noexcept {
    return cooling_ ? core_.now() : std::min(due_, cool_due_);
  }

 private:
  bool relieve(Tenant& tenant);
  bool evict(Tenant& tenant, Length& taken);
  bool hand_over(Tenant& tenant);
  bool cool();

  Core& core_;
  Rotation& rotation_;
  Instant due_{};
  Instant cool_due_ = core_.now() + kCoolEvery;
  bool cooling_ = false;
  std::size_t cool_arena_ = 0;
  std::uint32_t cool_slot_ = 0;
};

}  // namespace farlift::kv::node
