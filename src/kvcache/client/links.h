// Links: at most one link in use for each node, made when somebody wants it (liveness, spec kv
// 9.4). A want ends as ok, or as
//   stale         HELLO proved another incarnation than was wanted (or an established link to the
//                 incarnation that the node's record still names did)
//   unreachable   no record, no connection, no answer in time, a proof that fails
//   control_down  the record cannot be asked for
//
// Invariants: records are hints: what a link says of itself was proven by HELLO. Links that are
//             replaced finish what they have; links that went down are kept until nothing of theirs
//             can be reported any more.
// Threads:    the loop's; callbacks run from step(). A NodeLink& handed out is valid while
//             something is out on it or waits in its window.
// Errors:     outcomes, as above.
#pragma once

#include "kvcache/client/node_link.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace farlift::kv::client {

struct LinkWant {
  NodeId node;
  std::optional<Incarnation> incarnation;  // empty: whichever it is
  std::optional<NodeRecord> record;        // known already, fresh enough
  bool as_target = false;
};

class Links {
 public:
  explicit Links(const LinkContext& context) : context_(context) {}
  ~Links();

  // The established link, when that is what is wanted.
  NodeLink* ready(NodeId node, Incarnation incarnation) noexcept;
  // `link` is null unless ok, or stale: then it leads to the incarnation that does live.
  using OnLink = std::function<void(Outcome, NodeLink*)>;
  void want(LinkWant want, OnLink done);

  bool step_frames();
  bool step_engines();
  // Every link that is established or still has something out.
  template <class Call>
  void each(Call call) {
    for (auto& [node, slot] : slots_) {
      if (slot.link != nullptr) call(*slot.link);
    }
    for (auto& link : leaving_) call(*link);
  }
  std::vector<int> wait_fds() const;
  bool must_poll() const noexcept;
  Instant next_deadline() const noexcept;
  // Operations that are never reported keep their links' engines alive until then.
  void close_all();

 private:
  struct Waiting {
    LinkWant want;
    OnLink done;
    bool asked = false;  // a record that was asked for after it came tells about it
  };
  struct Slot {
    std::unique_ptr<NodeLink> link;       // established
    std::unique_ptr<NodeLink> candidate;  // greeting
    bool finding = false;
    std::vector<Waiting> waiting;
    // Where greeting failed a moment ago; not tried again before `not_before`.
    NodeRecord refused;
    Instant not_before;
  };

  static bool serves(const NodeLink& link, const LinkWant& want) noexcept;
  bool step(NodeId node, Slot& slot);
  bool settle_candidate(Slot& slot);
  bool serve_waiting(Slot& slot);
  void find(NodeId node, Slot& slot);
  void on_record(NodeId node, const Result<std::optional<NodeRecord>>& found);
  void greet(Slot& slot, const NodeRecord& record);
  bool fail_waiting(Slot& slot, Outcome outcome, bool all);
  void leave(std::unique_ptr<NodeLink> link);
  bool sweep();

  const LinkContext& context_;
  std::map<NodeId, Slot> slots_;
  std::vector<std::unique_ptr<NodeLink>> leaving_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace farlift::kv::client
