// Reader: the read path (spec kv 9), one operation at a time from cache or resolve to validation.
//
//   start -> [cached] ------------------> link -> bounds -> turn -> posted -> landed -> report
//         -> resolve -> verify ---------> |                                     |
//            ^------------- one retry, after ACCESS, flush or BAD_* <----------'
//
// Invariants: nothing is posted but what was verified for this very key, over a link that proved
//             the descriptor's incarnation (P8, P9, P10), and not from an entry older than L (P16).
//             An operation whose parts are out is reported when all of them are quiet (P13); at
//             T_op its link is closed first.
// Threads:    the loop's. Errors: outcomes of spec kv 9.
#pragma once

#include "core/base/prng.h"
#include "kvcache/client/core.h"
#include "kvcache/client/destinations.h"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace farlift::kv::client {

enum class ReadPurpose : std::uint8_t { get, look };  // look: steps 1 to 4, nothing is read

class Reader {
 public:
  Reader(Core& core, std::uint64_t seed) : core_(core), prng_(seed) {}

  // `memory`: that the destination lies in; null where there is none.
  void start(ReadPurpose purpose, GetRequest request, std::shared_ptr<Landing> memory,
             std::function<void(GetResult)> done);

  bool step();     // begins, posts, and ends what is late
  bool collect();  // takes what landed; after Links::step_engines()
  Instant next_deadline() const noexcept;
  // After Links::close_all(): what is left ends as timeout.
  void end_all();

 private:
  enum class Phase : std::uint8_t { resolving, linking, waiting, posted };
  struct Op {
    OpId id = 0;
    ReadPurpose purpose = ReadPurpose::get;
    GetRequest request;
    std::function<void(GetResult)> done;
    std::shared_ptr<Landing> memory;
    Phase phase = Phase::resolving;
    Instant deadline;  // of the whole
    Instant due;       // of what it does now
    std::uint32_t reads = 0;
    Cached found;
    std::optional<Descriptor> refused;  // by the node's card
    std::span<std::byte> header;
    NodeLink* link = nullptr;  // while posted
    bool late = false;         // T_op passed
    bool claimed = false;      // its destination
  };

  Op* find(OpId id) noexcept;
  void begin(Op& op);
  void resolve(Op& op);
  void resolved(OpId id, const Resolved& answer);
  void to_link(Op& op);
  void linked(OpId id, Outcome outcome, NodeLink* link);
  void tell_stale(const Op& op, NodeLink& link, const Location& location);
  void at_link(Op& op, NodeLink& link);
  bool pump(NodeLink& link);
  bool may_post(const NodeLink::Window& window, const Op& op) const noexcept;
  bool post(Op& op, NodeLink& link);
  void landed(OpId id, const Moved& moved);
  void failed(Op& op, Outcome outcome, bool retry);
  void finish(Op& op, Outcome outcome);
  void drop(Op& op);
  void expire(Op& op);
  void sample(NodeLink& link, KeyHash hash);
  bool touch();
  void lease(const Location& location);

  Core& core_;
  Prng prng_;
  OpId next_ = 1;
  std::unordered_map<OpId, std::unique_ptr<Op>> ops_;
  std::deque<OpId> starting_;
  Destinations destinations_;
  std::vector<std::pair<OpId, Moved>> landed_;
  Timers timers_;
  Instant touch_at_;
  bool touches_wait_ = false;
  std::map<std::tuple<NodeId, Incarnation, ArenaId>, Instant> leases_;
};

}  // namespace farlift::kv::client
