#include "core/store/pool.h"

#include "core/base/assert.h"
#include "core/base/mutex.h"
#include "core/digest/crc32c.h"
#include "core/store/page_map.h"

#include <algorithm>
#include <atomic>
#include <limits>

namespace farlift::store {
namespace {

constexpr std::uint32_t pages_of(Length length) noexcept {
  return static_cast<std::uint32_t>((length.raw() + kExtentAlign - 1) / kExtentAlign);
}
static_assert(kSegmentLengthMax.raw() / kExtentAlign <= std::numeric_limits<std::uint32_t>::max());

constexpr Length length_of(std::uint64_t pages) noexcept { return Length(pages * kExtentAlign); }
constexpr Offset offset_of(std::uint32_t page) noexcept {
  return Offset(std::uint64_t{page} * kExtentAlign);
}
constexpr std::uint32_t page_at(Offset offset) noexcept {
  return static_cast<std::uint32_t>(offset.raw() / kExtentAlign);
}

}  // namespace

// `map` and `draining` are guarded by the pool's mutex; the rest never changes.
struct PoolSegment {
  PoolSegment(Pool::Impl& owner, SegmentId number, std::unique_ptr<memory::Segment> backing,
              std::uint32_t pages)
      : pool(owner), id(number), memory(std::move(backing)), map(pages) {}

  Pool::Impl& pool;
  const SegmentId id;
  const std::unique_ptr<memory::Segment> memory;
  PageMap map;
  bool draining = false;
};

struct Pool::Impl {
  std::vector<fabric::Domain*> rails;
  PoolOptions options;
  memory::PinnedBudget* budget = nullptr;
  std::atomic<std::uint64_t> objects{0};

  // Taken by whoever grows the pool, around the slow part (mapping and registering); before
  // `mutex`.
  Mutex grow_mutex;

  mutable Mutex mutex;
  std::vector<std::unique_ptr<PoolSegment>> segments GUARDED_BY(mutex);
  std::uint32_t next_id GUARDED_BY(mutex) = 0;
  std::uint32_t holds GUARDED_BY(mutex) = 0;
  std::uint64_t expands GUARDED_BY(mutex) = 0;
  std::uint64_t shrinks GUARDED_BY(mutex) = 0;

