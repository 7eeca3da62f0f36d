#include "kvcache/node/tenant.h"

#include "core/base/assert.h"
#include "core/base/log.h"
#include "kvcache/node/core.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {
namespace {

std::string key_of(const fabric::Address& address) {
  const auto bytes = address.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Tenant::Tenant(Core& core, TenantOptions options) : core_(core), options_(std::move(options)) {}

Tenant::~Tenant() { close_endpoints(); }

Status Tenant::open(std::span<const Rail> rails) {
  rails_.reserve(rails.size());
  for (const Rail& rail : rails) {
    TenantRail& mine = rails_.emplace_back();
    mine.rail = &rail;
    TRY_ASSIGN(mine.domain, rail.open_domain());
    domains_.push_back(mine.domain.get());
    TRY(open_target(mine));
  }
  return {};
}

Status Tenant::open_target(TenantRail& rail) {
  fabric::TargetOptions options;
  options.listen_ip = rail.rail->listen_ip;
  TRY_ASSIGN(rail.target, rail.domain->open_target(options));
  return {};
}

void Tenant::close_endpoints() {
  for (TenantRail& rail : rails_) {
    rail.engine.reset();
    rail.target.reset();
    rail.stuck.clear();
  }
}

KeyHash Tenant::key_hash(ByteView key) const {
  const Subkeys* const subkeys = keys().find(keys().signing_id());
  ASSERT(subkeys != nullptr);
  return subkeys->key_hash(key);
}

bool Tenant::targets_open() const noexcept {
  return std::all_of(rails_.begin(), rails_.end(),
                     [](const TenantRail& rail) { return rail.target != nullptr; });
}

bool Tenant::fence_endpoints() {
  bool all = true;
  for (TenantRail& rail : rails_) {
    if (rail.domain->info().fence_mode == fabric::FenceMode::mr) continue;
    if (rail.target != nullptr) rail.stuck.push_back(std::move(rail.target));
    std::erase_if(rail.stuck, [](const auto& target) { return target->close().ok(); });
    all = all && rail.stuck.empty();
  }
  core_.counters.add(Count::endpoint_fences);
  return all;
}

Status Tenant::reopen_targets() {
  for (TenantRail& rail : rails_) {
    if (rail.target == nullptr) TRY(open_target(rail));
  }
  return {};
}

std::unique_ptr<transfer::Engine> Tenant::make_engine(TenantRail& rail) {
  transfer::EngineOptions options;
  options.crc_pool = core_.worker->pool();
  options.initiator.connect_deadline =
      std::min<Duration>(options.initiator.connect_deadline, core_.options.operation_limit);
  auto made = transfer::Engine::create(*rail.domain, core_.environment.clock, options);
  if (!made.ok()) {
    logf(LogLevel::error, "kv node: no initiator on rail %s: %s", rail.rail->provider.c_str(),
         made.error().describe().c_str());
    return nullptr;
  }
  for (const auto& [key, bound] : rail.bound) (*made)->bind(bound.first);
  return std::move(made).value();
}

transfer::Engine* Tenant::engine(std::size_t rail) {
  TenantRail& mine = rails_[rail];
  if (mine.engine == nullptr) mine.engine = make_engine(mine);
  return mine.engine.get();
}

// The new one stands before the old one reports: retries go there.
void Tenant::replace_engine(std::size_t rail) {
  TenantRail& mine = rails_[rail];
  if (mine.engine == nullptr) return;
  core_.counters.add(Count::engine_fences);
  const std::unique_ptr<transfer::Engine> old = std::exchange(mine.engine, make_engine(mine));
  old->close();
}

void Tenant::bind(std::size_t rail, const fabric::Address& peer) {
  transfer::Engine* const to = engine(rail);
  auto& [address, count] = rails_[rail].bound[key_of(peer)];
  address = peer;
  if (count++ == 0 && to != nullptr) to->bind(peer);
}

void Tenant::unbind(std::size_t rail, const fabric::Address& peer) {
  const auto at = rails_[rail].bound.find(key_of(peer));
  ASSERT(at != rails_[rail].bound.end() && at->second.second > 0);
  if (--at->second.second > 0) return;
  rails_[rail].bound.erase(at);
  if (rails_[rail].engine != nullptr) rails_[rail].engine->unbind(peer);
}

bool Tenant::step_engines() {
  bool any = false;
  for (TenantRail& rail : rails_) {
    if (rail.engine != nullptr) any = rail.engine->step() || any;
  }
  return any;
}

void Tenant::add_wait_fds(std::vector<int>& fds) const {
  for (const TenantRail& rail : rails_) {
    if (rail.engine != nullptr && rail.engine->wait_fd() >= 0)
      fds.push_back(rail.engine->wait_fd());
  }
}

bool Tenant::needs_polling() const noexcept {
  return std::any_of(rails_.begin(), rails_.end(), [](const TenantRail& rail) {
    return rail.engine != nullptr && rail.engine->live() > 0 && rail.engine->wait_fd() < 0;
  });
}

std::optional<SlotRef> Tenant::reserve(ByteView key, Length length) {
  const KeyHash hash = key_hash(key);
  const auto in = [&](Arena& arena) -> std::optional<SlotRef> {
    if (arena.state() != ArenaState::active || arena.doomed()) return std::nullopt;
    const auto index = arena.slots().reserve(key, hash, length);
    if (!index) return std::nullopt;
    current_ = &arena;
    return arena.ref(*index);
  };
  if (current_ != nullptr && current_->owner() == this) {
    if (auto found = in(*current_)) return found;
  }
  for (Arena* const arena : arenas) {
    if (auto found = in(*arena)) return found;
  }
  if (grow().ok()) {
    if (auto found = in(*arenas.back())) return found;
  }
  pressed = true;
  return std::nullopt;
}

std::optional<SlotRef> Tenant::reserve_beside(const Arena* other, ByteView key, KeyHash hash,
                                              Length length) {
  for (Arena* const arena : arenas) {
    if (arena == other || arena->state() != ArenaState::active || arena->doomed()) continue;
    if (const auto index = arena->slots().reserve(key, hash, length)) return arena->ref(*index);
  }
  return std::nullopt;
}

Status Tenant::grow() {
  if (held() + core_.options.arena_size > quota()) return Error::make(Errc::exhausted, "quota");
  const ArenaId id(static_cast<std::uint32_t>(core_.arenas.size() + 1));
  auto made = Arena::create(id, core_.options.arena_size, rails_.size(), core_.budget);
  Status enlisted = made.ok() ? Status() : Status(made.error());
  if (enlisted.ok()) {
    enlisted = (*made)->enlist(*this, domains_, core_.retired, core_.counters,
                               core_.planted(PlantedBug::constant_key));
  }
  if (!enlisted.ok()) {
    core_.counters.add(Count::arenas_refused);
    starved = true;
    return enlisted;
  }
  core_.counters.add(Count::arenas_made);
  starved = false;
  arenas.push_back(made->get());
  core_.arenas.push_back(std::move(made).value());
  core_.populate_later(*arenas.back());
  return {};
}

Length Tenant::held() const noexcept {
  return Length(core_.options.arena_size.raw() * arenas.size());
}

void Tenant::index(const SlotRef& ref) {
  heat.insert({ref.slot().key_hash, ref.arena->id(), ref.index});
}

void Tenant::touch(KeyHash hash) {
  const auto at = heat.find(hash);
  if (!at) return;
  Arena* const arena = core_.arena(at->arena);
  if (arena->owner() != this || at->slot.raw() >= arena->slots().size()) return;
  const Slot& slot = arena->slots()[at->slot];
  if (slot.key_hash != hash || slot.state() != SlotState::published) return;
  arena->slots().touch(at->slot);
  ++arena->heat;
  core_.counters.add(Count::touches);
}

}  // namespace farlift::kv::node
