// Pool: sealed immutable values in registered segments. reserve → fill → seal → (publish, by the
// door) → retire → reclaim. A value is never written again after seal(); its storage returns when
// the last pin is dropped.
//
//   TRY_ASSIGN(Draft draft, pool.reserve(length));
//   for (std::size_t i = 0; i < draft.extents(); ++i) ...fill draft.span(i)...
//   ObjectRef object = std::move(draft).seal(crc);      // keyspace and transfers hold ObjectRefs:
//   each is a pin
//
// Invariants: extents of one object lie in one segment, are kExtentAlign-aligned and at most
//             `chunk` long; they are adjacent (contiguous()) whenever one free run of a segment
//             could hold the value; bytes that were not filled are never readable by anyone,
//             because only seal() makes an object and seal() requires that all was filled; an
//             extent is reused only when no ObjectRef to it is left and no hold is active.
// Threads:    all of it from any thread. ObjectRef may be dropped from any thread.
// Errors:     invalid_argument: length 0; no_memory: no segment has room and the pool may not grow;
//             exhausted: the pinned-byte budget or kSegmentsMax stops growth; too_large: does not
//             fit an empty segment.
// Lifetime:   the pool outlives every Draft and ObjectRef; its destructor ASSERTs that none is
//             left.
// Fork:       hold_reclaim() before a fork, release_reclaim() when the child is gone: extents freed
//             between stay quarantined, so the child reads what was there. A child reads
//             Object::span() only.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"
#include "core/memory/segment.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace farlift::store {

inline constexpr std::uint64_t kExtentAlign = 4096;
inline constexpr std::size_t kSegmentsMax = 65536;
inline constexpr Length kSegmentLengthMax{std::uint64_t{1} << 40};

using SegmentId = StrongInt<struct SegmentIdTag, std::uint32_t>;

class Pool;
struct PoolSegment;

struct Extent {
  Offset offset;  // in the segment
  Length length;  // bytes used
};

// The storage of one value: pages of one segment, given back by the destructor. What Draft and
// Object have in common.
class Storage {
 public:
  Storage(Storage&& other) noexcept;
  Storage& operator=(Storage&& other) noexcept;
  ~Storage();

  Length length() const noexcept { return length_; }
  SegmentId segment() const noexcept;
  std::size_t extents() const noexcept { return count_; }
  std::span<std::byte> span(std::size_t extent) const noexcept;
  std::optional<std::span<std::byte>> contiguous() const noexcept;
  fabric::Registration* registration(std::size_t rail) const noexcept;
  Length footprint() const noexcept;  // alignment included

 private:
  friend class Pool;
  friend class Object;
  Storage(PoolSegment& segment, Length length) noexcept : segment_(&segment), length_(length) {}

  PoolSegment* segment_;                 // null when moved from
  std::unique_ptr<Extent[]> scattered_;  // null when contiguous
  Offset first_;                         // when contiguous
  Length length_;
  std::uint32_t count_ = 0;
};

class Draft;

// A sealed value. Held by shared_ptr only; each holder is a pin. 80 bytes of bookkeeping, allocator
// overhead included, when contiguous.
class Object {
 public:
  class Seal {  // only a Draft can make one
    friend class Draft;
    Seal() = default;
  };
  Object(Seal, Storage storage, Crc32c crc) noexcept;
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  Length length() const noexcept { return storage_.length(); }
  Crc32c crc() const noexcept { return crc_; }
  SegmentId segment() const noexcept { return storage_.segment(); }
  std::size_t extents() const noexcept { return storage_.extents(); }
  std::span<const std::byte> span(std::size_t extent) const noexcept {
    return storage_.span(extent);
  }
  // The whole value as one span, where its extents are adjacent (nearly always).
  std::optional<std::span<const std::byte>> contiguous() const noexcept;
  // For the fabric, which takes non-const spans and does not write through them in an
  // OpKind::write.
  std::span<std::byte> lend(std::size_t extent) const noexcept { return storage_.span(extent); }
  fabric::Registration* registration(std::size_t rail) const noexcept {
    return storage_.registration(rail);
  }
  // Bytes of storage taken, alignment included.
  Length footprint() const noexcept { return storage_.footprint(); }

