#include "kvcache/node/publisher.h"

#include "core/base/assert.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {
namespace {

// Of a descriptor (spec kv 4.2).
constexpr std::size_t kLocationAt = 8;
constexpr std::size_t kVersionAt = 48;

}  // namespace

void Publisher::start(PublishTask task) {
  auto t = std::make_shared<Try>();
  t->task = std::move(task);
  const PublishTask& put = t->task;
  ASSERT(put.slot.valid() && put.slot.slot().state() == SlotState::reserved);
  if (put.mode == PutMode::if_version && !put.expected.none()) {
    if (put.expected.rev() == UINT32_MAX) return end(t, Outcome::bad_arg);
    return attempt(t, PutMode::if_version, put.expected, put.expected.rev() + 1);
  }
  attempt(t, put.mode == PutMode::if_version ? PutMode::if_version : PutMode::if_absent, Version(),
          1);
}

// Seals under the version that this attempt is for, signs, and asks the directory.
void Publisher::attempt(const TryPtr& t, PutMode mode, Version expected, std::uint32_t rev) {
  PublishTask& put = t->task;
  ++t->tries;
  t->mode = mode;
  t->expected = expected;
  if (std::exchange(t->sealed, true)) put.slot.arena->slots().unseal(put.slot.index);
  seal_slot(core_, put.slot, rev, put.crc);
  t->capability = make_capability(core_, *put.tenant, put.slot);
  PublishRequest request;
  request.tenant = put.tenant->name();
  request.key = to_bytes(put.slot.arena->slots().key(put.slot.index));
  request.mode = mode;
  request.expected = expected;
  request.descriptor = t->capability.descriptor;
  request.tag = t->capability.tag;
  request.ttl = core_.options.descriptor_ttl;
  core_.directory().publish(std::move(request),
                            core_.guarded([this, t](PublishReply reply) { answered(t, reply); }));
}

void Publisher::answered(const TryPtr& t, const PublishReply& reply) {
  ASSERT(t->task.slot.valid() && t->task.slot.slot().state() == SlotState::sealed);
  switch (reply.kind) {
    case PublishReply::Kind::ok:
      core_.directory_answered(true);
      return published(t, reply);
    case PublishReply::Kind::exists:
    case PublishReply::Kind::conflict:
      core_.directory_answered(true);
      return refused(t, reply);
    case PublishReply::Kind::unknown:
      if (directory_lost(reply.error)) core_.directory_answered(false);
      return outcome_unknown(t);
    case PublishReply::Kind::not_done:
      if (directory_lost(reply.error)) core_.directory_answered(false);
      return end(t, Outcome::control_down);
  }
}

void Publisher::published(const TryPtr& t, const PublishReply& reply) {
  const SlotRef& slot = t->task.slot;
  const bool superseded = slot.slot().suspect != 0;
  slot.arena->slots().publish(slot.index);
  slot.arena->first_publish = std::min(slot.arena->first_publish, core_.now());
  if (superseded) {
    slot.arena->slots().quarantine(slot.index, false);
  } else {
    t->task.tenant->index(slot);
  }
  if (reply.current) {
    supersede(*t->task.tenant, slot.arena->slots().key(slot.index), *reply.current);
  }
  end(t, Outcome::ok, slot.slot().version);
}

// The directory holds something else. What was sealed was never handed out.
void Publisher::refused(const TryPtr& t, const PublishReply& reply) {
  const Bytes current = reply.current.value_or(Bytes());
  switch (t->task.mode) {
    case PutMode::if_version:
      return end(t, Outcome::conflict, raw_version(current));
    case PutMode::replace:
      if (t->tries >= kTriesMax) return end(t, Outcome::conflict, raw_version(current));
      return replace(t, current);
    case PutMode::if_absent:
      if (t->tries >= kTriesMax) return end(t, Outcome::exists, raw_version(current));
      return look_at_blocker(t, current);
  }
}

void Publisher::replace(const TryPtr& t, const Bytes& current) {
  const Version version = raw_version(current);
  if (!current.empty() && (version.none() || version.rev() == UINT32_MAX)) {
    return clear_away(t, current);
  }
  attempt(t, PutMode::if_version, version, version.rev() + 1);
}

// Mode A met a descriptor. A dead one must never block a key (spec kv 7.6).
void Publisher::look_at_blocker(const TryPtr& t, const Bytes& current) {
  if (t->mode == PutMode::if_version && current.empty()) {
    return attempt(t, PutMode::if_absent, Version(), 1);  // the dead one is gone
  }
  std::vector<Bytes> keys{to_bytes(t->task.slot.arena->slots().key(t->task.slot.index))};
  core_.directory().resolve(t->task.tenant->name(), std::move(keys),
                            core_.guarded([this, t](std::vector<Result<Pair>> pairs) {
                              if (pairs.size() != 1 || !pairs[0].ok())
                                return end(t, Outcome::control_down);
                              judge_blocker(t, *pairs[0]);
                            }));
}

