#include "kvcache/client/resolver.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace farlift::kv::client {

void Resolver::ask(const Bytes& key, OnResolved done) {
  asks_.push_back(Ask{key, std::move(done)});
}

bool Resolver::step() {
  bool moved = false;
  while (!asks_.empty() && batches_ < kBatchesMax) {
    send();
    moved = true;
  }
  return moved;
}

void Resolver::send() {
  const std::size_t count = std::min(asks_.size(), kBatchKeysMax);
  std::vector<Bytes> keys;
  auto waiting = std::make_shared<std::vector<OnResolved>>();
  keys.reserve(count);
  waiting->reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(std::move(asks_.front().key));
    waiting->push_back(std::move(asks_.front().done));
    asks_.pop_front();
  }
  ++batches_;
  ++counters_.resolve_calls;
  counters_.resolved_keys += count;
  const Stamp stamp = cache_.stamp();
  const Instant asked = environment_.clock.now();
  environment_.directory.resolve(
      tenant_, std::move(keys),
      [this, waiting, stamp, asked,
       alive = std::weak_ptr<int>(alive_)](std::vector<Result<Pair>> pairs) {
        if (alive.expired()) return;
        --batches_;
        for (std::size_t i = 0; i < waiting->size(); ++i) {
          Result<Pair> pair = i < pairs.size()
                                  ? std::move(pairs[i])
                                  : Result<Pair>(Error::make(Errc::protocol, "kv resolve"));
          (*waiting)[i](Resolved{std::move(pair), stamp, asked});
        }
      });
}

}  // namespace farlift::kv::client
