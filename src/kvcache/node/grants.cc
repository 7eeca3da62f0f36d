#include "kvcache/node/grants.h"

#include "core/base/assert.h"
#include "core/base/log.h"
#include "kvcache/node/put_rules.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {
namespace {

constexpr std::uint64_t kGrantBaseMs = 2000;
constexpr std::uint64_t kGrantBytesPerMs = 1'000'000;  // 1 GB/s

std::uint32_t grant_ms(Length length) noexcept {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(kGrantBaseMs + length.raw() / kGrantBytesPerMs, UINT32_MAX));
}

}  // namespace

AllocReply Grants::reply_for(std::uint64_t slot_id, const Grant& grant) const {
  AllocReply reply;
  reply.slot_id = slot_id;
  reply.grant_ms = grant.ms;
  for (const auto& registration : grant.registrations) {
    reply.grant_rkeys.push_back(registration->key());
    reply.payload = registration->addr();
  }
  if (grant.registrations.empty()) {  // length 0: nothing to write, one zero a rail
    reply.grant_rkeys.resize(grant.tenant->rails());
    reply.payload = grant.slot.arena->base() + grant.slot.slot().payload();
  }
  return reply;
}

AllocReply Grants::alloc(Tenant& tenant, const AllocRequest& request) {
  core_.counters.add(Count::puts_push);
  AllocReply reply;
  if (core_.fence_mode != fabric::FenceMode::mr) {
    reply.outcome = Outcome::bad_arg;  // spec kv 7, 2a: pull is the only mode there
    return reply;
  }
  reply.outcome = refuse_put(core_, request.key, request.length);
  if (reply.outcome != Outcome::ok) return reply;
  const PutKey put{tenant.name(), request.put_id};
  if (const auto known = by_put_.find(put); known != by_put_.end()) {
    const Grant& grant = grants_.at(known->second);
    const bool same =
        grant.slot.slot().length == request.length.raw() &&
        std::ranges::equal(grant.slot.arena->slots().key(grant.slot.index), request.key);
    if (same) return reply_for(known->second, grant);
    reply.outcome = Outcome::bad_arg;
    return reply;
  }
  if (grants_.size() >= core_.options.grants_max) {
    core_.counters.add(Count::grants_refused);
    reply.outcome = Outcome::full;
    return reply;
  }
  const auto slot = tenant.reserve(request.key, request.length);
  if (!slot) {
    core_.counters.add(Count::puts_full);
    reply.outcome = Outcome::full;
    return reply;
  }
  auto registrations = slot->arena->grant(slot->index, tenant.domains(), core_.counters);
  if (!registrations.ok()) {
    logf(LogLevel::warning, "kv node: no write grant: %s",
         registrations.error().describe().c_str());
    core_.counters.add(Count::grants_refused);
    slot->arena->slots().release(slot->index);
    reply.outcome = Outcome::full;
    return reply;
  }
  core_.counters.add(Count::grants);
  const std::uint64_t id = next_id_++;
  Grant& grant = grants_[id];
  grant.tenant = &tenant;
  grant.put_id = request.put_id;
  grant.slot = *slot;
  grant.ms = grant_ms(request.length);
  grant.registrations = std::move(registrations).value();
  by_put_[put] = id;
  core_.after(std::chrono::milliseconds(grant.ms), [this, id] {
    const auto at = grants_.find(id);
    if (at == grants_.end()) return;
    core_.counters.add(Count::grants_expired);
    give_back(at);
  });
  return reply_for(id, grant);
}

// On every rail, and only then is the slot nobody's but ours. False: a peer may write it for ever.
bool Grants::close(Grant& grant) {
  bool all = true;
  for (auto& registration : grant.registrations) {
    if (registration->close().ok()) continue;
    all = false;
    core_.counters.add(Count::grants_not_closed);
    grant.slot.arena->doom();
    grant.slot.arena->keep_stuck(std::move(registration));
  }
  const bool lent = !grant.registrations.empty();
  grant.registrations.clear();
  if (lent) grant.slot.arena->slots().set_granted(grant.slot.index, false);
  return all;
}

void Grants::give_back(GrantMap::iterator at) {
  Grant& grant = at->second;
  (void)close(grant);  // where it failed the arena is doomed and nothing is allocated there
  grant.slot.arena->slots().release(grant.slot.index);
  by_put_.erase({grant.tenant->name(), grant.put_id});
  grants_.erase(at);
}

