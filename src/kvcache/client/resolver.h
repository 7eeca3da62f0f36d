// Resolver: gathers keys that want their pair from the directory into batches and keeps several
// batches under way (spec kv 9.2, "pipeline MGETs").
//
// Invariants: each ask() is answered once, from step() of the directory, unless the Resolver goes
//             first. `asked` and `stamp` were taken just before the batch was sent (L counts from
//             there). At most kBatchesMax batches are out.
// Threads:    the loop's. Errors: those of Directory::resolve.
#pragma once

#include "kvcache/client/counters.h"
#include "kvcache/client/descriptor_cache.h"
#include "kvcache/control/environment.h"

#include <deque>
#include <functional>
#include <memory>
#include <string>

namespace farlift::kv::client {

struct Resolved {
  Result<Pair> pair;
  Stamp stamp = 0;
  Instant asked;
};

class Resolver {
 public:
  static constexpr std::size_t kBatchKeysMax = 128;
  static constexpr std::size_t kBatchesMax = 16;

  Resolver(const Environment& environment, std::string tenant, DescriptorCache& cache,
           Counters& counters)
      : environment_(environment), tenant_(std::move(tenant)), cache_(cache), counters_(counters) {}

  using OnResolved = std::function<void(const Resolved&)>;
  void ask(const Bytes& key, OnResolved done);
  bool step();

 private:
  struct Ask {
    Bytes key;
    OnResolved done;
  };
  void send();

  const Environment& environment_;
  const std::string tenant_;
  DescriptorCache& cache_;
  Counters& counters_;
  std::deque<Ask> asks_;
  std::size_t batches_ = 0;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace farlift::kv::client
