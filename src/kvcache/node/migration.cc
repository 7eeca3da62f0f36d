#include "kvcache/node/migration.h"

#include "core/base/assert.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

Migration::Migration(Core& core, Arena& source, bool all) : core_(core), source_(source) {
  const Slots& slots = source.slots();
  for (std::uint32_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[SlotIndex(i)];
    if (slot.state() == SlotState::published && (all || slot.heat > 0)) {
      candidates_.emplace_back(i);
    }
  }
}

bool Migration::wanted(const Arena& arena) {
  return arena.heat > 0 && arena.slots().live().raw() * 2 < arena.slots().used().raw();
}

void Migration::step() {
  while (state_->in_flight < kInFlightMax && next_ < candidates_.size()) {
    const SlotIndex index = candidates_[next_++];
    const SlotRef from = source_.ref(index);
    if (!from.valid() || from.slot().state() != SlotState::published) continue;
    Tenant& tenant = *source_.owner();
    const auto to = tenant.reserve_beside(&source_, source_.slots().key(index),
                                          from.slot().key_hash, Length(from.slot().length));
    if (!to) {
      core_.counters.add(Count::migrations_dropped);
      continue;
    }
    const Copy copy{from, *to, &tenant, state_};
    ++state_->in_flight;
    core_.worker->copy(
        to->arena->payload_for_write(to->index), source_.payload(index),
        core_.guarded([core = &core_, copy](Crc32c crc) { copied(*core, copy, crc); }));
  }
}

void Migration::copied(Core& core, const Copy& copy, Crc32c crc) {
  ASSERT(copy.from.valid() && copy.to.valid());
  const Slot& from = copy.from.slot();
  if (crc != from.crc || from.state() != SlotState::published || !core.directory_up) {
    core.counters.add(Count::migrations_dropped);
    --copy.state->in_flight;
    return copy.to.arena->slots().release(copy.to.index);
  }
  seal_copy(copy.to, from.version, crc);
  const Slot& to = copy.to.slot();
  ASSERT(to.version == from.version && to.key_hash == from.key_hash && to.crc == from.crc &&
         to.length == from.length);  // P15
  Capability capability = make_capability(core, *copy.tenant, copy.to);
  PublishRequest request;
  request.tenant = copy.tenant->name();
  request.key = to_bytes(copy.to.arena->slots().key(copy.to.index));
  request.mode = PutMode::if_version;
  request.expected = from.version;
  request.descriptor = std::move(capability.descriptor);
  request.tag = std::move(capability.tag);
  request.ttl = core.options.descriptor_ttl;
  core.directory().publish(std::move(request),
                           core.guarded([core = &core, copy](const PublishReply& reply) {
                             answered(*core, copy, reply);
                           }));
}

void Migration::answered(Core& core, const Copy& copy, const PublishReply& reply) {
  ASSERT(copy.to.valid() && copy.to.slot().state() == SlotState::sealed);
  --copy.state->in_flight;
  Slots& target = copy.to.arena->slots();
  switch (reply.kind) {
    case PublishReply::Kind::ok:
      core.counters.add(Count::migrated);
      target.publish(copy.to.index);
      copy.to.arena->first_publish = std::min(copy.to.arena->first_publish, core.now());
      copy.tenant->index(copy.to);
      if (copy.from.valid() && copy.from.slot().state() == SlotState::published) {
        copy.from.arena->slots().quarantine(copy.from.index, false);
      }
      return;
    case PublishReply::Kind::exists:
    case PublishReply::Kind::conflict:
    case PublishReply::Kind::not_done:  // deleted or overwritten meanwhile: drop the copy
      core.counters.add(Count::migrations_dropped);
      return target.release(copy.to.index);
    case PublishReply::Kind::unknown:
      core.counters.add(Count::publish_unknown);
      if (directory_lost(reply.error)) core.directory_answered(false);
      return target.quarantine(copy.to.index, true);
  }
}

}  // namespace farlift::kv::node
