#include "kvcache/node/drain.h"

#include "kvcache/node/capability.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

void Drain::begin() {
  if (state_ != State::idle) return;
  core_.draining = true;
  state_ = State::asking;
  core_.directory().list_nodes(core_.guarded([this](const Result<std::vector<NodeRecord>>& nodes) {
    if (nodes.ok()) {
      for (const NodeRecord& node : *nodes) {
        const bool other = node.node != core_.options.id;
        if (other && node.state == NodeRecord::State::up) nodes_.push_back(node.node);
      }
    }
    gather();
    state_ = State::moving;
  }));
}

void Drain::gather() {
  if (nodes_.empty()) return;
  for (const auto& arena : core_.arenas) {
    if (arena->state() != ArenaState::active) continue;
    for (std::uint32_t i = 0; i < arena->slots().size(); ++i) {
      const Slot& slot = arena->slots()[SlotIndex(i)];
      if (slot.state() == SlotState::published && slot.heat > 0) {
        hot_.push_back(arena->ref(SlotIndex(i)));
      }
    }
  }
}

bool Drain::step() {
  switch (state_) {
    case State::idle:
    case State::asking:
    case State::gone:
      return false;
    case State::moving: {
      bool any = false;
      while (in_flight_ < kInFlightMax && next_ < hot_.size()) {
        const SlotRef slot = hot_[next_++];
        if (!slot.valid() || slot.slot().state() != SlotState::published) continue;
        ++in_flight_;
        any = true;
        start(std::make_shared<Move>(Move{slot, rank(slot.slot().key_hash), 0}));
      }
      if (in_flight_ > 0 || next_ < hot_.size()) return any;
      for (const auto& arena : core_.arenas) rotation_.begin(*arena);
      state_ = State::rotating;
      return true;
    }
    case State::rotating:
      if (!all_rotated()) return false;
      state_ = State::retracting;
      announcer_.retract([this] { state_ = State::gone; });
      return true;
    case State::retracting:
      return false;
  }
  return false;
}

// Puts that were under way when it began may have filled an arena after it was looked at.
bool Drain::all_rotated() const {
  bool all = rotation_.purges() == 0;
  for (const auto& arena : core_.arenas) {
    if (arena->state() == ArenaState::lost) continue;
    if (arena->state() == ArenaState::active && arena->slots().size() > 0) rotation_.begin(*arena);
    all = all && arena->state() == ArenaState::active && arena->slots().size() == 0;
  }
  return all;
}

// Rendezvous: the same key finds the same node while the nodes are the same.
std::vector<NodeId> Drain::rank(KeyHash hash) const {
  std::vector<std::pair<std::uint64_t, NodeId>> scored;
  for (const NodeId node : nodes_) {
    std::uint64_t x = hash.raw() ^ (node.raw() * 0x9E3779B97F4A7C15u);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    scored.emplace_back(x ^ (x >> 31), node);
  }
  std::sort(scored.rbegin(), scored.rend());
  std::vector<NodeId> nodes;
  for (const auto& [score, node] : scored) {
    if (nodes.size() < kNodesTried) nodes.push_back(node);
  }
  return nodes;
}

void Drain::start(std::shared_ptr<Move> move) {
  const SlotRef& slot = move->slot;
  if (!slot.valid() || slot.slot().state() != SlotState::published ||
      move->next == move->nodes.size()) {
    --in_flight_;
    return;
  }
  PutPullRequest request;
  core_.environment.random(request.put_id);
  request.key = to_bytes(slot.arena->slots().key(slot.index));
  request.length = Length(slot.slot().length);
  request.crc = slot.slot().crc;
  request.source = slot.arena->base() + slot.slot().payload();
  for (std::size_t rail = 0; rail < slot.arena->rails(); ++rail) {
    request.source_rkeys.push_back(slot.arena->registration(rail)->key());
  }
  request.mode = PutMode::if_version;
  request.expected = slot.slot().version;
  const NodeId node = move->nodes[move->next++];
  peers_.call(*slot.arena->owner(), node, FrameType::put_pull, encode(request),
              core_.guarded([this, move](const Result<Frame>& frame) { moved(move, frame); }));
}

void Drain::moved(const std::shared_ptr<Move>& move, const Result<Frame>& frame) {
  Outcome outcome = Outcome::unreachable;
  if (frame.ok()) {
    const auto reply = decode_put_reply(frame->body);
    if (reply.ok()) outcome = reply->outcome;
  }
  if (outcome == Outcome::ok) core_.counters.add(Count::moved_away);
  if (outcome == Outcome::ok || outcome == Outcome::conflict) {
    --in_flight_;
    return;
  }
  start(move);
}

}  // namespace farlift::kv::node
