// Remover: deletes keys (spec kv 8.1). The owner is asked first, since it knows the slot; when it
// is gone or cannot be told, any node that is up.
//
// Invariants: the key is dropped from the cache before and after. Threads: the loop's.
// Errors:     MISS: nothing there; UNREACHABLE, CONTROL_DOWN, TIMEOUT: unknown.
#pragma once

#include "kvcache/client/core.h"
#include "kvcache/client/node_list.h"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace farlift::kv::client {

class Remover {
 public:
  Remover(Core& core, NodeList& nodes) : core_(core), nodes_(nodes) {}
  void start(Bytes key, std::optional<Version> version, std::function<void(Client::Removed)> done);
  bool step();
  Instant next_deadline() const noexcept { return timers_.next(); }
  void end_all();

 private:
  struct Op {
    OpId id = 0;
    Bytes key;
    Version version;  // none: any
    std::function<void(Client::Removed)> done;
    Instant due;
    std::vector<NodeRecord> others;
    std::uint32_t tries = 0;
  };
  Op* find(OpId id) noexcept;
  void begin(Op& op);
  void resolved(OpId id, const Resolved& answer);
  void ask_others(Op& op, Outcome last);
  void try_other(Op& op, Outcome last);
  void linked(OpId id, Outcome outcome, NodeLink* link);
  void answered(OpId id, const Result<Bytes>& body);
  void finish(Op& op, Outcome outcome);

  Core& core_;
  NodeList& nodes_;
  OpId next_ = 1;
  std::map<OpId, std::unique_ptr<Op>> ops_;
  std::deque<OpId> starting_;
  Timers timers_;
};

}  // namespace farlift::kv::client
