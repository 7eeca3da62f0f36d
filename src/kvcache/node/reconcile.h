// Reconcile: compares the manifest with the directory, every reconcile_every and after the
// directory came back (spec kv 8.4), so that lost publishes, deletes and overwrites are found.
//
// Invariants: a published slot whose key no longer names it is quarantined, at once when a later
//             revision is there, else when a second pass finds it missing too (a replica may lag).
//             A quarantined slot whose key still names it is unpublished by location, unless its
//             publish was unknown: then it is published after all.
// Pace:       a pass of the routine takes half of reconcile_every, spread evenly, so that a node
//             with very many values does not keep the directory and itself busy in bursts; one that
//             has a reason (soon(), suspects, a failure) goes as fast as answers come.
// Threads:    one. Errors: none; a pass that meets an error ends and comes again.
#pragma once

#include "kvcache/node/core.h"

#include <cstdint>
#include <vector>

namespace farlift::kv::node {

class Reconcile {
 public:
  static constexpr std::size_t kBatch = 128;
  static constexpr std::uint32_t kInFlightMax = 8;
  static constexpr Duration kSuspectAfter = std::chrono::seconds(10);

  explicit Reconcile(Core& core) : core_(core), due_(core.now() + core.options.reconcile_every) {}

  void soon() {
    due_ = core_.now();
    urgent_ = true;
  }
  bool step();
  Instant next_deadline() const noexcept;
  bool running() const noexcept { return running_; }

 private:
  struct Place {
    Arena* arena = nullptr;
    ArenaGen gen;
  };
  void begin();
  bool ask();
  Instant next_ask() const noexcept;
  std::vector<SlotRef> gather(Arena& arena);
  void answered(const std::vector<SlotRef>& slots, const std::vector<Result<Pair>>& pairs);
  void judge(const SlotRef& slot, const Pair& pair);
  void unpublish(const SlotRef& slot);
  void end();

  Core& core_;
  Instant due_;
  bool running_ = false;
  bool urgent_ = true;  // the next pass, or the one that runs
  bool failed_ = false;
  Instant began_{};
  std::uint64_t total_ = 0;  // slots there were at its beginning
  std::uint64_t asked_ = 0;
  bool suspects_ = false;
  std::vector<Place> places_;
  std::size_t place_ = 0;
  std::uint32_t slot_ = 0;
  std::uint32_t in_flight_ = 0;
};

}  // namespace farlift::kv::node
