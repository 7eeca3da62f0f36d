#include "kvcache/client/node_list.h"

#include <utility>

namespace farlift::kv::client {

void NodeList::ask(OnNodes done, Instant since) {
  const Instant now = environment_.clock.now();
  if (known_ && now - asked_ <= kNodeRenew && asked_ >= since) return done(nodes_);
  waiting_.push_back(std::move(done));
  if (asking_) return;
  asking_ = true;
  environment_.directory.list_nodes(
      [this, now, alive = std::weak_ptr<int>(alive_)](const Result<Nodes>& nodes) {
        if (alive.expired()) return;
        asking_ = false;
        known_ = nodes.ok();
        if (nodes.ok()) nodes_ = *nodes;
        asked_ = now;
        const auto waiting = std::move(waiting_);
        waiting_.clear();
        for (const OnNodes& one : waiting) one(nodes);
      });
}

}  // namespace farlift::kv::client