Outcome Grants::abort(Tenant& tenant, const AbortRequest& request) {
  const auto at = grants_.find(request.slot_id);
  if (at == grants_.end()) return Outcome::ok;  // expired, sealed or aborted before
  if (at->second.tenant != &tenant) return Outcome::bad_arg;
  give_back(at);
  return Outcome::ok;
}

void Grants::finish(Tenant& tenant, const PutId& id, const PutReply& reply) {
  count_outcome(core_, reply.outcome);
  outcomes_.finish(tenant.name(), id, reply, core_.now());
}

void Grants::seal(Tenant& tenant, const SealRequest& request, const Outcomes::Reply& reply) {
  PutReply refused;
  refused.outcome = Outcome::bad_arg;
  const auto at = grants_.find(request.slot_id);
  const bool ours =
      at != grants_.end() && at->second.tenant == &tenant && at->second.put_id == request.put_id;
  if (!ours && !outcomes_.knows(tenant.name(), request.put_id)) {
    if (at == grants_.end()) refused.outcome = Outcome::timeout;  // the grant is over
    return reply(refused);
  }
  // A repeat names a slot that is no longer granted; its key was compared when it was first sealed.
  const KeyHash slot_mark(request.slot_id);
  switch (outcomes_.begin(tenant.name(), request.put_id, slot_mark, reply)) {
    case Outcomes::Begun::first:
      break;
    case Outcomes::Begun::repeat:
      return core_.counters.add(Count::put_repeats);
    case Outcomes::Begun::mismatch:
      return reply(refused);
  }
  ASSERT(ours);
  Grant grant = std::move(at->second);
  by_put_.erase({tenant.name(), request.put_id});
  grants_.erase(at);
#ifdef FARLIFT_PLANTED_BUGS
  if (core_.planted(PlantedBug::crc_before_grant_close)) {
    return check_before_close(std::make_shared<Grant>(std::move(grant)), tenant, request);
  }
#endif
  if (!close(grant)) {
    grant.slot.arena->slots().release(grant.slot.index);
    refused.outcome = Outcome::control_down;
    return finish(tenant, request.put_id, refused);
  }
  check(grant.slot, tenant, request);
}

void Grants::check(const SlotRef& slot, Tenant& tenant, const SealRequest& request) {
  ASSERT(slot.slot().granted == 0);
  core_.worker->hash(slot.arena->payload(slot.index),
                     core_.guarded([this, slot, &tenant, request](Crc32c crc) {
                       publish(slot, tenant, request, crc);
                     }));
}

void Grants::publish(const SlotRef& slot, Tenant& tenant, const SealRequest& request, Crc32c crc) {
  ASSERT(slot.valid() && slot.slot().state() == SlotState::reserved);
  if (crc != request.crc) {
    slot.arena->slots().release(slot.index);
    PutReply refused;
    refused.outcome = Outcome::bad_crc;
    return finish(tenant, request.put_id, refused);
  }
  core_.counters.add(Count::put_bytes, slot.slot().length);
  PublishTask task;
  task.tenant = &tenant;
  task.slot = slot;
  task.crc = crc;
  task.mode = request.mode;
  task.expected = request.expected;
  task.done = [this, &tenant, id = request.put_id](const PutReply& reply) {
    finish(tenant, id, reply);
  };
  publisher_.start(std::move(task));
}

#ifdef FARLIFT_PLANTED_BUGS
void Grants::check_before_close(const std::shared_ptr<Grant>& grant, Tenant& tenant,
                                const SealRequest& request) {
  core_.worker->hash(grant->slot.arena->payload(grant->slot.index),
                     core_.guarded([this, grant, &tenant, request](Crc32c crc) {
                       core_.after(std::chrono::milliseconds(1),
                                   [this, grant, &tenant, request, crc] {
                                     (void)close(*grant);
                                     publish(grant->slot, tenant, request, crc);
                                   });
                     }));
}
#endif

void Grants::close_all() {
  for (auto& [id, grant] : grants_) (void)close(grant);
  grants_.clear();
  by_put_.clear();
}

}  // namespace farlift::kv::node
