#include "kvcache/node/unpublish_list.h"

#include "kvcache/node/capability.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

UnpublishList::UnpublishList(Core& core, const Tenant& tenant, const Slots& slots,
                             const Location& arena_base, bool giving_up)
    : core_(core), tenant_(tenant), slots_(slots), base_(arena_base), giving_up_(giving_up) {}

bool UnpublishList::done() const noexcept {
  if (state_->in_flight > 0) return false;
  if (state_->gave_up) return true;
  return state_->next >= slots_.size() && state_->again_from == UINT32_MAX;
}

Instant UnpublishList::next_deadline() const noexcept {
  return state_->in_flight == 0 && !done() ? state_->not_before : Instant::max();
}

bool UnpublishList::step() {
  State& state = *state_;
  if (state.gave_up || core_.now() < state.not_before) return false;
  if (state.again_from != UINT32_MAX && state.in_flight == 0) {
    state.next = std::exchange(state.again_from, UINT32_MAX);
  }
  bool any = false;
  while (state.in_flight < kInFlightMax && state.next < slots_.size() &&
         state.again_from == UINT32_MAX) {
    const std::uint32_t index = state.next++;
    const Slot& slot = slots_[SlotIndex(index)];
    if (slot.state() == SlotState::free) continue;
    UnpublishRequest request;
    request.tenant = tenant_.name();
    request.key = to_bytes(slots_.key(SlotIndex(index)));
    request.how = UnpublishRequest::How::location;
    if (core_.planted(PlantedBug::purge_by_version)) request.how = UnpublishRequest::How::version;
    request.location = base_;
    request.location.addr = base_.addr + slot.header();
    request.version = slot.version;
    ++state.in_flight;
    any = true;
    core_.directory().unpublish(
        std::move(request), core_.guarded([core = &core_, shared = state_, giving_up = giving_up_,
                                           index](const UnpublishReply& reply) {
          answered(*core, *shared, giving_up, index, reply);
        }));
  }
  return any;
}

void UnpublishList::answered(Core& core, State& state, bool giving_up, std::uint32_t index,
                             const UnpublishReply& reply) {
  --state.in_flight;
  const bool certain = reply.kind == UnpublishReply::Kind::removed ||
                       reply.kind == UnpublishReply::Kind::absent ||
                       reply.kind == UnpublishReply::Kind::other;
  if (certain) return core.directory_answered(true);
  if (directory_lost(reply.error)) core.directory_answered(false);
  state.gave_up = state.gave_up || giving_up;
  state.again_from = std::min(state.again_from, index);
  state.not_before = core.now() + kRetryAfter;
}

}  // namespace farlift::kv::node
