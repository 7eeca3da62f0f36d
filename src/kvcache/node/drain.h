// Drain: the node leaves (spec kv 8.3): hot values are put on other nodes, by the protocol and as a
// client, in mode C on their version; then every arena rotates, and the record goes.
//
// Invariants: nothing is allocated meanwhile. A value that finds no other node is lost to the cache
//             and to nothing else. The new owner tells us SUPERSEDED.
// Threads:    one. Errors: none.
#pragma once

#include "kvcache/node/announcer.h"
#include "kvcache/node/peers.h"
#include "kvcache/node/rotation.h"

#include <memory>
#include <vector>

namespace farlift::kv::node {

class Drain {
 public:
  static constexpr std::uint32_t kInFlightMax = 8;
  static constexpr std::size_t kNodesTried = 3;

  Drain(Core& core, Peers& peers, Rotation& rotation, Announcer& announcer)
      : core_(core), peers_(peers), rotation_(rotation), announcer_(announcer) {}

  void begin();
  bool step();
  bool done() const noexcept { return state_ == State::gone; }

 private:
  enum class State : std::uint8_t { idle, asking, moving, rotating, retracting, gone };
  struct Move {
    SlotRef slot;
    std::vector<NodeId> nodes;  // best first
    std::size_t next = 0;
  };
  void gather();
  void start(std::shared_ptr<Move> move);
  void moved(const std::shared_ptr<Move>& move, const Result<Frame>& frame);
  std::vector<NodeId> rank(KeyHash hash) const;
  bool all_rotated() const;

  Core& core_;
  Peers& peers_;
  Rotation& rotation_;
  Announcer& announcer_;
  State state_ = State::idle;
  std::vector<NodeId> nodes_;
  std::vector<SlotRef> hot_;
  std::size_t next_ = 0;
  std::uint32_t in_flight_ = 0;
};

}  // namespace farlift::kv::node
