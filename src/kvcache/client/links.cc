#include "kvcache/client/links.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace farlift::kv::client {
namespace {

// A node that did not answer is not greeted again at the same place for this long: each attempt
// costs its callers up to a control timeout.
constexpr Duration kRefusalPause = std::chrono::milliseconds(100);

bool same_place(const NodeRecord& a, const NodeRecord& b) noexcept {
  return a.host == b.host && a.port == b.port && a.incarnation == b.incarnation;
}

}  // namespace

Links::~Links() { close_all(); }

bool Links::serves(const NodeLink& link, const LinkWant& want) noexcept {
  return link.state() == NodeLink::State::up &&
         (!want.incarnation || *want.incarnation == link.incarnation()) &&
         (!want.as_target || link.as_target());
}

NodeLink* Links::ready(NodeId node, Incarnation incarnation) noexcept {
  const auto at = slots_.find(node);
  if (at == slots_.end() || at->second.link == nullptr) return nullptr;
  NodeLink* const link = at->second.link.get();
  return serves(*link, {node, incarnation, {}, false}) ? link : nullptr;
}

void Links::want(LinkWant want, OnLink done) {
  Slot& slot = slots_[want.node];
  slot.waiting.push_back(Waiting{std::move(want), std::move(done), false});
}

bool Links::step_frames() {
  bool moved = false;
  for (auto& [node, slot] : slots_) {
    if (slot.candidate != nullptr) moved = slot.candidate->step_frames() || moved;
    if (slot.link != nullptr) moved = slot.link->step_frames() || moved;
    moved = step(node, slot) || moved;
  }
  for (std::size_t i = 0; i < leaving_.size(); ++i) moved = leaving_[i]->step_frames() || moved;
  return sweep() || moved;
}

bool Links::step_engines() {
  bool moved = false;
  each([&moved](NodeLink& link) { moved = link.step_engines() || moved; });
  return moved;
}

bool Links::step(NodeId node, Slot& slot) {
  bool moved = settle_candidate(slot);
  if (slot.link != nullptr && slot.link->state() == NodeLink::State::down) {
    leave(std::move(slot.link));
    moved = true;
  }
  moved = serve_waiting(slot) || moved;
  if (!slot.waiting.empty() && slot.candidate == nullptr && !slot.finding) {
    find(node, slot);
    moved = true;
  }
  return moved;
}

// A candidate that got through takes the place of the link that was there: gracefully when both
// lead to the same incarnation, else the old one leads nowhere.
bool Links::settle_candidate(Slot& slot) {
  if (slot.candidate == nullptr || slot.candidate->state() == NodeLink::State::greeting) {
    return false;
  }
  std::unique_ptr<NodeLink> candidate = std::move(slot.candidate);
  if (candidate->state() == NodeLink::State::down) {
    slot.refused = candidate->record();
    slot.not_before = context_.environment.clock.now() + kRefusalPause;
    leave(std::move(candidate));
    fail_waiting(slot, Outcome::unreachable, true);
    return true;
  }
  if (slot.link != nullptr) {
    if (slot.link->incarnation() != candidate->incarnation()) slot.link->cut("the node restarted");
    leave(std::move(slot.link));
  }
  slot.link = std::move(candidate);
  serve_waiting(slot);
  fail_waiting(slot, Outcome::stale, true);
  return true;
}

bool Links::serve_waiting(Slot& slot) {
  if (slot.link == nullptr || slot.waiting.empty()) return false;
  std::vector<Waiting> served;
  std::vector<Waiting> left;
  for (Waiting& waiting : slot.waiting) {
    (serves(*slot.link, waiting.want) ? served : left).push_back(std::move(waiting));
  }
  slot.waiting = std::move(left);
  for (Waiting& waiting : served) waiting.done(Outcome::ok, slot.link.get());
  return !served.empty();
}

// Those whose want nothing can meet any more; not `all`: only those that asked before the record
// came.
bool Links::fail_waiting(Slot& slot, Outcome outcome, bool all) {
  std::vector<Waiting> failed;
  std::vector<Waiting> left;
  for (Waiting& waiting : slot.waiting) {
    (all || waiting.asked ? failed : left).push_back(std::move(waiting));
  }
  slot.waiting = std::move(left);
  NodeLink* const link = outcome == Outcome::stale ? slot.link.get() : nullptr;
  for (Waiting& waiting : failed) waiting.done(outcome, link);
  return !failed.empty();
}