  // Fills a draft of the same length with this value and checks what arrived: checksum when it is
  // not crc().
  Status copy_into(Draft& draft) const;

 private:
  const Storage storage_;
  const Crc32c crc_;
};
using ObjectRef = std::shared_ptr<const Object>;

// Reserved, not yet sealed; dropping it returns the storage.
class Draft {
 public:
  Length length() const noexcept { return storage_.length(); }
  SegmentId segment() const noexcept { return storage_.segment(); }
  std::size_t extents() const noexcept { return storage_.extents(); }
  std::span<std::byte> span(std::size_t extent) const noexcept { return storage_.span(extent); }
  std::optional<std::span<std::byte>> contiguous() const noexcept { return storage_.contiguous(); }
  fabric::Registration* registration(std::size_t rail) const noexcept {
    return storage_.registration(rail);
  }
  // Fills the draft from `bytes`, which are as long as it is; the CRC of what arrived.
  Crc32c fill(std::span<const std::byte> bytes) noexcept;
  // Everything was filled and `crc` is that of the bytes.
  ObjectRef seal(Crc32c crc) &&;

 private:
  friend class Pool;
  explicit Draft(Storage storage) noexcept : storage_(std::move(storage)) {}
  Storage storage_;
};

struct PoolStats {
  std::uint64_t objects = 0;  // live Objects, drafts not counted
  std::uint32_t segments = 0;
  std::uint32_t draining_segments = 0;
  Length allocated;  // by drafts, objects and the quarantine, alignment included
  Length quarantined;
  Length capacity;
  std::uint64_t expands = 0;
  std::uint64_t shrinks = 0;
};

struct PoolOptions {
  Length segment_size;  // multiple of kExtentAlign
  Length chunk_size;    // longest extent; multiple of kExtentAlign
  memory::MappingOptions mapping;
  // Asked before each growth, with the bytes of one segment; false refuses (maxmemory). From the
  // reserving thread, without pool locks.
  std::function<bool(Length)> may_grow = [](Length) { return true; };
};

class Pool {
 public:
  // Creates the first segment. `rails` and `budget` outlive the pool and every ObjectRef.
  static Result<std::unique_ptr<Pool>> create(std::vector<fabric::Domain*> rails,
                                              const PoolOptions& options,
                                              memory::PinnedBudget& budget);
  ~Pool();

  Result<Draft> reserve(Length length);  // grows on demand, one segment at a time
  bool fits_one_segment(Length length) const noexcept;
  static bool fits_one_segment(Length length, Length segment_size, Length chunk_size) noexcept;

  Status expand();  // one segment, ahead of demand
  // Shrinking. begin_drain(): picks the least used segment that is not the last one in use, and
  // stops placing values there; its id, or not_found. The door then drops the keys of that segment
  // (Object::segment()). end_drain(): returns the segment when it is empty (true), or false while
  // pins or the quarantine hold pages of it. cancel_drain(): places values there again. Naming a
  // segment that is not draining is an ASSERT.
  Result<SegmentId> begin_drain();
  bool end_drain(SegmentId id);
  void cancel_drain(SegmentId id);

  // Nest; the quarantine is freed when the last hold is released.
  void hold_reclaim();
  void release_reclaim();

  PoolStats stats() const;
  Length segment_size() const noexcept;
  Length chunk_size() const noexcept;

 private:
  friend class Storage;
  friend class Object;
  friend struct PoolSegment;
  struct Impl;
  explicit Pool(std::unique_ptr<Impl> impl);
  static void give_back(Storage& storage) noexcept;
  static Storage storage_in(PoolSegment& segment, Length length) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace farlift::store
