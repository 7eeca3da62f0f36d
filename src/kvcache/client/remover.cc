#include "kvcache/client/remover.h"

#include "kvcache/client/placement.h"
#include "kvcache/client/validate.h"

#include <utility>

namespace farlift::kv::client {
namespace {

constexpr std::uint32_t kTriesMax = 3;  // nodes asked, the owner included

}  // namespace

void Remover::start(Bytes key, std::optional<Version> version,
                    std::function<void(Client::Removed)> done) {
  auto owned = std::make_unique<Op>();
  Op& op = *owned;
  op.id = next_++;
  op.key = std::move(key);
  op.version = version.value_or(Version());
  op.done = std::move(done);
  ops_.emplace(op.id, std::move(owned));
  starting_.push_back(op.id);
}

Remover::Op* Remover::find(OpId id) noexcept {
  const auto at = ops_.find(id);
  return at == ops_.end() ? nullptr : at->second.get();
}

void Remover::begin(Op& op) {
  timers_.set(op.id, op.due, core_.deadline());
  if (!valid_key(op.key)) return finish(op, Outcome::bad_arg);
  core_.cache.drop(op.key);
  core_.resolver.ask(op.key, [this, id = op.id](const Resolved& answer) { resolved(id, answer); });
}

void Remover::resolved(OpId id, const Resolved& answer) {
  Op* const op = find(id);
  if (op == nullptr) return;
  if (!answer.pair.ok()) return finish(*op, Outcome::control_down);
  const Verified verified = verify(core_.options, core_.keys, op->key, *answer.pair, 0);
  if (verified.outcome == Outcome::miss && !answer.pair->tag) return finish(*op, Outcome::miss);
  // What is there and cannot be believed names no owner; any node may take it away.
  if (verified.outcome != Outcome::ok) return ask_others(*op, Outcome::unreachable);
  ++op->tries;
  const Location& location = verified.descriptor.location;
  core_.links.want({location.node, location.incarnation, {}, false},
                   [this, id](Outcome outcome, NodeLink* link) { linked(id, outcome, link); });
}

void Remover::linked(OpId id, Outcome outcome, NodeLink* link) {
  Op* const op = find(id);
  if (op == nullptr) return;
  // The owner's next incarnation is a node that is up, as good as any.
  if (link == nullptr) return ask_others(*op, outcome);
  link->request(FrameType::remove, encode(RemoveRequest{op->key, op->version}),
                [this, id](const Result<Bytes>& body) { answered(id, body); });
}

void Remover::answered(OpId id, const Result<Bytes>& body) {
  Op* const op = find(id);
  if (op == nullptr) return;
  if (!body.ok()) return ask_others(*op, Outcome::unreachable);
  const auto reply = decode_outcome(*body);
  finish(*op, reply.ok() ? reply->outcome : Outcome::unreachable);
}

void Remover::ask_others(Op& op, Outcome last) {
  if (op.tries >= kTriesMax) return finish(op, last);
  if (!op.others.empty()) return try_other(op, last);
  nodes_.ask([this, id = op.id, last](const Result<NodeList::Nodes>& nodes) {
    Op* const one = find(id);
    if (one == nullptr) return;
    if (!nodes.ok()) return finish(*one, Outcome::control_down);
    one->others = place(one->key, Length(0), *nodes, Duration(0));
    try_other(*one, last);
  });
}

void Remover::try_other(Op& op, Outcome last) {
  if (op.others.empty()) return finish(op, last);
  LinkWant want;
  want.node = op.others.front().node;
  op.others.erase(op.others.begin());
  ++op.tries;
  core_.links.want(std::move(want), [this, id = op.id](Outcome outcome, NodeLink* link) {
    linked(id, outcome, link);
  });
}

void Remover::finish(Op& op, Outcome outcome) {
  core_.cache.drop(op.key);
  timers_.drop(op.id, op.due);
  core_.report([done = std::move(op.done), outcome] { done(Client::Removed{outcome}); });
  ops_.erase(op.id);
}

bool Remover::step() {
  bool moved = !starting_.empty();
  while (!starting_.empty()) {
    const OpId id = starting_.front();
    starting_.pop_front();
    if (Op* const op = find(id)) begin(*op);
  }
  while (const OpId id = timers_.due(core_.now())) {
    finish(*find(id), Outcome::timeout);
    moved = true;
  }
  return moved;
}

void Remover::end_all() {
  while (!ops_.empty()) finish(*ops_.begin()->second, Outcome::timeout);
}

}  // namespace farlift::kv::client
