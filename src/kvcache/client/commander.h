// Commander: a frame for one named node and its answer, for operators (STAT, ROTATE, DRAIN; spec kv
// 5). No key is involved, so nothing is cached or dropped.
//
// Threads: the loop's. Errors: UNREACHABLE, CONTROL_DOWN, TIMEOUT; else the body is the node's.
#pragma once

#include "kvcache/client/core.h"

#include <deque>
#include <functional>
#include <map>

namespace farlift::kv::client {

class Commander {
 public:
  explicit Commander(Core& core) : core_(core) {}
  void start(NodeId node, FrameType type, Bytes body, std::function<void(Client::Answer)> done);
  bool step();
  Instant next_deadline() const noexcept { return timers_.next(); }
  void end_all();

 private:
  struct Op {
    NodeId node;
    FrameType type{};
    Bytes body;
    std::function<void(Client::Answer)> done;
    Instant due;
  };
  void linked(OpId id, Outcome outcome, NodeLink* link);
  void finish(OpId id, Client::Answer answer);

  Core& core_;
  OpId next_ = 1;
  std::map<OpId, Op> ops_;
  std::deque<OpId> starting_;
  Timers timers_;
};

}  // namespace farlift::kv::client
