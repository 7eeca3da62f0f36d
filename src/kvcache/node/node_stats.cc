// What a node says of itself: counters, gauges, and the probe of tests.
#include "core/base/assert.h"
#include "kvcache/node/node_impl.h"

namespace farlift::kv::node {

void NodeImpl::add_gauges(std::vector<std::pair<std::string, std::uint64_t>>& out,
                          const Tenant* only) const {
  std::uint64_t arenas = 0, rotating = 0, lost = 0, reserved = 0, sealed = 0, published = 0,
                quarantined = 0, live = 0, used = 0, capacity = 0, bookkeeping = 0;
  for (const auto& arena : core_.arenas) {
    if (only != nullptr && arena->owner() != only) continue;
    const Slots& slots = arena->slots();
    ++arenas;
    rotating += rotation_.rotating(*arena) ? 1 : 0;
    lost += arena->state() == ArenaState::lost ? 1 : 0;
    reserved += slots.count(SlotState::reserved);
    sealed += slots.count(SlotState::sealed);
    published += slots.count(SlotState::published);
    quarantined += slots.count(SlotState::quarantined);
    live += slots.live().raw();
    used += slots.used().raw();
    capacity += arena->size().raw();
    bookkeeping += slots.key_bytes() + slots.size() * sizeof(Slot);
  }
  for (const auto& tenant : core_.tenants) {
    if (only == nullptr || tenant.get() == only) bookkeeping += tenant->heat.bytes();
  }
  for (const auto& [name, value] : std::initializer_list<std::pair<const char*, std::uint64_t>>{
           {"arenas", arenas},
           {"arenas_rotating", rotating},
           {"arenas_lost_now", lost},
           {"slots_reserved", reserved},
           {"slots_sealed", sealed},
           {"slots_published", published},
           {"slots_quarantined", quarantined},
           {"bytes_live", live},
           {"bytes_used", used},
           {"bytes_capacity", capacity},
           {"bytes_bookkeeping", bookkeeping}}) {
    out.emplace_back(name, value);
  }
}

std::vector<std::pair<std::string, std::uint64_t>> NodeImpl::stats() const {
  std::vector<std::pair<std::string, std::uint64_t>> out;
  for (std::size_t i = 0; i < Counters::kNames.size(); ++i) {
    out.emplace_back(Counters::kNames[i], core_.counters.get(static_cast<Count>(i)));
  }
  add_gauges(out, nullptr);
  std::uint64_t keys = 0;
  for (const KeySet& set : core_.retired) keys += set.size();
  out.emplace_back("keys_ever", keys);
  out.emplace_back("links", sessions_.size());
  out.emplace_back("grants_open", grants_.live());
  out.emplace_back("pulls_open", pulls_.live());
  out.emplace_back("purges_waiting", rotation_.purges());
  out.emplace_back("tenants", core_.tenants.size());
  out.emplace_back("directory_up", core_.directory_up ? 1 : 0);
  out.emplace_back("draining", core_.draining ? 1 : 0);
  return out;
}

// One tenant learns about its own arenas; the counters are the node's.
StatReply NodeImpl::stat_for(const Tenant& tenant) const {
  StatReply reply;
  for (std::size_t i = 0; i < Counters::kNames.size(); ++i) {
    reply.counters.emplace_back(Counters::kNames[i], core_.counters.get(static_cast<Count>(i)));
  }
  add_gauges(reply.counters, &tenant);
  reply.counters.emplace_back("quota", tenant.quota().raw());
  reply.counters.emplace_back("draining", core_.draining ? 1 : 0);
  return reply;
}

void NodeImpl::look(ArenaId id, ArenaView& view) const {
  const Arena& arena = *core_.arenas.at(id.raw() - 1);
  const Slots& slots = arena.slots();
  view.id = arena.id();
  view.gen = arena.gen();
  view.state = arena.state();
  view.tenant = arena.owner()->name();
  view.free = slots.count(SlotState::free);
  view.reserved = slots.count(SlotState::reserved);
  view.sealed = slots.count(SlotState::sealed);
  view.published = slots.count(SlotState::published);
  view.quarantined = slots.count(SlotState::quarantined);
  view.used = slots.used();
  view.live = slots.live();
  view.keys.clear();
  for (std::size_t rail = 0; rail < arena.rails(); ++rail) {
    if (arena.registration(rail) != nullptr) view.keys.push_back(arena.registration(rail)->key());
  }
}

std::pair<ArenaGen, ArenaState> NodeImpl::phase(ArenaId id) const {
  const Arena& arena = *core_.arenas.at(id.raw() - 1);
  return {arena.gen(), arena.state()};
}

void NodeImpl::look(ArenaId id, std::vector<SlotView>& views) const {
  if (id.raw() < 1 || id.raw() > core_.arenas.size()) return views.clear();
  const Arena& arena = *core_.arenas[id.raw() - 1];
  views.resize(arena.slots().size());
  for (std::uint32_t i = 0; i < arena.slots().size(); ++i) {
    const SlotIndex index(i);
    const Slot& slot = arena.slots()[index];
    SlotView& view = views[i];
    const ByteView key = arena.slots().key(index);
    view.key.assign(key.begin(), key.end());
    view.state = slot.state();
    view.unknown = slot.unknown != 0;
    view.granted = slot.granted != 0;
    view.version = slot.version;
    view.crc = slot.crc;
    view.location = {};
    if (arena.registration(0) != nullptr) {
      view.location = arena.location(core_.options.id, core_.incarnation, index);
    }
    view.header = arena.header(index);
    view.payload = arena.payload(index);
  }
}

std::span<std::byte> NodeImpl::memory(ArenaId id) const {
  if (id.raw() < 1 || id.raw() > core_.arenas.size()) return {};
  return core_.arenas[id.raw() - 1]->memory_for_tests();
}

std::byte* NodeImpl::at(const Location& location) const {
  const std::span<std::byte> bytes = memory(location.arena);
  if (bytes.empty()) return nullptr;
  const Arena& arena = *core_.arenas[location.arena.raw() - 1];
  if (arena.gen() != location.gen || arena.registration(0) == nullptr) return nullptr;
  const std::uint64_t offset = location.addr.raw() - arena.base().raw();
  return offset < bytes.size() ? bytes.data() + offset : nullptr;
}

bool NodeImpl::hand_over(ArenaId id, const std::string& name) {
  Arena* const arena = core_.arena(id);
  Tenant* const heir = core_.tenant(name);
  if (arena == nullptr || heir == nullptr || arena->state() != ArenaState::active) return false;
  rotation_.begin(*arena, heir);
  return true;
}

std::uint64_t NodeImpl::counter(std::string_view name) const {
  for (const auto& [known, value] : stats()) {
    if (known == name) return value;
  }
  ASSERT(false);
  return 0;
}

NodeProbe& probe(Node& node) { return static_cast<NodeImpl&>(node); }

}  // namespace farlift::kv::node
