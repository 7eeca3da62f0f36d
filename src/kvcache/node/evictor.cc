#include "kvcache/node/evictor.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace farlift::kv::node {
namespace {

// What an arena takes of its tenant's quota. Those that rotate are counted as room to come.
Length taken_by(const Arena& arena) noexcept {
  switch (arena.state()) {
    case ArenaState::active:
      return arena.slots().used();
    case ArenaState::lost:
      return arena.size();
    default:
      return Length();
  }
}

}  // namespace

bool Evictor::step() {
  bool any = false;
  if (cooling_ || core_.now() >= cool_due_) any = cool();
  const bool due = core_.now() >= due_;
  if (due) due_ = core_.now() + kEvery;
  for (const auto& tenant : core_.tenants) {
    if (due || tenant->pressed) any = relieve(*tenant) || any;
  }
  return any;
}

bool Evictor::relieve(Tenant& tenant) {
  const bool pressed = std::exchange(tenant.pressed, false);
  bool any = false;
  for (Arena* const arena : tenant.arenas) {
    if (arena->doomed() && arena->state() == ArenaState::active) {
      rotation_.begin(*arena);
      any = true;
    }
  }
  if (core_.draining) return any;
  Length taken;
  bool rotating = false;
  for (const Arena* const arena : tenant.arenas) {
    taken += taken_by(*arena);
    rotating = rotating || rotation_.rotating(*arena);
  }
  const auto percent = [&](std::uint32_t part) { return tenant.quota().raw() / 100 * part; };
  if (taken.raw() > percent(core_.options.high_percent)) {
    while (taken.raw() > percent(core_.options.low_percent) && evict(tenant, taken)) any = true;
  }
  if (any || rotating || !pressed) return any;
  // FULL below the mark: the quota is not reached but memory is, or values do not fit the rests.
  if (tenant.starved && hand_over(tenant)) return true;
  return evict(tenant, taken);
}

bool Evictor::evict(Tenant& tenant, Length& taken) {
  Arena* worst = nullptr;
  const auto rank = [](const Arena& arena) {
    return std::tuple(arena.slots().live().raw() * arena.heat, arena.first_publish, arena.id());
  };
  for (Arena* const arena : tenant.arenas) {
    if (arena->state() != ArenaState::active || arena->slots().size() == 0) continue;
    if (worst == nullptr || rank(*arena) < rank(*worst)) worst = arena;
  }
  if (worst == nullptr) return false;
  core_.counters.add(Count::evictions);
  taken -= taken_by(*worst);
  rotation_.begin(*worst);
  return true;
}

// No memory is left to make an arena of: one that lies empty with another tenant moves over.
bool Evictor::hand_over(Tenant& tenant) {
  if (tenant.held() + core_.options.arena_size > tenant.quota()) return false;
  for (const auto& other : core_.tenants) {
    if (other.get() == &tenant || other->arenas.size() < 2) continue;
    for (Arena* const arena : other->arenas) {
      if (arena->state() != ArenaState::active || arena->slots().size() > 0) continue;
      if (arena->kept_until > core_.now()) continue;
      rotation_.begin(*arena, &tenant);
      return true;
    }
  }
  return false;
}

// Once a minute, a part of the slots in each step: there may be very many.
bool Evictor::cool() {
  if (!std::exchange(cooling_, true)) {
    cool_due_ = core_.now() + kCoolEvery;
    cool_arena_ = 0;
    cool_slot_ = 0;
  }
  std::uint32_t left = kCooledPerStep;
  while (cool_arena_ < core_.arenas.size()) {
    if (left == 0) return true;
    Arena& arena = *core_.arenas[cool_arena_];
    const std::uint32_t next = arena.cool(cool_slot_, left);
    left -= std::min(left, next - std::min(next, cool_slot_));
    cool_slot_ = next;
    if (next < arena.slots().size()) return true;
    ++cool_arena_;
    cool_slot_ = 0;
  }
  cooling_ = false;
  return true;
}

}  // namespace farlift::kv::node
