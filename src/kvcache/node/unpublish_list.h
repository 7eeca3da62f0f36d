// UnpublishList: `unpublish L` for every slot of one manifest (spec kv 8.2, steps 3 and 9).
//
// Invariants: P11: by location. At most kInFlightMax are out. Each slot is asked for again until
// the
//             directory answered for certain; giving_up (step 3) stops at the first that it did
//             not: step 9 asks again.
// Threads:    one. Errors: none.
#pragma once

#include "kvcache/node/core.h"

#include <memory>

namespace farlift::kv::node {

class UnpublishList {
 public:
  static constexpr std::uint32_t kInFlightMax = 64;
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);

  // `slots` outlives the list and does not change.
  UnpublishList(Core& core, const Tenant& tenant, const Slots& slots, const Location& arena_base,
                bool giving_up);
  bool step();  // true when anything was asked
  bool done() const noexcept;
  Instant next_deadline() const noexcept;

 private:
  struct State {
    std::uint32_t next = 0;
    std::uint32_t in_flight = 0;
    std::uint32_t again_from = UINT32_MAX;  // the first that was not answered
    Instant not_before{};
    bool gave_up = false;
  };
  static void answered(Core& core, State& state, bool giving_up, std::uint32_t index,
                       const UnpublishReply& reply);

  Core& core_;
  const Tenant& tenant_;
  const Slots& slots_;
  const Location base_;  // addr: of the arena's first byte
  const bool giving_up_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace farlift::kv::node
