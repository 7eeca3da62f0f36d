// Writer: the client's half of the write path (spec kv 7): choose a node, then have it pull the
// value (PUT_PULL), or push it (ALLOC, write, SEAL).
//
//   start -> checksum -> nodes -> link -> PUT_PULL ------------------> report
//                          ^        \--> ALLOC -> write -> SEAL ---/
//                          '--- FULL, UNREACHABLE: the next node, nodes_tried_max in all
//
// Invariants: a put is reported after the node answered, or after every endpoint through which the
//             node could still read the source is closed (7.2a). One put_id for all tries on one
//             node, so that a repeat over a new link gives the first outcome. Every put ends within
//             twice the operation limit and the control timeout of start(), also one of a batch
//             that did not get its turn: TIMEOUT then, and nothing was sent.
// Threads:    the loop's. Errors: outcomes of spec kv 9. UNREACHABLE and TIMEOUT of a put that was
//             under way do not say whether it was published.
#pragma once

#include "kvcache/client/core.h"
#include "kvcache/client/node_list.h"

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace farlift::kv::client {

class Writer {
 public:
  Writer(Core& core, NodeList& nodes) : core_(core), nodes_(nodes) {}

  // `memory`: that the source lies in; null where there is none.
  void start(PutRequest request, std::shared_ptr<Landing> memory,
             std::function<void(PutResult)> done);
  bool step();
  bool collect();  // takes what was written; after Links::step_engines()
  Instant next_deadline() const noexcept { return timers_.next(); }
  bool hashing() const noexcept { return !hashing_.empty(); }  // step() has work now
  void end_all();

 private:
  enum class Phase : std::uint8_t { waiting, hashing, placing, linking, asked, writing };
  struct Op {
    OpId id = 0;
    PutRequest request;
    std::function<void(PutResult)> done;
    std::shared_ptr<Landing> memory;
    Phase phase = Phase::waiting;
    Instant deadline;
    Instant due;
    std::size_t hashed = 0;
    Crc32c crc;
    std::vector<NodeRecord> nodes;
    std::size_t at = 0;  // index into nodes
    PutId put_id{};
    bool resent = false;
    bool asked_anew = false;  // where there is room
    Incarnation incarnation;  // that the put was sent to; 0: not sent yet
    NodeLink* link = nullptr;
    std::uint64_t slot_id = 0;
    bool active = false;
    bool late = false;
  };

  Op* find(OpId id) noexcept;
  bool may_begin(const Op& op) const noexcept;
  bool admit();
  void begin(Op& op);
  bool hash_some();
  void place_op(Op& op);
  void placed(OpId id, const Result<NodeList::Nodes>& nodes);
  void try_node(Op& op);
  void linked(OpId id, Outcome outcome, NodeLink* link);
  void pull(Op& op, NodeLink& link);
  void alloc(Op& op, NodeLink& link);
  void allocated(OpId id, const Result<Bytes>& body);
  void write(Op& op, const AllocReply& slot);
  void written(OpId id, const Moved& moved);
  void seal(Op& op);
  void answered(OpId id, const Result<Bytes>& body);
  void next_node(Op& op, Outcome outcome);
  void lost(Op& op);
  void expire(Op& op);
  void finish(Op& op, Outcome outcome, Version version = {}, const char* why = "");

  Core& core_;
  NodeList& nodes_;
  OpId next_ = 1;
  std::map<OpId, std::unique_ptr<Op>> ops_;
  std::deque<OpId> waiting_;  // for a place among the active ones
  std::size_t active_ = 0;
  std::uint64_t active_bytes_ = 0;
  std::deque<OpId> hashing_;
  std::vector<std::pair<OpId, Moved>> written_;
  Timers timers_;
};

}  // namespace farlift::kv::client
