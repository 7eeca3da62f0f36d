#include "blob/module/blob_store.h"

#include "blob/module/server_info.h"
#include "core/base/log.h"

#include <algorithm>

namespace farlift::blob {

Result<std::unique_ptr<BlobStore>> BlobStore::create(std::vector<fabric::Domain*> rails,
                                                     const Settings& settings) {
  const bool pinned = std::any_of(rails.begin(), rails.end(), [](const fabric::Domain* d) {
    return d->info().local_registration_required;
  });
  std::unique_ptr<BlobStore> out(new BlobStore(
      settings, pinned ? memory::PinnedBudget::from_rlimit() : memory::PinnedBudget::kUnlimited));
  store::PoolOptions options;
  options.segment_size = settings.segment_size();
  options.chunk_size = settings.chunk_size();
  options.mapping.name = "farlift-blob";
  options.may_grow = [store = out.get()](Length bytes) { return store->may_grow(bytes); };
  out->grow_at_any_cost_ = true;  // the first segment is what the module is for
  TRY_ASSIGN(out->pool_, store::Pool::create(std::move(rails), options, out->budget_));
  out->grow_at_any_cost_ = false;
  out->pool_->hold_reclaim();
  out->charge();
  return out;
}

BlobStore::~BlobStore() {
  for (void* charge : charges_) vk::Free(charge);
}

Result<store::Draft> BlobStore::reserve(Length length, Growth growth) {
  settle();
  grow_at_any_cost_ = growth == Growth::at_any_cost;
  auto draft = pool_->reserve(length);
  grow_at_any_cost_ = false;
  charge();
  return draft;
}

void BlobStore::settle() {
  // Only this thread forks, so between the two calls there is no child to be hurt; while a child
  // lives nothing moves.
  if (child_alive_ || pool_->stats().quarantined.raw() == 0) return;
  pool_->release_reclaim();
  pool_->hold_reclaim();
}

bool BlobStore::may_grow(Length bytes) const {
  if (grow_at_any_cost_) return true;
  if ((vk::GetContextFlags(nullptr) & vk::kCtxMaxmemory) == 0) return true;
  const ServerInfoView info("memory");
  const std::uint64_t limit = info.number("maxmemory");
  const std::uint64_t used = info.number("used_memory");
  if (limit == 0) return true;
  // spec blob 8.1: not up to the mark at which memory would have to be given back.
  const auto percent = static_cast<std::uint64_t>(settings_.get().scaling_shrink_watermark);
  const std::uint64_t mark = limit / 100 * percent;
  return used < mark && bytes.raw() < mark - used;
}

void BlobStore::charge() {
  const std::size_t segments = pool_->stats().segments;
  while (charges_.size() > segments) {
    vk::Free(charges_.back());
    charges_.pop_back();
  }
  while (charges_.size() < segments) {
    void* charge = vk::TryAlloc(pool_->segment_size().raw());
    if (charge == nullptr)
      log(LogLevel::warning, "cannot account a segment to used_memory: no address space");
    charges_.push_back(charge);
  }
}

void BlobStore::scale() {
  settle();
  const int flags = vk::GetContextFlags(nullptr);
  if (draining_ || (flags & vk::kCtxReplica) != 0) return;
  const SettingsValues& v = settings_.get();
  const bool evicting = (flags & vk::kCtxMaxmemory) != 0 && (flags & vk::kCtxEvict) != 0;
  const double used_percent = static_cast<double>(vk::GetUsedMemoryRatio()) * 100.0;
  if (evicting && used_percent > static_cast<double>(v.scaling_shrink_watermark)) {
    auto victim = pool_->begin_drain();
    if (victim.ok()) draining_ = *victim;
    return;
  }
  const store::PoolStats stats = pool_->stats();
  const double filled = 100.0 * static_cast<double>(stats.allocated.raw()) /
                        static_cast<double>(stats.capacity.raw());
  if (filled > static_cast<double>(v.scaling_expand_watermark) && may_grow(pool_->segment_size())) {
    pool_->expand()
        .ignore();  // ahead of demand only; a reservation that needs it will ask again and report
    charge();
  }
}

bool BlobStore::try_end_drain() {
  if (!draining_) return false;
  settle();
  if (!pool_->end_drain(*draining_)) return false;
  draining_.reset();
  charge();
  return true;
}

void BlobStore::cancel_drain() {
  if (!draining_) return;
  pool_->cancel_drain(*draining_);
  draining_.reset();
}

void BlobStore::note_value(store::SegmentId segment) {
  MutexLock lock(mutex_);
  ++live_[segment];
}

void BlobStore::note_value_gone(store::SegmentId segment) {
  MutexLock lock(mutex_);
  const auto at = live_.find(segment);
  ASSERT(at != live_.end() && at->second > 0);
  if (--at->second == 0) live_.erase(at);
}

std::uint64_t BlobStore::live() const {
  MutexLock lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [segment, count] : live_) sum += count;
  return sum;
}

std::uint64_t BlobStore::live_in(store::SegmentId segment) const {
  MutexLock lock(mutex_);
  const auto at = live_.find(segment);
  return at == live_.end() ? 0 : at->second;
}

}  // namespace farlift::blob
