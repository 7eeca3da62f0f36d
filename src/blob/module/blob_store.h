// BlobStore: the pool of segments under the server's memory rules (spec blob 8.1, 8.2 and the fork
// hazard of 9).
//
// Invariants: every segment is charged to the server's used_memory by an allocation of the same
//             size that is never touched (the segment itself is a shared mapping the allocator does
//             not know); storage that was freed is reused only after the main thread has seen it
//             with no snapshot child alive, so a child never reads bytes that were overwritten,
//             whatever thread dropped the last reference and however close to the fork.
// Threads:    main only, except live_in() and note_*(), which any thread may call.
// Errors:     reserve(): no_memory (the pool may not grow), too_large.
#pragma once

#include "blob/module/settings.h"
#include "core/base/mutex.h"
#include "core/memory/budget.h"
#include "core/store/pool.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace farlift::blob {

class BlobStore {
 public:
  // `rails` and `settings` outlive the store.
  static Result<std::unique_ptr<BlobStore>> create(std::vector<fabric::Domain*> rails,
                                                   const Settings& settings);
  ~BlobStore();

  enum class Growth {
    within_maxmemory,
    at_any_cost
  };  // replicas and loaders must not diverge for want of a limit
  Result<store::Draft> reserve(Length length, Growth growth);

  // Puts freed storage back into use. Called between commands.
  void settle();
  void child_born() { child_alive_ = true; }
  void child_died() { child_alive_ = false; }

  // Growing ahead of demand and shrinking under pressure; one step per call.
  void scale();
  // The segment whose values are being given up, if any. Commands treat its values as missing.
  std::optional<store::SegmentId> draining() const noexcept { return draining_; }
  // Ends the drain once the segment is empty: true when it was returned.
  bool try_end_drain();
  void cancel_drain();

  // Values the keyspace holds, by segment.
  void note_value(store::SegmentId segment);
  void note_value_gone(store::SegmentId segment);
  std::uint64_t live_in(store::SegmentId segment) const;
  std::uint64_t live() const;

  store::PoolStats stats() const { return pool_->stats(); }
  Length segment_size() const noexcept { return pool_->segment_size(); }

 private:
  BlobStore(const Settings& settings, Length pinned_max)
      : settings_(settings), budget_(pinned_max) {}
  bool may_grow(Length bytes) const;
  void charge();  // makes the charges match the segments

  const Settings& settings_;
  memory::PinnedBudget budget_;
  std::unique_ptr<store::Pool> pool_;
  std::vector<void*> charges_;
  bool child_alive_ = false;
  bool grow_at_any_cost_ = false;
  std::optional<store::SegmentId> draining_;
  mutable Mutex mutex_;
  std::map<store::SegmentId, std::uint64_t> live_ GUARDED_BY(mutex_);
};

}  // namespace farlift::blob
