// Tenant: what belongs to one tenant and to nobody else: a domain, a target endpoint and an engine
// on each rail, arenas, a quota (spec kv 3, 10).
//
// Invariants: nothing of one tenant is registered in, or reachable through, a domain of another
//             (P7). An arena is in `arenas` of its owner alone. Engines and endpoints close before
//             the arenas' registrations, those before the domains.
// Threads:    one, beside the fabric's own.
// Errors:     open: the rail's own.
#pragma once

#include "core/fabric/fabric.h"
#include "core/transfer/engine.h"
#include "kvcache/control/environment.h"
#include "kvcache/node/arena.h"
#include "kvcache/node/heat_index.h"
#include "kvcache/node/node.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farlift::kv::node {

class Core;

class Tenant {
 public:
  Tenant(Core& core, TenantOptions options);
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;
  ~Tenant();

  Status open(std::span<const Rail> rails);
  // Engines and endpoints; the arenas' registrations may close afterwards.
  void close_endpoints();

  const std::string& name() const noexcept { return options_.name; }
  const Keyring& keys() const noexcept { return options_.keys; }
  Length quota() const noexcept { return options_.quota; }
  KeyHash key_hash(ByteView key) const;

  std::size_t rails() const noexcept { return rails_.size(); }
  fabric::Domain& domain(std::size_t rail) noexcept { return *rails_[rail].domain; }
  std::span<fabric::Domain* const> domains() const noexcept { return domains_; }
  // Null while it could not be opened again after a fence.
  fabric::TargetEndpoint* target(std::size_t rail) noexcept { return rails_[rail].target.get(); }
  bool targets_open() const noexcept;

  // The endpoint fence (spec kv 3): nothing that came through an old endpoint of any rail touches
  // memory afterwards. False: one would not close; then this fence is none, and no later one is
  // before that endpoint closes after all. Every rail opens anew all the same.
  bool fence_endpoints();
  Status reopen_targets();

  // The engine that pulls on a rail; null when it cannot be opened now.
  transfer::Engine* engine(std::size_t rail);
  // Fences every pull of the rail: they end before this returns, and later ones use another engine.
  void replace_engine(std::size_t rail);
  void bind(std::size_t rail, const fabric::Address& peer);
  void unbind(std::size_t rail, const fabric::Address& peer);
  bool step_engines();
  void add_wait_fds(std::vector<int>& fds) const;
  bool needs_polling() const noexcept;  // transfers on a rail without a descriptor

  // A slot in an active arena, growing up to the quota. nullopt: FULL, and `pressed` is set.
  std::optional<SlotRef> reserve(ByteView key, Length length);
  // A slot in an arena that is there already and is not `other`.
  std::optional<SlotRef> reserve_beside(const Arena* other, ByteView key, KeyHash key_hash,
                                        Length length);
  Status grow();
  Length held() const noexcept;  // bytes of arenas

  void index(const SlotRef& ref);
  void touch(KeyHash hash);

  std::vector<Arena*> arenas;
  HeatIndex heat;
  bool pressed = false;  // somebody was told FULL: rotate something
  bool starved = false;  // an arena could not be made for want of pinned memory

 private:
  struct TenantRail {
    const Rail* rail = nullptr;
    std::unique_ptr<fabric::Domain> domain;
    std::unique_ptr<fabric::TargetEndpoint> target;
    std::vector<std::unique_ptr<fabric::TargetEndpoint>> stuck;  // would not close
    std::unique_ptr<transfer::Engine> engine;
    std::map<std::string, std::pair<fabric::Address, std::uint32_t>> bound;
  };
  Status open_target(TenantRail& rail);
  std::unique_ptr<transfer::Engine> make_engine(TenantRail& rail);

  Core& core_;
  TenantOptions options_;
  std::vector<TenantRail> rails_;
  std::vector<fabric::Domain*> domains_;
  Arena* current_ = nullptr;
};

}  // namespace farlift::kv::node
