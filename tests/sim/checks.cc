#include "tests/sim/checks.h"

#include "kvcache/wire/names.h"

#include <algorithm>
#include <cstring>

namespace farlift::kv::simulation {

namespace {

// As std::ranges::equal, which goes byte by byte.
bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

}  // namespace

using fabric::sim::SimAccess;
using node::ArenaState;
using node::ArenaView;
using node::SlotState;
using node::SlotView;

bool Checks::inside(std::span<const std::byte> part, std::span<const std::byte> whole) {
  return !whole.empty() && part.data() >= whole.data() &&
         part.data() + part.size() <= whole.data() + whole.size();
}

Checks::Found Checks::find_arena(std::span<const std::byte> bytes) const {
  for (const auto& party : world_.nodes()) {
    if (!party->alive()) continue;
    for (std::uint32_t id = 1; id <= party->probe->arena_count(); ++id) {
      const auto memory = party->probe->memory(ArenaId(id));
      if (!inside(bytes, memory)) continue;
      const auto [gen, state] = party->probe->phase(ArenaId(id));
      return {party.get(), ArenaId(id), gen, state,
              static_cast<std::size_t>(bytes.data() - memory.data())};
    }
  }
  return {};
}

std::pair<ClientParty*, Area*> Checks::find_area(std::span<const std::byte> bytes) const {
  for (const auto& client : world_.clients()) {
    if (!inside(bytes, client->memory)) continue;
    for (Lane& lane : client->lanes) {
      for (Area& area : lane.areas) {
        if (inside(bytes, area.whole)) return {client.get(), &area};
      }
    }
  }
  return {nullptr, nullptr};
}

const SlotView* Checks::slot_at(const std::vector<SlotView>& slots, const Found& /*found*/,
                                std::span<const std::byte> bytes) const {
  for (const SlotView& slot : slots) {
    if (slot.state != SlotState::free && inside(bytes, slot.payload)) return &slot;
  }
  return nullptr;
}

void Checks::access(const SimAccess& access) {
  switch (access.when) {
    case SimAccess::When::posted:
      return posted(access);
    case SimAccess::When::admitted:
      if (const Found found = find_arena(access.remote); found.party != nullptr) {
        admitted_[access.operation] = {found.party->incarnation(), found.gen};
      }
      return;
    case SimAccess::When::moving:
      return moving(access);
  }
}

// P8, P9, P10, P12, P16: a read of a client is for a descriptor that a node signed for just this
// tenant and key, that came as a whole pair, and over the incarnation that it names.
void Checks::posted(const SimAccess& access) {
  if (access.kind != fabric::OpKind::read) return;
  const auto [client, area] = find_area(access.local);
  if (client == nullptr) return;  // a header, a pull, or the rogue
  if (!area->busy) {
    return world_.ledger().fail("P13: a read is posted into memory that was given back");
  }
  const auto& owner = world_.registry().endpoints[bytes_of(access.peer)];
  const Record* match = nullptr;
  std::optional<Instant> latest;
  for (const Record* record : world_.ledger().of({client->tenant, area->key})) {
    const Descriptor& d = record->descriptor;
    const auto from = d.location.addr.raw() + kHeaderBytes;
    const auto at = static_cast<std::uint64_t>(access.local.data() - area->inner().data());
    const bool key = std::ranges::find(d.rkeys, access.key) != d.rkeys.end();
    const NodeParty* node = world_.owner_of(owner.party, owner.life);
    const bool of_peer = node == nullptr || node->incarnation() == d.location.incarnation;
    if (!key || access.addr.raw() != from + at || !of_peer) continue;
    // A put that was tried twice has two descriptors of one place, and both may have been told;
    // which one is read by cannot be seen, so the one asked for last counts.
    const std::optional<Instant> asked = told(*client, *area, *record);
    if (match == nullptr || asked >= latest) {
      match = record;
      latest = asked;
    }
  }
  if (match != nullptr) return posted_into(*client, *area, *match);
  world_.ledger().fail("P8/P9: a read is posted for " + text_of({client->tenant, area->key}) +
                       " that no node of this incarnation signed for it");
}

// When it was asked for, at the latest; for entries of a manifest: now.
std::optional<Instant> Checks::told(const ClientParty& client, const Area& area,
                                    const Record& record) {
  if (client.told.in_a_manifest(record.encoded, record.tag)) return client.clock.now();
  const auto keys = client.told.pairs.find(area.key);
  if (keys == client.told.pairs.end()) return std::nullopt;
  const auto pair = keys->second.find({record.encoded, record.tag});
  return pair == keys->second.end() ? std::nullopt : std::optional(pair->second);
}

void Checks::posted_into(const ClientParty& client, const Area& area, const Record& record) {
  const std::optional<Instant> told_at = told(client, area, record);
  if (!told_at) {
    return world_.ledger().fail("P10/P12: a read is posted without a whole pair for " +
                                text_of({client.tenant, area.key}));
  }
  // P16: what was asked for before the read began came from the cache. Later parts of a striped
  // read wait for their turn, at most T_op.
  const Instant asked = *told_at;
  if (asked < area.began &&
      client.clock.now() - asked > world_.plan().lease + world_.plan().operation_limit) {
    const auto ms = [](Duration d) {
      return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
    };
    world_.ledger().fail(
        "P16: a cached descriptor older than L is used: age " + ms(client.clock.now() - asked) +
        " ms, begun " + ms(client.clock.now() - area.began) + " ms ago, L " +
        ms(world_.plan().lease) + " ms, T_op " + ms(world_.plan().operation_limit) + " ms");
  }
}

void Checks::moving(const SimAccess& access) {
  // P13: nothing lands in, or leaves from, what was given back.
  if (const auto [client, area] = find_area(access.local); client != nullptr) {
    if (!area->busy || !inside(access.local, area->inner().first(area->cap))) {
      world_.ledger().fail("P13: bytes move in memory of " + client->name +
                           " that no operation has");
    }
  }
  // P2: what lands in an arena lands in a reserved slot.
  const bool pull = access.kind == fabric::OpKind::read;
  const auto target = pull ? access.local : access.remote;
  if (const Found into = find_arena(target); into.party != nullptr) {
    into.party->probe->look(into.arena, slots_);
    const SlotView* slot = slot_at(slots_, into, target);
    if (slot == nullptr || slot->state != SlotState::reserved || (!pull && !slot->granted)) {
      world_.ledger().fail("P2: bytes land in node memory outside a reserved slot, " +
                           into.party->name);
    }
  }
  // P5: what a generation admitted is over before the next one begins.
  const auto admitted = admitted_.find(access.operation);
  if (admitted == admitted_.end()) return;
  const Found from = find_arena(access.remote);
  if (from.party == nullptr) return;
  if (from.gen != admitted->second.second || from.state == ArenaState::scrub ||
      from.state == ArenaState::enlist) {
    world_.ledger().fail("P5: an access admitted by a generation outlives its fence, " +
                         from.party->name);
  }
}

void Checks::started(const NodeParty& party) {
  if (!incarnations_.insert(party.incarnation()).second) {
    world_.ledger().fail("P8: " + party.name + " starts as an incarnation that was there before");
  }
}

void Checks::after_step() {
  directory();
  if (++ticks_ % 4 == 0) nodes();
}

void Checks::nodes() {
  for (const auto& party : world_.nodes()) {
    if (!party->alive()) continue;
    for (std::uint32_t id = 1; id <= party->probe->arena_count(); ++id) {
      party->probe->look(ArenaId(id), view_);
      arena(*party, view_);
    }
  }
  disjoint();
}

void Checks::arena(NodeParty& party, const ArenaView& view) {
  const Life life(party.name, party.life);
  for (std::size_t rail = 0; rail < view.keys.size(); ++rail) {
    const auto place = std::pair(view.id, view.gen);
    const auto [at, fresh] = arena_keys_[{life, rail}].try_emplace(view.keys[rail], place);
    if (!fresh && at->second != place) {
      world_.ledger().fail("P6: an arena's key was an arena's key before, " + party.name);
    }
  }
  party.probe->look(view.id, slots_);
  registrations(party, view, slots_);
  if (!view.keys.empty() && view.state != ArenaState::lost) slots(party, view, slots_);
}

void Checks::slots(NodeParty& party, const ArenaView& view, const std::vector<SlotView>& list) {
  for (const SlotView& one : list) {
    if (one.state >= SlotState::sealed) slot(party, one);
  }
  kept(party, view, list);
}

// P2: as it was when it was published.
void Checks::slot(NodeParty& party, const SlotView& slot) {
  const Location& l = slot.location;
  const auto* const records = world_.ledger().at({l.incarnation, l.arena, l.gen});
  const Record* last = nullptr;
  if (records != nullptr) {
    const auto [from, to] = records->equal_range(l.addr);
    for (auto at = from; at != to; ++at) {
      if (at->second->descriptor.version == slot.version) last = at->second;
    }
  }
  if (last == nullptr) {
    return world_.ledger().fail("P4: a sealed slot that was never offered, " + party.name);
  }
  if (!same(last->header, slot.header) || !same(last->payload, slot.payload)) {
    world_.ledger().fail("P2: a sealed slot changed: " + text_of(Name(last->tenant, last->key)) +
                         " at " + text_of(l));
  }
}

// P14: what was, or may have been, published stays until the rotation.
void Checks::kept(NodeParty& party, const ArenaView& view, const std::vector<SlotView>& list) {
  const auto* const records = world_.ledger().at({party.incarnation(), view.id, view.gen});
  if (records == nullptr) return;
  for (const auto& [addr, record] : *records) {
    if (!record->answered) continue;
    const auto at = std::ranges::find_if(list, [a = addr](const SlotView& s) {
      return s.location.addr == a && s.state != SlotState::free;
    });
    const bool there = at != list.end() && at->state >= SlotState::sealed &&
                       at->version == record->descriptor.version;
    if (!there) {
      world_.ledger().fail("P14: a slot that may be visible was freed before the rotation: " +
                           text_of(record->descriptor.location));
    }
  }
}

// P3, P5: who may still reach the arena's bytes.
void Checks::registrations(NodeParty& party, const ArenaView& view,
                           const std::vector<SlotView>& list) {
  if (view.state == ArenaState::lost) return;
  const auto memory = party.probe->memory(view.id);
  const Life life(party.name, party.life);
  std::size_t open = 0;
  for (const Held& held : world_.registry().open) {
    if (held.party != party.name || held.life != party.life || !inside(held.bytes, memory))
      continue;
    if (fabric::allows_write(held.access)) {
      const auto slot = std::ranges::find_if(list, [&](const SlotView& s) {
        return s.state != SlotState::free && inside(held.bytes, s.payload);
      });
      if (slot == list.end() || slot->state != SlotState::reserved) {
        if (!held.close_failed) {
          world_.ledger().fail("P3: a grant is open outside a reserved slot, " + party.name);
        }
        continue;
      }
      auto& seen = grants_[{life, held.rail}];
      const auto known = std::ranges::find_if(seen, [&](const auto& g) {
        return g.first == held.key && g.second != held.bytes.data() &&
               inside({g.second, 1}, held.bytes);
      });
      if (known != seen.end()) world_.ledger().fail("P6: a grant's key comes back, " + party.name);
      if (std::ranges::find(seen, std::pair(held.key, held.bytes.data())) == seen.end()) {
        seen.emplace_back(held.key, held.bytes.data());
      }
      continue;
    }
    ++open;
    const bool current = held.rail < view.keys.size() && view.keys[held.rail] == held.key;
    if (!current) {
      world_.ledger().fail("P5: a registration of an earlier generation is open, " + party.name);
    }
  }
  if (open != view.keys.size()) {
    world_.ledger().fail("P5: " + party.name + " has " + std::to_string(open) +
                         " registrations of an arena and knows of " +
                         std::to_string(view.keys.size()));
  }
}

// P7, and the first half of P3: domains of one rail never share a byte, nor do grants.
void Checks::disjoint() {
  const auto& open = world_.registry().open;
  for (auto a = open.begin(); a != open.end(); ++a) {
    if (a->access == fabric::Access::local) continue;
    for (auto b = std::next(a); b != open.end(); ++b) {
      if (b->access == fabric::Access::local || a->life != b->life || a->rail != b->rail) continue;
      const bool grants = fabric::allows_write(a->access) && fabric::allows_write(b->access);
      if (a->domain == b->domain && !grants) continue;
      if (a->bytes.data() < b->bytes.data() + b->bytes.size() &&
          b->bytes.data() < a->bytes.data() + a->bytes.size()) {
        world_.ledger().fail(grants ? "P3: two grants share bytes, " + a->party
                                    : "P7: two tenants share bytes, " + a->party);
      }
    }
  }
}

void Checks::directory_changed() {
  for (Watched& one : watched_) one.before.reset();
  revision_ = 0;
  directory();
}

// P11: what disappears was unpublished by its location.
void Checks::directory() {
  if (watched_.empty()) {
    for (std::uint32_t t = 0; t < world_.plan().tenants; ++t) {
      for (std::uint32_t k = 0; k < world_.plan().keys; ++k) {
        const Name name(world_.tenant(t), world_.key(k));
        watched_.push_back({name, descriptor_name(name.first, name.second), std::nullopt});
      }
    }
  }
  const sim::ValkeyState& state = world_.valkey().state();
  if (state.revision() == revision_ && world_.clock().now() < expires_) return;
  revision_ = state.revision();
  expires_ = Instant::max();
  for (Watched& one : watched_) {
    const auto [now, expires] = state.look(one.descriptor);
    expires_ = std::min(expires_, expires);
    if (now == nullptr && one.before) {
      const auto old = decode_descriptor(*one.before);
      if (old.ok() && !world_.ledger().may_vanish(one.name, old->location)) {
        world_.ledger().fail("P11: " + text_of(one.name) + " at " + text_of(old->location) +
                             " vanished though nobody unpublished this location");
      }
      one.before.reset();
    } else if (now != nullptr && one.before != *now) {
      one.before = *now;
    }
  }
}

void Checks::lane_quiet(const ClientParty& client, const Lane& lane) {
  for (const Area& area : lane.areas) {
    static const Bytes guard(Area::kGuard, std::byte{0x5a});
    if (!same(area.whole.first(Area::kGuard), guard) ||
        !same(area.whole.last(Area::kGuard), guard)) {
      world_.ledger().fail("P13: the guards around a destination of " + client.name + " changed");
    }
    if (!area.busy && !area.quiet.empty() && !same(area.quiet, area.inner())) {
      world_.ledger().fail("P13: a destination of " + client.name + " changed after its report");
    }
  }
}

void Checks::end_of_calm_world() {
  for (const Watched& one : watched_) {
    if (!one.before) continue;
    const auto found = decode_descriptor(*one.before);
    if (!found.ok()) continue;
    for (const auto& party : world_.nodes()) {
      if (!party->alive() || party->incarnation() != found->location.incarnation) continue;
      if (party->probe->at(found->location) == nullptr) {
        world_.ledger().fail("accounting: the directory still names " + text_of(found->location));
      }
    }
  }
}

}  // namespace farlift::kv::simulation
