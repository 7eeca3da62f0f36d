#include "kvcache/node/slots.h"

#include "core/base/assert.h"

#include <algorithm>
#include <cstring>

namespace farlift::kv::node {
namespace {

constexpr int kFreeTriesMax = 8;

std::uint64_t alignment_of(Length length) noexcept {
  return length.raw() >= kLargePayload ? kPayloadAlignLarge : kPayloadAlignSmall;
}

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

Slots::Slots(Length arena_size) : size_(arena_size) {
  ASSERT(arena_size.raw() >= 2 * kArenaAlign && arena_size <= kArenaSizeMax);
}

std::uint64_t Slots::end_of(std::uint32_t index) const noexcept {
  return index + 1 < slots_.size() ? slots_[index + 1].header().raw() : mark_;
}

void Slots::set_state(Slot& slot, SlotState state) {
  ASSERT(counts_[slot.state_bits] > 0 || slot.state() == SlotState::free);
  if (slot.state() == SlotState::published) live_ -= Length(slot.length);
  if (state == SlotState::published) live_ += Length(slot.length);
  --counts_[slot.state_bits];
  slot.state_bits = static_cast<std::uint64_t>(state) & 7u;
  ++counts_[slot.state_bits];
}

void Slots::write_key(Slot& slot, ByteView key, bool in_place) {
  if (!in_place) {
    if (kChunk - key_mark_ < key.size()) {
      key_chunks_.push_back(std::make_unique<std::array<std::byte, kChunk>>());
      key_mark_ = 0;
    }
    slot.key_at = static_cast<std::uint32_t>((key_chunks_.size() - 1) * kChunk + key_mark_);
    key_mark_ += key.size();
  }
  slot.key_length = key.size() & 0x7FFu;
  std::memcpy(key_chunks_[slot.key_at / kChunk]->data() + slot.key_at % kChunk, key.data(),
              key.size());
}

ByteView Slots::key(SlotIndex index) const {
  const Slot& slot = slots_[index.raw()];
  return {key_chunks_[slot.key_at / kChunk]->data() + slot.key_at % kChunk, slot.key_length};
}

// A free slot that fits without wasting more than it holds.
std::optional<std::uint32_t> Slots::take_free(Length length) {
  auto at = free_.lower_bound({length.raw(), 0});
  for (int i = 0; i < kFreeTriesMax && at != free_.end(); ++i, ++at) {
    if (at->first > 2 * length.raw() + kArenaAlign) break;
    const std::uint32_t index = at->second;
    if (slots_[index].payload().raw() % alignment_of(length) != 0) continue;
    free_.erase(at);
    return index;
  }
  return std::nullopt;
}

std::optional<SlotIndex> Slots::reserve(ByteView key, KeyHash key_hash, Length length) {
  ASSERT(!key.empty() && key.size() <= kKeyBytesMax);
  if (length > value_max(size_)) return std::nullopt;
  std::optional<std::uint32_t> index = take_free(length);
  const bool again = index.has_value();
  if (!again) {
    const std::uint64_t payload = round_up(mark_ + kHeaderBytes, alignment_of(length));
    if (!fits(Offset(payload), length, size_) || slots_.size() >= kSlotsMax) return std::nullopt;
    if ((key_chunks_.size() + 1) * kChunk > UINT32_MAX) return std::nullopt;
    index = static_cast<std::uint32_t>(slots_.size());
    Slot fresh;
    fresh.unit = static_cast<std::uint32_t>(payload / kPayloadAlignSmall);
    slots_.push_back(fresh);
    ++counts_[static_cast<std::size_t>(SlotState::free)];
    mark_ = payload + length.raw();
  }
  Slot& slot = slots_[*index];
  ASSERT(slot.state() == SlotState::free);
  write_key(slot, key, again && key.size() <= slot.key_length);
  slot.version = Version();
  slot.key_hash = key_hash;
  slot.length = length.raw() & 0xFFFFFFFFFFu;
  slot.crc = Crc32c();
  slot.unknown = slot.granted = slot.suspect = 0;
  slot.heat = 0;
  slot.serial = next_serial_++;
  set_state(slot, SlotState::reserved);
  return SlotIndex(*index);
}

void Slots::set_granted(SlotIndex index, bool granted) {
  Slot& slot = slots_[index.raw()];
  ASSERT(slot.state() == SlotState::reserved && slot.granted != (granted ? 1u : 0u));  // P3
  slot.granted = granted ? 1 : 0;
}

void Slots::seal(SlotIndex index, Version version, Crc32c crc) {
  Slot& slot = slots_[index.raw()];
  ASSERT(slot.state() == SlotState::reserved && !version.none());
#ifndef FARLIFT_PLANTED_BUGS
  ASSERT(slot.granted == 0);  // P2: nobody can write it any more
#endif
  slot.version = version;
  slot.crc = crc;
  set_state(slot, SlotState::sealed);
}

void Slots::unseal(SlotIndex index) {
  Slot& slot = slots_[index.raw()];
  ASSERT(slot.state() == SlotState::sealed);
  slot.suspect = 0;
  set_state(slot, SlotState::reserved);
}

void Slots::publish(SlotIndex index) {
  Slot& slot = slots_[index.raw()];
  const bool was_unknown = slot.state() == SlotState::quarantined && slot.unknown != 0;
  ASSERT(slot.state() == SlotState::sealed || was_unknown);  // P4
  slot.unknown = slot.suspect = 0;
  set_state(slot, SlotState::published);
}

void Slots::quarantine(SlotIndex index, bool unknown) {
  Slot& slot = slots_[index.raw()];
  ASSERT(slot.state() == SlotState::published || slot.state() == SlotState::sealed);
  ASSERT(!unknown || slot.state() == SlotState::sealed);
  slot.unknown = unknown ? 1 : 0;
  slot.suspect = 0;
  set_state(slot, SlotState::quarantined);
}

void Slots::release(SlotIndex index) {
  Slot& slot = slots_[index.raw()];
  // P14 and spec kv 7: what may have been handed out waits for the rotation.
  ASSERT(slot.state() == SlotState::reserved || slot.state() == SlotState::sealed);
  ASSERT(slot.granted == 0);
  set_state(slot, SlotState::free);
  free_.emplace(end_of(index.raw()) - slot.payload().raw(), index.raw());
  drop_tail();
}

#ifdef FARLIFT_PLANTED_BUGS
void Slots::release_planted(SlotIndex index) {
  set_state(slots_[index.raw()], SlotState::reserved);
  release(index);
}
#endif

// Free slots at the end give their bytes back to the mark.
void Slots::drop_tail() {
  bool popped = false;
  while (!slots_.empty() && slots_.back().state() == SlotState::free) {
    const auto last = static_cast<std::uint32_t>(slots_.size() - 1);
    const std::size_t erased = free_.erase({end_of(last) - slots_[last].payload().raw(), last});
    ASSERT(erased == 1);
    mark_ = slots_[last].header().raw();
    slots_.pop_back();
    --counts_[static_cast<std::size_t>(SlotState::free)];
    popped = true;
  }
  if (popped) mark_ = slots_.empty() ? 0 : slots_.back().payload().raw() + slots_.back().length;
}

std::optional<SlotIndex> Slots::find(Offset header) const {
  const auto at =
      std::lower_bound(slots_.begin(), slots_.end(), header,
                       [](const Slot& slot, Offset offset) { return slot.header() < offset; });
  if (at == slots_.end() || at->header() != header || at->state() == SlotState::free) {
    return std::nullopt;
  }
  return SlotIndex(static_cast<std::uint32_t>(at - slots_.begin()));
}

void Slots::touch(SlotIndex index) noexcept {
  Slot& slot = slots_[index.raw()];
  if (slot.heat < 127) ++slot.heat;
}

}  // namespace farlift::kv::node
