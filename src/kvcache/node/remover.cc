#include "kvcache/node/remover.h"

#include "kvcache/node/capability.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

void Remover::remove(Tenant& tenant, RemoveRequest request, Reply reply) {
  core_.counters.add(Count::deletes);
  if (!valid_key(request.key)) return reply(Outcome::bad_arg);
  auto removal = std::make_shared<Removal>();
  removal->tenant = &tenant;
  removal->request = std::move(request);
  removal->reply = std::move(reply);
  look(removal);
}

// Which slot it is must be known before it is removed, so that the slot can be quarantined after.
void Remover::look(const RemovalPtr& removal) {
  core_.directory().resolve(
      removal->tenant->name(), {removal->request.key},
      core_.guarded([this, removal](std::vector<Result<Pair>> pairs) {
        if (pairs.size() != 1 || !pairs[0].ok()) return removal->reply(Outcome::control_down);
        const Pair& pair = *pairs[0];
        if (!pair.descriptor && !pair.tag) return removal->reply(Outcome::miss);
        const Version wanted = removal->request.version;
        const Bytes descriptor = pair.descriptor.value_or(Bytes());
        if (!wanted.none() && raw_version(descriptor) != wanted) {
          return removal->reply(pair.descriptor ? Outcome::conflict : Outcome::miss);
        }
        unpublish(removal, descriptor);
      }));
}

void Remover::unpublish(const RemovalPtr& removal, const Bytes& descriptor) {
  ++removal->tries;
  UnpublishRequest request;
  request.tenant = removal->tenant->name();
  request.key = removal->request.key;
  SlotRef slot;
  const auto found = decode_descriptor(descriptor);
  if (!found.ok()) {
    // What nobody can read, or a tag alone. Just that: the request may be carried out long after it
    // was given up, and must spare what others have put there by then.
    request.how = UnpublishRequest::How::exact;
    request.descriptor = descriptor;
  } else {
    request.how = UnpublishRequest::How::location;
    request.location = found->location;
    slot = core_.find(found->location);
  }
  core_.directory().unpublish(std::move(request),
                              core_.guarded([this, removal, slot](const UnpublishReply& reply) {
                                answered(removal, slot, reply);
                              }));
}

void Remover::answered(const RemovalPtr& removal, const SlotRef& slot,
                       const UnpublishReply& reply) {
  switch (reply.kind) {
    case UnpublishReply::Kind::removed:
    case UnpublishReply::Kind::absent:
      core_.directory_answered(true);
      if (slot.valid() && slot.arena->owner() == removal->tenant &&
          slot.slot().state() == SlotState::published &&
          std::ranges::equal(slot.arena->slots().key(slot.index), removal->request.key)) {
        slot.arena->slots().quarantine(slot.index, false);
      }
      return removal->reply(reply.kind == UnpublishReply::Kind::removed ? Outcome::ok
                                                                        : Outcome::miss);
    case UnpublishReply::Kind::other:
      if (removal->tries < kTriesMax) return look(removal);  // moved or overwritten meanwhile
      return removal->reply(Outcome::conflict);
    case UnpublishReply::Kind::unknown:
    case UnpublishReply::Kind::not_done:
      // The slot stays published; reconcile finds out.
      if (directory_lost(reply.error)) core_.directory_answered(false);
      return removal->reply(Outcome::control_down);
  }
}

// Anybody of the tenant may say so, and a quarantined slot that the key still names is unpublished
// by the next reconcile: the directory decides. Absent, or an older revision, may be a replica that
// lags; reconcile looks twice.
void Remover::superseded(Tenant& tenant, const SupersededRequest& request, const Reply& reply) {
  core_.counters.add(Count::superseded_received);
  const SlotRef slot = core_.find(request.location);
  if (!slot.valid() || slot.arena->owner() != &tenant) return reply(Outcome::ok);  // gone already
  if (slot.slot().version != request.version ||
      !std::ranges::equal(slot.arena->slots().key(slot.index), request.key)) {
    return reply(Outcome::bad_arg);
  }
  if (slot.slot().state() != SlotState::published) return reply(Outcome::ok);
  core_.directory().resolve(tenant.name(), {request.key},
                            core_.guarded([slot, reply](const std::vector<Result<Pair>>& pairs) {
                              if (pairs.size() != 1 || !pairs[0].ok())
                                return reply(Outcome::control_down);
                              if (!slot.valid() || slot.slot().state() != SlotState::published)
                                return reply(Outcome::ok);
                              const Bytes there = pairs[0]->descriptor.value_or(Bytes());
                              if (raw_version(there).rev() <= slot.slot().version.rev())
                                return reply(Outcome::bad_arg);
                              slot.arena->slots().quarantine(slot.index, false);
                              reply(Outcome::ok);
                            }));
}

void Remover::stale_seen(Tenant& tenant, const StaleSeenRequest& request, const Reply& reply) {
  core_.counters.add(Count::stale_seen);
  // Of an earlier self, or of a generation that is no more: a fail-over or a replay brought it back
  // after the purge, and no other node may take it away.
  const bool dead =
      request.location.node == core_.options.id &&
      (request.location.incarnation != core_.incarnation || !core_.find(request.location).valid());
  if (!dead || !valid_key(request.key)) return reply(Outcome::bad_arg);
  UnpublishRequest unpublish;
  unpublish.tenant = tenant.name();
  unpublish.key = request.key;
  unpublish.how = UnpublishRequest::How::location;
  unpublish.location = request.location;
  core_.directory().unpublish(std::move(unpublish),
                              core_.guarded([reply](const UnpublishReply& answer) {
                                const bool known = answer.kind != UnpublishReply::Kind::unknown &&
                                                   answer.kind != UnpublishReply::Kind::not_done;
                                reply(known ? Outcome::ok : Outcome::control_down);
                              }));
}

}  // namespace farlift::kv::node
