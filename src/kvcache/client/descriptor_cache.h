// DescriptorCache: verified descriptors by key, bounded, least recently used out first (spec kv
// 9.1). Private to one client and never authoritative.
//
//   const Stamp stamp = cache.stamp();                     // just before a resolve is sent
//   ... the reply ... cache.insert(key, descriptor, stamp, sent_at);
//   if (const Cached* hit = cache.find(key, now)) ...
//
// Invariants: what find() returns was resolved at most `lease` ago, counted from before its resolve
//             was sent (L; P16), and no drop() of the key came after that resolve was sent: a reply
//             that overtakes a put, a remove or a failed read does not bring the old one back.
// Threads:    the loop's. Errors: none.
#pragma once

#include "core/base/clock.h"
#include "kvcache/wire/layout.h"

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace farlift::kv::client {

using Stamp = std::uint64_t;  // order of resolves and drops

struct Cached {
  Descriptor descriptor;
  Instant asked;  // just before the resolve was sent
};

class DescriptorCache {
 public:
  DescriptorCache(std::size_t entries_max, Duration lease)
      : entries_max_(entries_max), lease_(lease) {}

  Stamp stamp() noexcept { return ++last_; }
  const Cached* find(ByteView key, Instant now);
  void insert(ByteView key, const Descriptor& descriptor, Stamp stamp, Instant asked);
  void drop(ByteView key);
  void clear();
  bool fresh(Instant asked, Instant now) const noexcept { return now - asked <= lease_; }
  std::size_t size() const noexcept { return by_key_.size(); }

 private:
  struct Entry {
    std::string key;
    bool present = false;  // else only remembers when it was dropped
    Cached cached;
    Stamp dropped = 0;
  };
  using Order = std::list<Entry>;  // most recently used first

  Entry& touch(std::string_view key);

  const std::size_t entries_max_;
  const Duration lease_;
  Stamp last_ = 0;
  Stamp all_dropped_ = 0;  // drops that were forgotten, and clear(): nothing older comes in
  Order order_;
  std::unordered_map<std::string_view, Order::iterator> by_key_;  // views into order_
};

}  // namespace farlift::kv::client
