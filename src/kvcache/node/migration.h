// Migration: copies of hot survivors into another arena of the tenant, before theirs is rotated
// (spec kv 8.2 step 2).
//
// Invariants: P15: the copy has the bytes (CRC checked as copied), version, key hash and length of
//             its source; it is published only in place of that version. The source stays readable.
//             Whatever fails, the copy's slot is given back, or kept if it may be visible.
// Threads:    one, the Worker's beside. Errors: none; what cannot be moved is lost to the cache.
#pragma once

#include "kvcache/node/capability.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace farlift::kv::node {

class Migration {
 public:
  static constexpr std::uint32_t kInFlightMax = 8;

  // `all`: also what nobody touched.
  Migration(Core& core, Arena& source, bool all);
  void step();  // starts what may be started
  bool done() const noexcept { return state_->in_flight == 0 && next_ == candidates_.size(); }

  // Worth it: less than half of what was filled lives on, and some of it is read.
  static bool wanted(const Arena& arena);

 private:
  struct State {
    std::uint32_t in_flight = 0;
  };
  struct Copy {
    SlotRef from;
    SlotRef to;
    Tenant* tenant = nullptr;
    std::shared_ptr<State> state;
  };
  static void copied(Core& core, const Copy& copy, Crc32c crc);
  static void answered(Core& core, const Copy& copy, const PublishReply& reply);

  Core& core_;
  Arena& source_;
  std::vector<SlotIndex> candidates_;
  std::size_t next_ = 0;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace farlift::kv::node
