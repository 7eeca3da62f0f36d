#include "kvcache/node/rotation.h"

#include "core/base/assert.h"
#include "core/base/log.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

void Rotation::begin(Arena& arena, Tenant* heir) {
  if (arena.state() != ArenaState::active || jobs_.contains(arena.id())) return;
  core_.counters.add(Count::rotations);
  Job& job = jobs_[arena.id()];
  job.arena = &arena;
  job.heir = heir != nullptr ? heir : arena.owner();
  job.base = {core_.options.id, core_.incarnation, arena.id(), arena.gen(), arena.base()};
  arena.advance(ArenaState::sealing);
}

bool Rotation::step() {
  bool any = reopen();
  for (auto at = jobs_.begin(); at != jobs_.end();) {
    bool over = false;
    any = step(at->second, over) || any;
    at = over ? jobs_.erase(at) : std::next(at);
  }
  std::erase_if(purges_, [&](const auto& purge) {
    any = purge->list->step() || any;
    if (!purge->list->done()) return false;
    core_.counters.add(Count::purges_done);
    return true;
  });
  return any;
}

bool Rotation::step(Job& job, bool& over) {
  if (job.arena->state() == ArenaState::lost) {  // with others of its tenant, at their fence
    over = true;
    return true;
  }
  if (core_.now() < job.not_before) return false;
  bool moved = false;
  switch (job.arena->state()) {
    case ArenaState::sealing:
      moved = seal(job);
      break;
    case ArenaState::migrate:
      moved = migrate(job);
      break;
    case ArenaState::unpublish:
      moved = unpublish(job);
      break;
    case ArenaState::grace:
      moved = grace(job);
      break;
    case ArenaState::close:
      moved = close(job);
      break;
    case ArenaState::fence:
      moved = fence(job);
      break;
    case ArenaState::scrub:
      moved = scrub(job);
      break;
    case ArenaState::enlist:
      moved = enlist(job, over);
      break;
    case ArenaState::active:
    case ArenaState::lost:
      ASSERT(false);
  }
  if (job.arena->state() == ArenaState::lost) over = true;
  return moved;
}

// Step 1. Grants expire and pulls time out by themselves; publishes are answered.
bool Rotation::seal(Job& job) {
  const Slots& slots = job.arena->slots();
  if (slots.count(SlotState::reserved) > 0 || slots.count(SlotState::sealed) > 0) return false;
  job.arena->advance(ArenaState::migrate);
  return true;
}

bool Rotation::migrate(Job& job) {
  if (!job.migration && !core_.draining && job.heir == job.arena->owner() && !job.arena->doomed() &&
      Migration::wanted(*job.arena)) {
    job.migration.emplace(core_, *job.arena, false);
  }
  if (job.migration) {
    job.migration->step();
    if (!job.migration->done()) return false;
  }
  job.arena->advance(ArenaState::unpublish);
  return true;
}

// Step 3. Every slot of it is quarantined first, some thousands in a step.
bool Rotation::unpublish(Job& job) {
  Slots& slots = job.arena->slots();
  if (!job.unpublish) {
    const std::uint32_t end = std::min<std::uint32_t>(
        slots.size(), job.next + std::min(kQuarantinedPerStep, UINT32_MAX - job.next));
    for (; job.next < end; ++job.next) {
      const SlotIndex index(job.next);
      job.arena->owner()->heat.erase({slots[index].key_hash, job.arena->id(), index});
      if (slots[index].state() == SlotState::published) slots.quarantine(index, false);
    }
    if (job.next < slots.size()) return true;
    job.known = slots.count(SlotState::quarantined) > 0;
    job.unpublish.emplace(core_, *job.arena->owner(), slots, job.base, true);
  }
  const bool asked = job.unpublish->step();
  if (!job.unpublish->done()) return asked;
  job.grace_since = core_.now();
  job.arena->advance(ArenaState::grace);
  return true;
}

// Step 4 spares readers a failed read and nothing more.
bool Rotation::grace(Job& job) {
  const bool wait = job.known && !core_.planted(PlantedBug::skip_grace_and_fence);
  if (wait && core_.now() < job.grace_since + core_.options.grace) {
    job.not_before = job.grace_since + core_.options.grace;
    return false;
  }
  const bool postponable =
      wait &&
      core_.now() < job.grace_since + std::max(core_.options.postpone_max, core_.options.grace);
  if (postponable && !job.counted) {
    if (!job.counting) count_leases(job);
    return false;
  }
  job.arena->advance(ArenaState::close);
  return true;
}

void Rotation::count_leases(Job& job) {
  job.counting = true;
  core_.directory().count_leases(
      core_.options.id, core_.incarnation, job.arena->id(),
      core_.guarded([this, id = job.arena->id(),
                     gen = job.arena->gen()](const Result<std::uint64_t>& leases) {
        const auto at = jobs_.find(id);
        if (at == jobs_.end() || at->second.arena->gen() != gen) return;
        Job& waiting = at->second;
        waiting.counting = false;
        // A directory that is away delays nobody: leases are a courtesy.
        waiting.counted = !leases.ok() || *leases == 0;
        if (waiting.counted) return;
        core_.counters.add(Count::rotations_postponed);
        waiting.not_before =
            std::min(core_.now() + kRetryAfter, waiting.grace_since + core_.options.postpone_max);
      }));
}

