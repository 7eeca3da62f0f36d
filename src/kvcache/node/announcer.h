// Announcer: keeps the node's record alive in the directory (spec kv 2, 6) and tells from the
// answers whether the directory is there.
//
// Invariants: before the first record the last one is read, so that the port of the earlier
//             incarnation is not used again and is remembered; a record that somebody restored is
//             written over within kNodeRenew. When an arena is writable again the record says so
//             within kSoonest: clients put where a record tells of room.
// Threads:    one. Errors: none; it tries again.
#pragma once

#include "kvcache/node/core.h"

#include <functional>

namespace farlift::kv::node {

class Announcer {
 public:
  static constexpr Duration kSoonest = std::chrono::milliseconds(100);

  // `port` says where the node listens; `avoid` moves it off a port, where it may.
  Announcer(Core& core, std::function<std::uint16_t()> port,
            std::function<void(std::uint16_t)> avoid)
      : core_(core), port_(std::move(port)), avoid_(std::move(avoid)), started_(core.now()) {}

  bool step();
  void retract(std::function<void()> done);  // and no more records
  Instant next_deadline() const noexcept;
  bool announced() const noexcept { return announced_; }

 private:
  enum class State : std::uint8_t { looking, announcing, retracting, retracted };
  void look();
  void announce();
  NodeRecord record() const;

  Core& core_;
  std::function<std::uint16_t()> port_;
  std::function<void(std::uint16_t)> avoid_;
  std::function<void()> retracted_;
  const Instant started_;
  State state_ = State::looking;
  bool waiting_ = false;
  bool announced_ = false;
  std::uint16_t last_port_ = 0;
  Instant due_{};
  Instant told_{};
};

}  // namespace farlift::kv::node
