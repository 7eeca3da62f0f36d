// NodeList: the live node records, asked for when they are older than the nodes renew them.
//
// Threads: the loop's; callbacks from step() of the directory, or at once when the list is fresh.
// Errors:  of Directory::list_nodes.
#pragma once

#include "kvcache/control/environment.h"

#include <functional>
#include <memory>
#include <vector>

namespace farlift::kv::client {

class NodeList {
 public:
  explicit NodeList(const Environment& environment) : environment_(environment) {}
  using Nodes = std::vector<NodeRecord>;
  using OnNodes = std::function<void(const Result<Nodes>&)>;
  // Not older than `since`, or at most by as much as a request that was under way then.
  void ask(OnNodes done, Instant since = {});
  // What was said of the nodes turned out wrong: ask again next time.
  void forget() noexcept { known_ = false; }

 private:
  const Environment& environment_;
  bool known_ = false;
  Instant asked_;
  Nodes nodes_;
  bool asking_ = false;
  std::vector<OnNodes> waiting_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace farlift::kv::client
