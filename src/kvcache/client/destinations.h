// Destinations: where reads that were not reported yet may land. Two reads into the same bytes
// would each be checked as it lands and then be overwritten by the other, so that one of them is
// reported ok over bytes that are not its own.
//
// Invariants: what is claimed is disjoint. Threads: the loop's. Errors: claim() returns false.
#pragma once

#include "core/base/assert.h"

#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <span>

namespace farlift::kv::client {

class Destinations {
 public:
  // False: some of it is claimed already.
  bool claim(std::span<const std::byte> part) {
    if (part.empty()) return true;
    const std::byte* const end = part.data() + part.size();
    const auto after = by_start_.lower_bound(part.data());
    if (after != by_start_.end() && std::less<>()(after->first, end)) return false;
    if (after != by_start_.begin() && std::less<>()(part.data(), std::prev(after)->second)) {
      return false;
    }
    by_start_.emplace_hint(after, part.data(), end);
    return true;
  }
  void release(std::span<const std::byte> part) {
    if (part.empty()) return;
    const auto gone = by_start_.erase(part.data());
    ASSERT(gone == 1);
  }

 private:
  std::map<const std::byte*, const std::byte*> by_start_;  // to the end
};

}  // namespace farlift::kv::client
