#include "kvcache/node/reconcile.h"

#include "core/base/assert.h"
#include "kvcache/node/capability.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {
namespace {

// From unpublish on the rotation itself sees to the directory.
bool reconcilable(const Arena& arena) noexcept { return arena.state() <= ArenaState::migrate; }

}  // namespace

bool Reconcile::step() {
  if (!running_) {
    if (core_.now() < due_) return false;
    begin();
  }
  const bool any = ask();
  if (in_flight_ == 0 && (failed_ || place_ == places_.size())) {
    end();
    return true;
  }
  return any;
}

void Reconcile::begin() {
  running_ = true;
  failed_ = false;
  suspects_ = false;
  place_ = 0;
  slot_ = 0;
  began_ = core_.now();
  total_ = asked_ = 0;
  due_ = Instant::max();  // soon() meanwhile: another pass follows
  places_.clear();
  for (const auto& arena : core_.arenas) {
    if (!reconcilable(*arena)) continue;
    places_.push_back({arena.get(), arena->gen()});
    total_ += arena->slots().size();
  }
}

void Reconcile::end() {
  running_ = false;
  core_.counters.add(Count::reconciles);
  if (due_ != Instant::max()) return;  // urgent still
  urgent_ = suspects_ || failed_;
  due_ = core_.now() + core_.options.reconcile_every;
  if (urgent_) due_ = std::min(due_, core_.now() + kSuspectAfter);
}

// When the next batch may go out.
Instant Reconcile::next_ask() const noexcept {
  if (urgent_ || asked_ == 0 || total_ == 0) return Instant{};
  const double part = static_cast<double>(std::min(asked_, total_)) / static_cast<double>(total_);
  return began_ + std::chrono::duration_cast<Duration>(core_.options.reconcile_every / 2 * part);
}

bool Reconcile::ask() {
  bool any = false;
  while (!failed_ && in_flight_ < kInFlightMax && place_ < places_.size() &&
         core_.now() >= next_ask()) {
    const Place place = places_[place_];
    if (place.arena->gen() != place.gen || !reconcilable(*place.arena) ||
        slot_ >= place.arena->slots().size()) {
      ++place_;
      slot_ = 0;
      continue;
    }
    std::vector<SlotRef> slots = gather(*place.arena);
    if (slots.empty()) continue;
    std::vector<Bytes> keys;
    keys.reserve(slots.size());
    for (const SlotRef& slot : slots) keys.push_back(to_bytes(slot.arena->slots().key(slot.index)));
    ++in_flight_;
    asked_ += slots.size();
    any = true;
    core_.directory().resolve(
        place.arena->owner()->name(), std::move(keys),
        core_.guarded([this, slots = std::move(slots)](const std::vector<Result<Pair>>& pairs) {
          answered(slots, pairs);
        }));
  }
  return any;
}

std::vector<SlotRef> Reconcile::gather(Arena& arena) {
  std::vector<SlotRef> slots;
  while (slots.size() < kBatch && slot_ < arena.slots().size()) {
    const SlotIndex index(slot_++);
    const SlotState state = arena.slots()[index].state();
    if (state == SlotState::published || state == SlotState::quarantined) {
      slots.push_back(arena.ref(index));
    }
  }
  return slots;
}

void Reconcile::answered(const std::vector<SlotRef>& slots,
                         const std::vector<Result<Pair>>& pairs) {
  ASSERT(in_flight_ > 0);
  --in_flight_;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    if (i >= pairs.size() || !pairs[i].ok()) {
      failed_ = true;
      if (i < pairs.size() && directory_lost(pairs[i].error())) core_.directory_answered(false);
      return;
    }
    if (slots[i].valid() && reconcilable(*slots[i].arena)) judge(slots[i], *pairs[i]);
  }
}

void Reconcile::judge(const SlotRef& ref, const Pair& pair) {
  Slots& slots = ref.arena->slots();
  const Slot& slot = ref.slot();
  bool ours = false;
  Version there;
  if (pair.descriptor) {
    there = raw_version(*pair.descriptor);
    const auto location = decode_location(
        ByteView(*pair.descriptor)
            .subspan(std::min<std::size_t>(8, pair.descriptor->size()))
            .first(std::min<std::size_t>(
                kLocationBytes, pair.descriptor->size() > 8 ? pair.descriptor->size() - 8 : 0)));
    ours = location.ok() && *location == core_.locate(ref);
  }
  if (slot.state() == SlotState::published) {
    if (ours) return slots.set_suspect(ref.index, false);
    if (slot.suspect != 0 || there.rev() > slot.version.rev()) {
      core_.counters.add(Count::reconcile_quarantined);
      return slots.quarantine(ref.index, false);
    }
    suspects_ = true;
    return slots.set_suspect(ref.index, true);
  }
  if (slot.state() != SlotState::quarantined || !ours) return;
  if (slot.unknown != 0) {  // it did succeed (spec kv 7.5)
    core_.counters.add(Count::reconcile_published);
    slots.publish(ref.index);
    return ref.arena->owner()->index(ref);
  }
  unpublish(ref);
}

void Reconcile::unpublish(const SlotRef& ref) {
  core_.counters.add(Count::reconcile_unpublished);
  UnpublishRequest request;
  request.tenant = ref.arena->owner()->name();
  request.key = to_bytes(ref.arena->slots().key(ref.index));
  request.how = UnpublishRequest::How::location;
  request.location = core_.locate(ref);
  core_.directory().unpublish(std::move(request), [](const UnpublishReply&) {
    // The next pass sees whether it worked.
  });
}

Instant Reconcile::next_deadline() const noexcept {
  if (!running_) return due_;
  return in_flight_ == 0 && place_ < places_.size() ? next_ask() : Instant::max();
}

}  // namespace farlift::kv::node
