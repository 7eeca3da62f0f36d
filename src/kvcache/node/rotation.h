// Rotation: how the bytes of an arena come to be used again, in the ten steps of spec kv 8.2. Each
// arena takes at most one step per step(), so that tests and simulations see every state.
//
// Invariants: P5: no byte is written before the arena's registrations are closed on every rail and
//             the fence of the fence mode has run; what cannot be closed is lost for good. The
//             directory being away stops nothing: what could not be unpublished is purged later,
//             by location (P11).
// Threads:    one. Errors: none; counters and ArenaState::lost.
#pragma once

#include "kvcache/node/migration.h"
#include "kvcache/node/unpublish_list.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace farlift::kv::node {

class Rotation {
 public:
  static constexpr Length kScrubPerStep{std::uint64_t{16} << 20};
  static constexpr std::uint32_t kQuarantinedPerStep = 4096;
  static constexpr Duration kRetryAfter = std::chrono::seconds(1);
  // What was emptied for a tenant that found no memory stays its own: who was told FULL comes back.
  static constexpr Duration kKept = std::chrono::seconds(10);

  // `fenced`: a tenant's endpoints were closed; its links must go.
  Rotation(Core& core, std::function<void(Tenant&)> fenced)
      : core_(core), fenced_(std::move(fenced)) {}

  // `heir`: who owns the arena afterwards; null: its owner. Nothing when it rotates already.
  void begin(Arena& arena, Tenant* heir = nullptr);
  bool rotating(const Arena& arena) const { return jobs_.contains(arena.id()); }
  std::size_t live() const noexcept { return jobs_.size(); }
  std::size_t purges() const noexcept { return purges_.size(); }
  bool step();
  Instant next_deadline() const noexcept;

 private:
  struct Job {
    Arena* arena = nullptr;
    Tenant* heir = nullptr;
    std::optional<Migration> migration;
    std::optional<UnpublishList> unpublish;
    std::uint32_t next = 0;  // slot to be quarantined
    bool known = false;      // some descriptor of it was handed out
    bool counting = false;   // leases are being counted
    bool counted = false;    // and nobody holds one
    Instant grace_since{};
    Instant not_before{};
    Location base;  // of this generation; outlives the registrations
  };
  struct Purge {
    std::unique_ptr<Slots> slots;
    std::optional<UnpublishList> list;
  };

  bool step(Job& job, bool& over);
  bool seal(Job& job);
  bool migrate(Job& job);
  bool unpublish(Job& job);
  bool grace(Job& job);
  void count_leases(Job& job);
  bool close(Job& job);
  bool fence(Job& job);
  bool fence_endpoints(Tenant& tenant);
  bool scrub(Job& job);
  bool enlist(Job& job, bool& over);
  void lose(Job& job);
  void purge_later(Job& job);
  bool reopen();

  Core& core_;
  std::function<void(Tenant&)> fenced_;
  std::map<ArenaId, Job> jobs_;
  std::vector<std::unique_ptr<Purge>> purges_;
  Instant reopen_not_before_{};
};

}  // namespace farlift::kv::node
