// Timers: what is due later, on the loop's own thread and clock.
//
// Invariants: run() calls what is due, in order of its time and then of its making; a call may add
//             timers. Nothing can be taken back: users look at their own state when called.
// Threads:    one. Errors: none.
#pragma once

#include "core/base/clock.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace farlift::kv::node {

class Timers {
 public:
  void at(Instant when, std::function<void()> call) {
    heap_.push_back({when, next_++, std::move(call)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }
  bool run(Instant now) {
    bool any = false;
    while (!heap_.empty() && heap_.front().when <= now) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const std::function<void()> call = std::move(heap_.back().call);
      heap_.pop_back();
      call();
      any = true;
    }
    return any;
  }
  Instant next() const noexcept { return heap_.empty() ? Instant::max() : heap_.front().when; }

 private:
  struct Timer {
    Instant when;
    std::uint64_t number;
    std::function<void()> call;
  };
  static bool later(const Timer& a, const Timer& b) noexcept {
    return std::pair(a.when, a.number) > std::pair(b.when, b.number);
  }
  std::vector<Timer> heap_;
  std::uint64_t next_ = 0;
};

}  // namespace farlift::kv::node
