// Slots: the manifest of one generation of an arena (spec kv 2): which bytes belong to which key
// and version, and in what state. Allocation moves a mark upwards; what comes back by the two ways
// that need no rotation (below) is used again where it fits.
//
//   reserved ──seal──► sealed ──publish──► published ──quarantine──► quarantined
//      │ ▲                │ └──────────────quarantine──────────────────▲  │ (publish: it was
//      visible │ └──unseal────────┤                                               ▼  after all)
//      published └────────release───┴──► free                     only a rotation frees these
//
// Invariants: slots are disjoint, in ascending order, header directly before the payload; payloads
//             are 4096-aligned from 64 KiB on, 64-aligned below (spec kv 2). A slot goes back to
//             free only from reserved or sealed (spec kv 7); nothing of it changes in sealed,
//             published and quarantined (P2). Every transition is an ASSERT.
// Memory:     40 bytes and the key for a slot.
// Threads:    one. Errors: nullopt when there is no room.
#pragma once

#include "core/base/types.h"
#include "kvcache/wire/types.h"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace farlift::kv::node {

enum class SlotState : std::uint8_t { free, reserved, sealed, published, quarantined };

using SlotIndex = StrongInt<struct SlotIndexTag, std::uint32_t>;

struct Slot {
  Version version;
  KeyHash key_hash;
  std::uint64_t length : 40;  // of the payload
  std::uint64_t key_length : 11;
  std::uint64_t state_bits : 3;
  std::uint64_t unknown : 1;  // quarantined because the outcome of its publish is not known
  std::uint64_t granted : 1;  // a peer may write the payload; only while reserved
  std::uint64_t suspect : 1;  // published: a reconcile did not find it, the next one decides;
                              // sealed: overwritten before the answer to its publish came
  std::uint64_t heat : 7;     // touches, halved every minute
  std::uint32_t unit = 0;     // payload offset / kPayloadAlignSmall
  std::uint32_t key_at = 0;
  Crc32c crc;
  std::uint32_t serial = 0;  // tells users of one index apart

  Slot() noexcept
      : length(0), key_length(0), state_bits(0), unknown(0), granted(0), suspect(0), heat(0) {}
  SlotState state() const noexcept { return static_cast<SlotState>(state_bits); }
  Offset payload() const noexcept { return Offset(std::uint64_t{unit} * kPayloadAlignSmall); }
  Offset header() const noexcept { return Offset(payload().raw() - kHeaderBytes); }
};
static_assert(sizeof(Slot) == 40);

inline constexpr Length kArenaSizeMax{std::uint64_t{1} << 38};  // units of 64 bytes in 32 bits

class Slots {
 public:
  static constexpr std::size_t kSlotsMax = std::size_t{1} << 31;

  explicit Slots(Length arena_size);

  // Longest payload an arena of this size takes (spec kv 2).
  static Length value_max(Length arena_size) noexcept { return Length(arena_size.raw() - 4096); }

  std::optional<SlotIndex> reserve(ByteView key, KeyHash key_hash, Length length);
  void set_granted(SlotIndex index, bool granted);  // only while reserved
  void seal(SlotIndex index, Version version, Crc32c crc);
  void unseal(SlotIndex index);  // after a definite refusal: nothing was handed out
  void publish(SlotIndex index);
  void quarantine(SlotIndex index, bool unknown);
  void release(SlotIndex index);
#ifdef FARLIFT_PLANTED_BUGS
  void release_planted(SlotIndex index);  // from any state
#endif

  const Slot& operator[](SlotIndex index) const { return slots_[index.raw()]; }
  ByteView key(SlotIndex index) const;
  std::optional<SlotIndex> find(Offset header) const;  // not free
  bool valid(SlotIndex index, std::uint32_t serial) const noexcept {
    return index.raw() < slots_.size() && slots_[index.raw()].serial == serial &&
           slots_[index.raw()].state() != SlotState::free;
  }
  void touch(SlotIndex index) noexcept;
  void cool(SlotIndex index) noexcept {
    slots_[index.raw()].heat = (slots_[index.raw()].heat / 2) & 0x7Fu;
  }
  void set_suspect(SlotIndex index, bool suspect) noexcept {
    slots_[index.raw()].suspect = suspect ? 1 : 0;
  }

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  std::uint64_t count(SlotState state) const noexcept {
    return counts_[static_cast<std::size_t>(state)];
  }
  Length live() const noexcept { return live_; }          // payload bytes of published slots
  Length used() const noexcept { return Length(mark_); }  // below the mark, free ones included
  Length capacity() const noexcept { return size_; }
  std::uint64_t key_bytes() const noexcept { return key_chunks_.size() * kChunk; }

 private:
  static constexpr std::size_t kChunk = std::size_t{64} << 10;

  std::uint64_t end_of(std::uint32_t index) const noexcept;  // where the next slot's header begins
  std::optional<std::uint32_t> take_free(Length length);
  void set_state(Slot& slot, SlotState state);
  void write_key(Slot& slot, ByteView key, bool in_place);
  void drop_tail();

  Length size_;
  std::uint64_t mark_ = 0;
  std::deque<Slot> slots_;                                  // ascending by offset
  std::set<std::pair<std::uint64_t, std::uint32_t>> free_;  // capacity, index
  std::vector<std::unique_ptr<std::array<std::byte, kChunk>>> key_chunks_;
  std::size_t key_mark_ = kChunk;  // in the last chunk
  std::array<std::uint64_t, 5> counts_{};
  Length live_;
  std::uint32_t next_serial_ = 1;
};

}  // namespace farlift::kv::node
