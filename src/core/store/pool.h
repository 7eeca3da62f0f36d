// Pool: sealed immutable values in registered segments. reserve → fill → seal → (publish, by the door) → retire →
// reclaim. A value is never written again after seal(); its storage returns when the last pin is dropped.
//
//   TRY_ASSIGN(Draft draft, pool.reserve(length));
//   for (std::span<std::byte> piece : draft.spans()) ...fill...
//   ObjectRef object = std::move(draft).seal(crc);      // keyspace and transfers hold ObjectRefs: each is a pin
//
// Invariants: extents of one object lie in one segment, are kExtentAlign-aligned and at most `chunk` long; bytes that
//             were not filled are never readable by anyone, because only seal() makes an object and seal() requires
//             that all was filled; an extent is reused only when no ObjectRef to it is left and no hold is active.
// Threads:    all of it from any thread. ObjectRef may be dropped from any thread.
// Errors:     no_memory: no segment has room and the pool may not grow; too_large: does not fit an empty segment.
// Fork:       hold_reclaim() before a fork, release_reclaim() when the child is gone: extents freed between stay
//             quarantined, so the child reads what was there. A child uses Object::spans() only.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "core/memory/segment.h"

namespace farlift::store {

inline constexpr std::uint64_t kExtentAlign = 4096;

using SegmentId = StrongInt<struct SegmentIdTag, std::uint32_t>;

class Pool;
struct PoolSegment;

struct Extent {
  Offset offset;  // in the segment
  Length length;  // bytes used
};

// A sealed value. Held by shared_ptr only; each holder is a pin.
class Object {
 public:
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Length length() const noexcept { return length_; }
  Crc32c crc() const noexcept { return crc_; }
  SegmentId segment() const noexcept;
  std::size_t extents() const noexcept { return extents_.size(); }
  std::span<const std::byte> span(std::size_t extent) const noexcept;
  // For the fabric, which takes non-const spans and does not write through them in an OpKind::write.
  std::span<std::byte> lend(std::size_t extent) const noexcept;
  fabric::Registration* registration(std::size_t rail) const noexcept;
  // Bytes of storage taken, alignment included.
  Length footprint() const noexcept;

 private:
  friend class Draft;
  Object(std::shared_ptr<PoolSegment> segment, std::vector<Extent> extents, Length length, Crc32c crc);
  const std::shared_ptr<PoolSegment> segment_;
  const std::vector<Extent> extents_;
  const Length length_;
  const Crc32c crc_;
};
using ObjectRef = std::shared_ptr<const Object>;

// Reserved, not yet sealed; dropping it returns the storage.
class Draft {
 public:
  Draft(Draft&&) noexcept;
  Draft& operator=(Draft&&) noexcept;
  ~Draft();
  Length length() const noexcept { return length_; }
  std::size_t extents() const noexcept { return extents_.size(); }
  std::span<std::byte> span(std::size_t extent) const noexcept;
  fabric::Registration* registration(std::size_t rail) const noexcept;
  ObjectRef seal(Crc32c crc) &&;

 private:
  friend class Pool;
  Draft(std::shared_ptr<PoolSegment> segment, std::vector<Extent> extents, Length length);
  void drop() noexcept;
  std::shared_ptr<PoolSegment> segment_;
  std::vector<Extent> extents_;
  Length length_;
};

struct PoolStats {
  std::uint64_t objects = 0;           // live Objects, drafts not counted
  std::uint32_t segments = 0;
  std::uint32_t draining_segments = 0;
  Length allocated;                    // by drafts, objects and the quarantine, alignment included
  Length quarantined;
  Length capacity;
  std::uint64_t expands = 0;
  std::uint64_t shrinks = 0;
};

struct PoolOptions {
  Length segment_size;                  // multiple of kExtentAlign
  Length chunk_size;                    // longest extent; multiple of kExtentAlign
  memory::MappingOptions mapping;
  // Asked before each growth, with the bytes of one segment; false refuses (maxmemory). From the reserving thread,
  // without pool locks.
  std::function<bool(Length)> may_grow = [](Length) { return true; };
};

class Pool {
 public:
  // Creates the first segment. `rails` and `budget` outlive the pool and every ObjectRef.
  static Result<std::unique_ptr<Pool>> create(std::vector<fabric::Domain*> rails, const PoolOptions& options,
                                              memory::PinnedBudget& budget);
  ~Pool();

  Result<Draft> reserve(Length length);          // grows on demand, one segment at a time
  bool fits_one_segment(Length length) const noexcept;
  static bool fits_one_segment(Length length, Length segment_size, Length chunk_size) noexcept;

  Status expand();                               // one segment, ahead of demand
  // Shrinking. begin_drain(): picks the least used segment that is not the last, and stops placing values there; its
  // id, or not_found. The door then drops the keys of that segment. end_drain(): returns the segment when it is empty
  // (true), or false while pins are left. cancel_drain(): places values there again.
  Result<SegmentId> begin_drain();
  bool end_drain(SegmentId id);
  void cancel_drain(SegmentId id);

  void hold_reclaim();
  void release_reclaim();

  PoolStats stats() const;
  Length segment_size() const noexcept;
  Length chunk_size() const noexcept;

 private:
  struct Impl;
  explicit Pool(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace farlift::store