  std::optional<Storage> place(Length length) EXCLUDES(mutex);
  std::optional<Storage> place_locked(Length length) REQUIRES(mutex);
  Status add_segment(std::optional<Length> then_place, std::optional<Storage>* placed)
      REQUIRES(grow_mutex);
  Result<Storage> grow_and_place(Length length);
  auto find(SegmentId id) REQUIRES(mutex);
};

// The fullest segment with a free run that is long enough, so that the others can drain; else the
// fullest that has the pages in pieces. Two numbers a segment are looked at, which for a thousand
// segments is a microsecond.
std::optional<Storage> Pool::Impl::place_locked(Length length) {
  const std::uint32_t pages = pages_of(length);
  PoolSegment* whole = nullptr;
  PoolSegment* pieces = nullptr;
  for (const auto& segment : segments) {
    const PageMap& map = segment->map;
    if (segment->draining || map.free() < pages) continue;
    if (map.longest() >= pages && (whole == nullptr || map.free() < whole->map.free()))
      whole = segment.get();
    if (pieces == nullptr || map.free() < pieces->map.free()) pieces = segment.get();
  }
  PoolSegment* const chosen = whole != nullptr ? whole : pieces;
  if (chosen == nullptr) return std::nullopt;
  return Pool::storage_in(*chosen, length);
}

std::optional<Storage> Pool::Impl::place(Length length) {
  MutexLock lock(mutex);
  return place_locked(length);
}

// The segment has enough free pages and its pool's mutex is held. noexcept: a half-made Storage
// must not unwind into give_back(), which takes the mutex.
Storage Pool::storage_in(PoolSegment& segment, Length length) noexcept {
  const std::uint32_t chunk = pages_of(segment.pool.options.chunk_size);
  std::uint32_t left = pages_of(length);
  Storage storage(segment, length);
  if (const auto first = segment.map.take(left)) {
    storage.first_ = offset_of(*first);
    storage.count_ = (left + chunk - 1) / chunk;
    return storage;
  }
  std::vector<Extent> extents;
  Length rest = length;
  while (left > 0) {
    const std::uint32_t now = std::min({left, chunk, segment.map.longest()});
    ASSERT(now > 0);
    const Length used = std::min(rest, length_of(now));
    extents.push_back({offset_of(*segment.map.take(now)), used});
    left -= now;
    rest -= used;
  }
  storage.count_ = static_cast<std::uint32_t>(extents.size());
  storage.scattered_ = std::make_unique<Extent[]>(extents.size());
  std::copy(extents.begin(), extents.end(), storage.scattered_.get());
  return storage;
}

void Pool::give_back(Storage& storage) noexcept {
  PoolSegment& segment = *storage.segment_;
  Impl& pool = segment.pool;
  MutexLock lock(pool.mutex);
  const auto give = [&segment, held = pool.holds > 0](Offset offset, Length length) {
    if (held) {
      segment.map.quarantine(page_at(offset), pages_of(length));
    } else {
      segment.map.give(page_at(offset), pages_of(length));
    }
  };
  if (storage.scattered_ == nullptr) {
    give(storage.first_, storage.length_);
  } else {
    for (std::size_t i = 0; i < storage.count_; ++i)
      give(storage.scattered_[i].offset, storage.scattered_[i].length);
  }
}

Status Pool::Impl::add_segment(std::optional<Length> then_place, std::optional<Storage>* placed) {
  {
    MutexLock lock(mutex);
    if (segments.size() >= kSegmentsMax)
      return Error::make(Errc::exhausted, "segments of the pool");
  }
  TRY_ASSIGN(auto memory, memory::Segment::create(rails, options.segment_size,
                                                  fabric::Access::local, *budget, options.mapping));
  MutexLock lock(mutex);
  auto segment = std::make_unique<PoolSegment>(*this, SegmentId(next_id++), std::move(memory),
                                               pages_of(options.segment_size));
  if (then_place) placed->emplace(Pool::storage_in(*segment, *then_place));
  segments.push_back(std::move(segment));
  return {};
}

// One thread grows; the others wait for it and look again, so that a burst of writers makes one
// segment, not many. The new segment serves the one that made it before anybody else sees it.
Result<Storage> Pool::Impl::grow_and_place(Length length) {
  const bool allowed = options.may_grow(options.segment_size);
  MutexLock growing(grow_mutex);
  std::optional<Storage> placed = place(length);
  if (placed) return *std::move(placed);
  if (!allowed) return Error::make(Errc::no_memory, "pool may not grow");
  TRY(add_segment(length, &placed));
  MutexLock lock(mutex);
  ++expands;
  return *std::move(placed);
}

auto Pool::Impl::find(SegmentId id) {
  const auto at =
      std::find_if(segments.begin(), segments.end(), [id](const auto& s) { return s->id == id; });
  ASSERT(at != segments.end() && (*at)->draining);
  return at;
}

Storage::Storage(Storage&& other) noexcept
    : segment_(std::exchange(other.segment_, nullptr)),
      scattered_(std::move(other.scattered_)),
      first_(other.first_),
      length_(other.length_),
      count_(other.count_) {}

Storage& Storage::operator=(Storage&& other) noexcept {
  std::swap(segment_, other.segment_);
  std::swap(scattered_, other.scattered_);
  std::swap(first_, other.first_);
  std::swap(length_, other.length_);
  std::swap(count_, other.count_);
  return *this;
}

Storage::~Storage() {
  if (segment_ != nullptr) Pool::give_back(*this);
}

SegmentId Storage::segment() const noexcept { return segment_->id; }

std::span<std::byte> Storage::span(std::size_t extent) const noexcept {
  ASSERT(segment_ != nullptr && extent < count_);
  const std::span<std::byte> all = segment_->memory->bytes();
  if (scattered_ != nullptr)
    return all.subspan(scattered_[extent].offset.raw(), scattered_[extent].length.raw());
  const std::uint64_t chunk = segment_->pool.options.chunk_size.raw();
  const std::uint64_t from = extent * chunk;
  return all.subspan(first_.raw() + from, std::min(chunk, length_.raw() - from));
}

std::optional<std::span<std::byte>> Storage::contiguous() const noexcept {
  ASSERT(segment_ != nullptr);
  if (scattered_ != nullptr) return std::nullopt;
  return segment_->memory->bytes().subspan(first_.raw(), length_.raw());
}

fabric::Registration* Storage::registration(std::size_t rail) const noexcept {
  return segment_->memory->registration(rail);
}

// Only the last extent can end inside a page.
Length Storage::footprint() const noexcept { return length_of(pages_of(length_)); }

Object::Object(Seal, Storage storage, Crc32c crc) noexcept
    : storage_(std::move(storage)), crc_(crc) {
  storage_.segment_->pool.objects.fetch_add(1, std::memory_order_relaxed);
}

// Counted out while the storage still keeps the pool from going.
Object::~Object() { storage_.segment_->pool.objects.fetch_sub(1, std::memory_order_relaxed); }

std::optional<std::span<const std::byte>> Object::contiguous() const noexcept {
  const auto whole = storage_.contiguous();
  if (!whole) return std::nullopt;
  return std::span<const std::byte>(*whole);
}

Status Object::copy_into(Draft& draft) const {
  ASSERT(draft.length() == length());
  digest::Crc32cStream crc;
  std::size_t to = 0;
  std::span<std::byte> room = draft.span(0);
  for (std::size_t from = 0; from < extents(); ++from) {
    std::span<const std::byte> bytes = span(from);
    while (!bytes.empty()) {
      if (room.empty()) room = draft.span(++to);
      const std::size_t now = std::min(bytes.size(), room.size());
      crc.append(digest::crc32c_copy(room, bytes.first(now)), Length(now));
      bytes = bytes.subspan(now);
      room = room.subspan(now);
    }
  }
  if (crc.value() != crc_) return Error::make(Errc::checksum, "copy of a stored value");
  return {};
}

Crc32c Draft::fill(std::span<const std::byte> bytes) noexcept {
  ASSERT(Length(bytes.size()) == length());
  digest::Crc32cStream crc;
  for (std::size_t extent = 0; extent < extents(); ++extent) {
    const std::span<std::byte> room = span(extent);
    crc.append(digest::crc32c_copy(room, bytes.first(room.size())), Length(room.size()));
    bytes = bytes.subspan(room.size());
  }
  return crc.value();
}

ObjectRef Draft::seal(Crc32c crc) && {
  return std::make_shared<const Object>(Object::Seal(), std::move(storage_), crc);
}

Pool::Pool(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Result<std::unique_ptr<Pool>> Pool::create(std::vector<fabric::Domain*> rails,
                                           const PoolOptions& options,
                                           memory::PinnedBudget& budget) {
  const auto aligned = [](Length length) {
    return length.raw() > 0 && length.raw() % kExtentAlign == 0;
  };
  if (!aligned(options.segment_size) || !aligned(options.chunk_size) ||
      options.chunk_size > options.segment_size || options.segment_size > kSegmentLengthMax) {
    return Error::make(Errc::invalid_argument, "pool sizes");
  }
  auto impl = std::make_unique<Impl>();
  impl->rails = std::move(rails);
  impl->options = options;
  impl->budget = &budget;
  {
    MutexLock growing(impl->grow_mutex);
    TRY(impl->add_segment(std::nullopt, nullptr));
  }
  return std::unique_ptr<Pool>(new Pool(std::move(impl)));
}

Pool::~Pool() {
  MutexLock lock(impl_->mutex);
  for (const auto& segment : impl_->segments) {
    // A quarantine is the pool's own and may go with it: the child has the memory mapped itself.
    ASSERT(segment->map.free() + segment->map.quarantined() == segment->map.pages());
  }
}

Result<Draft> Pool::reserve(Length length) {
  if (length.raw() == 0) return Error::make(Errc::invalid_argument, "reserve nothing");
  if (!fits_one_segment(length)) return Error::make(Errc::too_large, "reserve");
  if (auto placed = impl_->place(length)) return Draft(*std::move(placed));
  TRY_ASSIGN(Storage storage, impl_->grow_and_place(length));
  return Draft(std::move(storage));
}

bool Pool::fits_one_segment(Length length) const noexcept {
  return fits_one_segment(length, impl_->options.segment_size, impl_->options.chunk_size);
}

// The allocator keeps its books outside the segment, and extents are multiples of the alignment, so
// every page serves.
bool Pool::fits_one_segment(Length length, Length segment_size, Length /*chunk_size*/) noexcept {
  return length.raw() > 0 && length <= segment_size;
}

Status Pool::expand() {
  if (!impl_->options.may_grow(impl_->options.segment_size))
    return Error::make(Errc::no_memory, "pool may not grow");
  MutexLock growing(impl_->grow_mutex);
  TRY(impl_->add_segment(std::nullopt, nullptr));
  MutexLock lock(impl_->mutex);
  ++impl_->expands;
  return {};
}

Result<SegmentId> Pool::begin_drain() {
  MutexLock lock(impl_->mutex);
  PoolSegment* least = nullptr;
  std::size_t in_use = 0;
  for (const auto& segment : impl_->segments) {
    if (segment->draining) continue;
    ++in_use;
    if (least == nullptr || segment->map.free() > least->map.free()) least = segment.get();
  }
  if (in_use < 2) return Error::make(Errc::not_found, "segment to drain");
  least->draining = true;
  return least->id;
}

bool Pool::end_drain(SegmentId id) {
  std::unique_ptr<PoolSegment> gone;  // unmapped and deregistered without the lock
  MutexLock lock(impl_->mutex);
  const auto at = impl_->find(id);
  if ((*at)->map.free() != (*at)->map.pages()) return false;
  gone = std::move(*at);
  impl_->segments.erase(at);
  ++impl_->shrinks;
  return true;
}

void Pool::cancel_drain(SegmentId id) {
  MutexLock lock(impl_->mutex);
  (*impl_->find(id))->draining = false;
}

void Pool::hold_reclaim() {
  MutexLock lock(impl_->mutex);
  ++impl_->holds;
}

void Pool::release_reclaim() {
  MutexLock lock(impl_->mutex);
  ASSERT(impl_->holds > 0);
  if (--impl_->holds > 0) return;
  for (const auto& segment : impl_->segments) segment->map.release_quarantine();
}

PoolStats Pool::stats() const {
  MutexLock lock(impl_->mutex);
  PoolStats stats;
  stats.objects = impl_->objects.load(std::memory_order_relaxed);
  stats.segments = static_cast<std::uint32_t>(impl_->segments.size());
  for (const auto& segment : impl_->segments) {
    const PageMap& map = segment->map;
    if (segment->draining) ++stats.draining_segments;
    stats.allocated += length_of(map.pages() - map.free());
    stats.quarantined += length_of(map.quarantined());
    stats.capacity += impl_->options.segment_size;
  }
  stats.expands = impl_->expands;
  stats.shrinks = impl_->shrinks;
  return stats;
}

Length Pool::segment_size() const noexcept { return impl_->options.segment_size; }
Length Pool::chunk_size() const noexcept { return impl_->options.chunk_size; }

}  // namespace farlift::store
