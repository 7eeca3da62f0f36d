#include "kvcache/client/commander.h"

#include <utility>

namespace farlift::kv::client {

void Commander::start(NodeId node, FrameType type, Bytes body,
                      std::function<void(Client::Answer)> done) {
  const OpId id = next_++;
  ops_.emplace(id, Op{node, type, std::move(body), std::move(done), {}});
  starting_.push_back(id);
}

void Commander::linked(OpId id, Outcome outcome, NodeLink* link) {
  const auto at = ops_.find(id);
  if (at == ops_.end()) return;
  if (link == nullptr) return finish(id, {outcome, {}});
  link->request(at->second.type, std::move(at->second.body), [this, id](Result<Bytes> body) {
    if (!body.ok()) return finish(id, {Outcome::unreachable, {}});
    finish(id, {Outcome::ok, std::move(body).value()});
  });
}

void Commander::finish(OpId id, Client::Answer answer) {
  const auto at = ops_.find(id);
  if (at == ops_.end()) return;
  timers_.drop(id, at->second.due);
  core_.report([done = std::move(at->second.done), answer = std::move(answer)] { done(answer); });
  ops_.erase(at);
}

bool Commander::step() {
  bool moved = !starting_.empty();
  while (!starting_.empty()) {
    const OpId id = starting_.front();
    starting_.pop_front();
    const auto at = ops_.find(id);
    if (at == ops_.end()) continue;
    timers_.set(id, at->second.due, core_.deadline());
    LinkWant want;
    want.node = at->second.node;
    core_.links.want(std::move(want),
                     [this, id](Outcome outcome, NodeLink* link) { linked(id, outcome, link); });
  }
  while (const OpId id = timers_.due(core_.now())) {
    finish(id, {Outcome::timeout, {}});
    moved = true;
  }
  return moved;
}

void Commander::end_all() {
  while (!ops_.empty()) finish(ops_.begin()->first, {Outcome::timeout, {}});
}

}  // namespace farlift::kv::client
