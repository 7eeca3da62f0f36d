#include "kvcache/client/descriptor_cache.h"

#include <algorithm>

namespace farlift::kv::client {
namespace {

std::string_view text(ByteView key) noexcept {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

}  // namespace

const Cached* DescriptorCache::find(ByteView key, Instant now) {
  const auto at = by_key_.find(text(key));
  if (at == by_key_.end() || !at->second->present) return nullptr;
  if (!fresh(at->second->cached.asked, now)) return nullptr;
  order_.splice(order_.begin(), order_, at->second);
  return &at->second->cached;
}

DescriptorCache::Entry& DescriptorCache::touch(std::string_view key) {
  const auto at = by_key_.find(key);
  if (at != by_key_.end()) {
    order_.splice(order_.begin(), order_, at->second);
    return order_.front();
  }
  if (by_key_.size() >= entries_max_ && !order_.empty()) {
    // A drop that is forgotten counts for every key: one resolve more, never a dropped one back.
    all_dropped_ = std::max(all_dropped_, order_.back().dropped);
    by_key_.erase(order_.back().key);
    order_.pop_back();
  }
  order_.push_front(Entry{std::string(key), false, {}, 0});
  by_key_.emplace(order_.front().key, order_.begin());
  return order_.front();
}

void DescriptorCache::insert(ByteView key, const Descriptor& descriptor, Stamp stamp,
                             Instant asked) {
  if (entries_max_ == 0 || stamp <= all_dropped_) return;
  Entry& entry = touch(text(key));
  if (stamp <= entry.dropped || (entry.present && entry.cached.asked > asked)) return;
  entry.present = true;
  entry.cached = Cached{descriptor, asked};
}

void DescriptorCache::drop(ByteView key) {
  if (entries_max_ == 0) return;
  Entry& entry = touch(text(key));
  entry.present = false;
  entry.cached = {};
  entry.dropped = stamp();
}

void DescriptorCache::clear() {
  by_key_.clear();
  order_.clear();
  all_dropped_ = stamp();
}

}  // namespace farlift::kv::client
