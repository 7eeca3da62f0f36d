// Arena: huge-page-backed memory of one tenant, registered read-only for peers on every rail under
// keys that were never used before, in generations (spec kv 2, 8.2).
//
// Invariants: owned by exactly one tenant at a time and registered in its domains only (P7). Keys
//             are fresh in the node's incarnation, rail by rail (P6): enlist() compares with all
//             there ever were. Bytes are written only through payload_for_write() and
//             header_for_write(), which ASSERT the slot's state, and by scrub() between the fence
//             and enlist() (P2, P5). Arenas live as long as the node; a lost one keeps its memory.
// Threads:    one. Errors: enlist: the rail's own; corrupt: the provider repeats its keys.
#pragma once

#include "core/base/clock.h"
#include "core/fabric/fabric.h"
#include "core/memory/budget.h"
#include "core/memory/mapping.h"
#include "kvcache/node/counters.h"
#include "kvcache/node/key_set.h"
#include "kvcache/node/slots.h"
#include "kvcache/wire/layout.h"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace farlift::kv::node {

class Tenant;
class Arena;

// The steps of a rotation (spec kv 8.2), in order; purge runs beside the next generation.
enum class ArenaState : std::uint8_t {
  active,
  sealing,
  migrate,
  unpublish,
  grace,
  close,
  fence,
  scrub,
  enlist,  // register: a word of C++
  lost,    // a registration could not be ended: never written again in this incarnation
};
std::string_view to_string(ArenaState state) noexcept;

// One slot of one generation; valid() after anything asynchronous.
struct SlotRef {
  Arena* arena = nullptr;
  ArenaGen gen;
  SlotIndex index;
  std::uint32_t serial = 0;
  bool valid() const noexcept;
  const Slot& slot() const;
};

class Arena {
 public:
  static constexpr std::uint64_t kPopulatedAtOnce = std::uint64_t{4} << 20;
  static constexpr int kKeyTriesMax = 16;                 // 8.2 step 8
  static constexpr std::size_t kGrantKeysMax = 4u << 20;  // of one arena in one incarnation

  static Result<std::unique_ptr<Arena>> create(ArenaId id, Length size, std::size_t rails,
                                               memory::PinnedBudget& budget);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  ArenaId id() const noexcept { return id_; }
  ArenaGen gen() const noexcept { return gen_; }
  ArenaState state() const noexcept { return state_; }
  Length size() const noexcept { return size_; }
  Tenant* owner() const noexcept { return owner_; }
  Slots& slots() noexcept { return *slots_; }
  const Slots& slots() const noexcept { return *slots_; }
  std::size_t rails() const noexcept { return rails_; }
  // Null between the closing and the next generation.
  fabric::Registration* registration(std::size_t rail) const noexcept {
    return rail < registrations_.size() ? registrations_[rail].get() : nullptr;
  }
  RemoteAddr base() const noexcept { return registrations_[0]->addr(); }
  Location location(NodeId node, Incarnation incarnation, SlotIndex index) const;

  // Registers with every rail of `owner` (8.2 step 8) and begins the next generation: active.
  Status enlist(Tenant& owner, std::span<fabric::Domain* const> domains, std::span<KeySet> retired,
                Counters& counters, bool skip_retired = false);
  // 8.2 step 5: false when any rail refused; nothing may be reused then.
  bool close_registrations();
  // The manifest goes on to be purged; empty ones take its place.
  std::unique_ptr<Slots> take_slots();
#ifdef FARLIFT_PLANTED_BUGS
  void leak_registrations_planted();
#endif
  // Zero-fills the next part; true when all is zero.
  bool scrub(Length at_most);

  // The step of the rotation; each is one way (ASSERT), any may end in lost.
  void advance(ArenaState next);

  SlotRef ref(SlotIndex index) noexcept;
  std::span<std::byte> payload_for_write(SlotIndex index);  // of a reserved slot
  std::span<std::byte, kHeaderBytes> header_for_write(SlotIndex index);
  std::span<const std::byte> payload(SlotIndex index) const;
  std::span<const std::byte> header(SlotIndex index) const;
  std::span<std::byte> memory_for_tests() const noexcept { return bytes_; }
  // Makes the next pages present; false: all are. Changes no byte; from any thread, one at a time.
  bool populate_some() noexcept;

  // Lends the payload of a reserved slot for writing on every rail, under keys never granted in
  // this arena before. exhausted: kGrantKeysMax.
  Result<std::vector<std::unique_ptr<fabric::Registration>>> grant(
      SlotIndex index, std::span<fabric::Domain* const> domains, Counters& counters);
  // Registrations that would not close keep their memory for ever.
  void keep_stuck(std::unique_ptr<fabric::Registration> registration) {
    stuck_.push_back(std::move(registration));
  }
  // Memory a peer may still write: it will be lost at the end of its rotation.
  void doom() noexcept { doomed_ = true; }
  bool doomed() const noexcept { return doomed_; }

  // For eviction: touches halved every minute, and when this generation began to be filled.
  std::uint64_t heat = 0;
  Instant first_publish = Instant::max();
  Instant kept_until{};  // until then it is not handed over to another tenant
  // Halves the touches of the slots from `from` on, `at_most` of them; the next one, or size().
  std::uint32_t cool(std::uint32_t from, std::uint32_t at_most) noexcept;

 private:
  Arena(ArenaId id, Length size, std::size_t rails, memory::Mapping mapping,
        memory::PinnedBudget::Reservation reservation);

  const ArenaId id_;
  const Length size_;
  const std::size_t rails_;
  memory::Mapping mapping_;
  memory::PinnedBudget::Reservation reservation_;
  const std::span<std::byte> bytes_;
  Tenant* owner_ = nullptr;
  ArenaGen gen_;
  ArenaState state_ = ArenaState::enlist;
  bool doomed_ = false;
  std::uint64_t scrubbed_ = 0;
  std::uint64_t populated_ = 0;
  std::vector<KeySet> grant_keys_;  // a rail
  std::unique_ptr<Slots> slots_;
  std::vector<std::unique_ptr<fabric::Registration>> registrations_;  // a rail
  std::vector<std::unique_ptr<fabric::Registration>> stuck_;
#ifdef FARLIFT_PLANTED_BUGS
  std::vector<std::unique_ptr<fabric::Registration>> leaked_;
#endif
};

inline bool SlotRef::valid() const noexcept {
  return arena != nullptr && arena->gen() == gen && arena->slots().valid(index, serial);
}
inline const Slot& SlotRef::slot() const { return arena->slots()[index]; }

}  // namespace farlift::kv::node