void Links::find(NodeId node, Slot& slot) {
  for (Waiting& waiting : slot.waiting) waiting.asked = true;
  for (const Waiting& waiting : slot.waiting) {
    if (waiting.want.record && (slot.link == nullptr || !waiting.want.incarnation)) {
      const NodeRecord record = *waiting.want.record;
      return on_record(node, std::optional<NodeRecord>(record));
    }
  }
  slot.finding = true;
  context_.environment.directory.find_node(
      node, [this, node,
             alive = std::weak_ptr<int>(alive_)](const Result<std::optional<NodeRecord>>& found) {
        if (alive.expired()) return;
        slots_[node].finding = false;
        on_record(node, found);
      });
}

void Links::on_record(NodeId node, const Result<std::optional<NodeRecord>>& found) {
  Slot& slot = slots_[node];
  if (!found.ok()) {
    fail_waiting(slot, Outcome::control_down, false);
    return;
  }
  const bool another = found->has_value() && (*found)->node != node;
  if (!found->has_value() || another) {
    fail_waiting(slot, Outcome::unreachable, false);
    return;
  }
  const NodeRecord& record = **found;
  // The link proved this incarnation and still stands: who wants another one holds a dead one. A
  // put that wants to be pulled from asks for a new link all the same.
  if (slot.link != nullptr && slot.link->state() == NodeLink::State::up &&
      slot.link->incarnation() == record.incarnation) {
    const bool target_wanted =
        std::any_of(slot.waiting.begin(), slot.waiting.end(), [&](const Waiting& waiting) {
          return waiting.want.as_target &&
                 (!waiting.want.incarnation || *waiting.want.incarnation == record.incarnation);
        });
    if (!target_wanted || slot.link->as_target()) {
      fail_waiting(slot, Outcome::stale, false);
      return;
    }
  }
  greet(slot, record);
}

void Links::greet(Slot& slot, const NodeRecord& record) {
  const Instant now = context_.environment.clock.now();
  if (now < slot.not_before && same_place(record, slot.refused)) {
    fail_waiting(slot, Outcome::unreachable, false);
    return;
  }
  const bool as_target =
      std::any_of(slot.waiting.begin(), slot.waiting.end(),
                  [](const Waiting& waiting) { return waiting.want.as_target; }) ||
      (slot.link != nullptr && slot.link->as_target());
  auto candidate = NodeLink::connect(context_, record, as_target);
  if (!candidate.ok()) {
    ++context_.counters.links_refused;
    fail_waiting(slot, Outcome::unreachable, false);
    return;
  }
  slot.candidate = std::move(candidate).value();
}

void Links::leave(std::unique_ptr<NodeLink> link) { leaving_.push_back(std::move(link)); }

bool Links::sweep() {
  const auto gone = std::stable_partition(leaving_.begin(), leaving_.end(),
                                          [](const auto& link) { return !link->unused(); });
  const bool moved = gone != leaving_.end();
  std::vector<std::unique_ptr<NodeLink>> over(std::make_move_iterator(gone),
                                              std::make_move_iterator(leaving_.end()));
  leaving_.erase(gone, leaving_.end());
  return moved;
}

std::vector<int> Links::wait_fds() const {
  std::vector<int> fds;
  const auto add = [&fds](const NodeLink& link) {
    const auto own = link.wait_fds();
    fds.insert(fds.end(), own.begin(), own.end());
  };
  for (const auto& [node, slot] : slots_) {
    if (slot.link != nullptr) add(*slot.link);
  }
  for (const auto& link : leaving_) add(*link);
  return fds;
}

bool Links::must_poll() const noexcept {
  const auto polls = [](const auto& link) { return link != nullptr && link->must_poll(); };
  return std::any_of(leaving_.begin(), leaving_.end(), polls) ||
         std::any_of(slots_.begin(), slots_.end(),
                     [&](const auto& one) { return polls(one.second.link); });
}

Instant Links::next_deadline() const noexcept {
  Instant next = Instant::max();
  for (const auto& [node, slot] : slots_) {
    if (slot.candidate != nullptr) next = std::min(next, slot.candidate->next_deadline());
  }
  return next;
}

void Links::close_all() {
  for (auto& [node, slot] : slots_) {
    if (slot.candidate != nullptr) slot.candidate->close(nullptr);
    if (slot.link != nullptr) slot.link->close(nullptr);
  }
  for (const auto& link : leaving_) link->close(nullptr);
}

}  // namespace farlift::kv::client