void Publisher::judge_blocker(const TryPtr& t, const Pair& pair) {
  const PublishTask& put = t->task;
  const ByteView key = put.slot.arena->slots().key(put.slot.index);
  if (!pair.descriptor) return attempt(t, PutMode::if_absent, Version(), 1);
  const Version version = raw_version(*pair.descriptor);
  const Verified found =
      verify_pair(put.tenant->keys(), put.tenant->name(), key, pair.descriptor, pair.tag);
  // Half a pair, or one nobody accepts: readers reject it for ever.
  if (found.outcome != Outcome::ok) return repair(t, *pair.descriptor);
  const Location& location = found.descriptor.location;
  if (location.node == core_.options.id) {
    return dead_here(location) ? repair(t, *pair.descriptor) : end(t, Outcome::exists, version);
  }
  const auto judge = [this, t, version, dead_one = *pair.descriptor,
                      incarnation =
                          location.incarnation](Result<std::optional<NodeRecord>> record) {
    if (!record.ok()) return end(t, Outcome::exists, version);  // nobody knows: leave it
    const bool dead = !record->has_value() || (*record)->incarnation != incarnation;
    if (dead) return repair(t, dead_one);
    end(t, Outcome::exists, version);
  };
  core_.directory().find_node(location.node, core_.guarded(judge));
}

// Of another incarnation, of a generation that was retired, or of a slot that is no longer the
// key's.
bool Publisher::dead_here(const Location& location) const {
  const SlotRef slot = core_.find(location);
  if (!slot.valid()) return true;
  return slot.slot().state() == SlotState::quarantined && slot.slot().unknown == 0;
}

void Publisher::repair(const TryPtr& t, const Bytes& dead) {
  const Version version = raw_version(dead);
  if (t->tries >= kTriesMax) return end(t, Outcome::exists, version);
  core_.counters.add(Count::repairs);
  if (version.none() || version.rev() == UINT32_MAX) return clear_away(t, dead);
  attempt(t, PutMode::if_version, version, version.rev() + 1);
}

// What is there has no version to be named by (cut, forged), or none that could follow it: readers
// reject it for ever, and it would block the key for ever. Too short for a version, it counts as
// absent in a condition; otherwise it is deleted by its location, so that nothing else can go with
// it, and the key is put as an absent one.
void Publisher::clear_away(const TryPtr& t, const Bytes& dead) {
  if (dead.size() <= kVersionAt) return attempt(t, PutMode::if_version, Version(), 1);
  UnpublishRequest request;
  request.tenant = t->task.tenant->name();
  request.key = to_bytes(t->task.slot.arena->slots().key(t->task.slot.index));
  request.how = UnpublishRequest::How::location;
  request.location = decode_location(ByteView(dead).subspan(kLocationAt, kLocationBytes)).value();
  core_.directory().unpublish(std::move(request),
                              core_.guarded([this, t](const UnpublishReply& reply) {
                                const bool done = reply.kind == UnpublishReply::Kind::removed ||
                                                  reply.kind == UnpublishReply::Kind::absent ||
                                                  reply.kind == UnpublishReply::Kind::other;
                                if (!done) return end(t, Outcome::control_down);
                                attempt(t, PutMode::if_absent, Version(), 1);
                              }));
}

// It may be visible now, or become so: the slot keeps its bytes until the rotation. If the key
// names it, the put did succeed.
void Publisher::outcome_unknown(const TryPtr& t) {
  core_.counters.add(Count::publish_unknown);
  const SlotRef slot = t->task.slot;
#ifdef FARLIFT_PLANTED_BUGS
  if (core_.planted(PlantedBug::free_on_unknown_publish)) return end(t, Outcome::control_down);
#endif
  slot.arena->slots().quarantine(slot.index, true);
  std::vector<Bytes> keys{to_bytes(slot.arena->slots().key(slot.index))};
  core_.directory().resolve(
      t->task.tenant->name(), std::move(keys),
      core_.guarded([this, t](std::vector<Result<Pair>> pairs) {
        const SlotRef& mine = t->task.slot;
        const bool visible = pairs.size() == 1 && pairs[0].ok() && pairs[0]->descriptor &&
                             *pairs[0]->descriptor == t->capability.descriptor;
        // A reconcile may have been quicker, or a rotation gone by.
        if (!mine.valid()) return end(t, Outcome::control_down);
        if (mine.slot().state() == SlotState::published) {
          return end(t, Outcome::ok, mine.slot().version);
        }
        if (!visible || mine.slot().unknown == 0 || mine.arena->state() > ArenaState::migrate) {
          return end(t, Outcome::control_down);
        }
        mine.arena->slots().publish(mine.index);
        t->task.tenant->index(mine);
        end(t, Outcome::ok, mine.slot().version);
      }));
}

void Publisher::end(const TryPtr& t, Outcome outcome, Version version) {
  PutReply reply;
  reply.outcome = outcome;
  reply.version = version;
  if (outcome == Outcome::ok) {
    reply.descriptor = std::move(t->capability.descriptor);
    reply.tag = std::move(t->capability.tag);
  } else if (t->task.slot.valid()) {
    const SlotState state = t->task.slot.slot().state();
    if (state == SlotState::reserved || state == SlotState::sealed) {
      t->task.slot.arena->slots().release(t->task.slot.index);
    }
  }
  t->task.done(std::move(reply));
}

void Publisher::supersede(Tenant& tenant, ByteView key, ByteView descriptor) {
  const auto old = decode_descriptor(descriptor);
  if (!old.ok()) return;
  const Location& location = old->location;
  if (location.node != core_.options.id) {
    return peers_.superseded(tenant, location, old->version, key);
  }
  const SlotRef slot = core_.find(location);
  if (!slot.valid() || slot.arena->owner() != &tenant) return;
  if (!std::ranges::equal(slot.arena->slots().key(slot.index), key)) return;
  if (slot.slot().state() == SlotState::published) {
    slot.arena->slots().quarantine(slot.index, false);
  } else if (slot.slot().state() == SlotState::sealed) {
    // The answer to its own publish is still on its way; published() is told by this.
    slot.arena->slots().set_suspect(slot.index, true);
  }
}

}  // namespace farlift::kv::node