bool Rotation::close(Job& job) {
#ifdef FARLIFT_PLANTED_BUGS
  if (core_.planted(PlantedBug::skip_grace_and_fence)) job.arena->leak_registrations_planted();
#endif
  if (!job.arena->close_registrations()) {
    lose(job);
    return true;
  }
  job.grace_since = core_.now();
  job.arena->advance(ArenaState::fence);
  return true;
}

bool Rotation::fence(Job& job) {
  const bool skip = core_.planted(PlantedBug::skip_grace_and_fence) ||
                    core_.planted(PlantedBug::fence_mr_everywhere);
  switch (skip ? fabric::FenceMode::mr : core_.fence_mode) {
    case fabric::FenceMode::mr:
      job.arena->advance(ArenaState::scrub);
      return true;
    case fabric::FenceMode::endpoint:
      return fence_endpoints(*job.arena->owner());
    case fabric::FenceMode::drain:
      break;
  }
  const Instant until = job.grace_since + 2 * core_.options.operation_limit;
  if (core_.now() < until) {
    job.not_before = until;
    return false;
  }
  job.arena->advance(ArenaState::scrub);
  return true;
}

// One fence serves every arena of the tenant that waits for it.
bool Rotation::fence_endpoints(Tenant& tenant) {
  const bool closed = tenant.fence_endpoints();
  for (auto& [id, job] : jobs_) {
    if (job.arena->owner() != &tenant || job.arena->state() != ArenaState::fence) continue;
    if (closed) {
      job.arena->advance(ArenaState::scrub);
    } else {
      lose(job);
    }
  }
  fenced_(tenant);
  return true;
}

// Endpoints that were closed open again as soon as they can; until then HELLO is refused.
bool Rotation::reopen() {
  if (core_.now() < reopen_not_before_) return false;
  bool any = false;
  for (const auto& tenant : core_.tenants) {
    if (tenant->targets_open()) continue;
    const Status opened = tenant->reopen_targets();
    any = any || opened.ok();
    if (opened.ok()) continue;
    logf(LogLevel::error, "kv node: endpoints of tenant %s stay closed: %s", tenant->name().c_str(),
         opened.error().describe().c_str());
    reopen_not_before_ = core_.now() + kRetryAfter;
  }
  return any;
}

bool Rotation::scrub(Job& job) {
  // Step 7: mandatory where another tenant comes to own the bytes.
  if (job.heir != job.arena->owner() || core_.options.scrub_always) {
    if (!job.arena->scrub(kScrubPerStep)) return true;
  }
  job.arena->advance(ArenaState::enlist);
  purge_later(job);
  return true;
}

bool Rotation::enlist(Job& job, bool& over) {
  Arena& arena = *job.arena;
  Tenant& before = *arena.owner();
  const Status enlisted = arena.enlist(*job.heir, job.heir->domains(), core_.retired,
                                       core_.counters, core_.planted(PlantedBug::constant_key));
  if (enlisted.ok()) {
    if (job.heir != &before) {
      std::erase(before.arenas, &arena);
      job.heir->arenas.push_back(&arena);
      job.heir->starved = false;
    } else if (before.starved) {
      arena.kept_until = core_.now() + kKept;
    }
    core_.room_came = true;
    over = true;
    return true;
  }
  if (enlisted.code() == Errc::corrupt) {
    lose(job);
    return true;
  }
  core_.counters.add(Count::arenas_refused);
  job.not_before = core_.now() + kRetryAfter;
  return false;
}

void Rotation::lose(Job& job) {
  core_.counters.add(Count::arenas_lost);
  logf(LogLevel::error, "kv node: arena %u is lost: a registration could not be ended or renewed",
       job.arena->id().raw());
  job.arena->advance(ArenaState::lost);
  purge_later(job);
}

void Rotation::purge_later(Job& job) {
  job.unpublish.reset();  // it refers to the slots
  job.migration.reset();
  auto purge = std::make_unique<Purge>();
  purge->slots = job.arena->take_slots();
  if (purge->slots->size() == 0) return;
  purge->list.emplace(core_, *job.arena->owner(), *purge->slots, job.base, false);
  purges_.push_back(std::move(purge));
}

Instant Rotation::next_deadline() const noexcept {
  Instant next = Instant::max();
  for (const auto& [id, job] : jobs_) {
    if (job.not_before > core_.now()) next = std::min(next, job.not_before);
    const bool soon =
        job.arena->state() == ArenaState::scrub || job.arena->state() == ArenaState::enlist;
    if (soon && job.not_before <= core_.now()) next = core_.now();
  }
  for (const auto& purge : purges_) next = std::min(next, purge->list->next_deadline());
  for (const auto& tenant : core_.tenants) {
    if (!tenant->targets_open()) next = std::min(next, reopen_not_before_);
  }
  return next;
}

}  // namespace farlift::kv::node
