// HeatIndex: finds the slot of a key hash, for TOUCH (spec kv 5): the node never sees reads. Open
// addressing, 16 bytes an entry.
//
// Invariants: an entry may be older than its slot; users check SlotRef::valid() and the hash.
// Threads:    one. Errors: none.
#pragma once

#include "kvcache/node/arena.h"

#include <cstdint>
#include <vector>

namespace farlift::kv::node {

class HeatIndex {
 public:
  struct Entry {
    KeyHash hash;
    ArenaId arena;  // 0: empty
    SlotIndex slot;
  };

  const Entry* find(KeyHash hash) const noexcept {
    if (table_.empty()) return nullptr;
    const Entry& at = table_[place(hash)];
    return at.arena.raw() == 0 ? nullptr : &at;
  }
  void insert(const Entry& entry) {
    if ((size_ + 1) * 4 > table_.size() * 3) grow();
    Entry& at = table_[place(entry.hash)];
    size_ += at.arena.raw() == 0 ? 1 : 0;
    at = entry;
  }
  // Only when it still means that slot.
  void erase(const Entry& entry) noexcept {
    if (table_.empty()) return;
    std::size_t hole = place(entry.hash);
    if (table_[hole].arena != entry.arena || table_[hole].slot != entry.slot) return;
    const std::size_t mask = table_.size() - 1;
    --size_;
    for (std::size_t at = (hole + 1) & mask; table_[at].arena.raw() != 0; at = (at + 1) & mask) {
      const std::size_t home = spread(table_[at].hash) & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;  // it is where it may be
      table_[hole] = table_[at];
      hole = at;
    }
    table_[hole] = Entry{};
  }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return table_.size() * sizeof(Entry); }

 private:
  static std::size_t spread(KeyHash hash) noexcept { return hash.raw() >> 8; }
  std::size_t place(KeyHash hash) const noexcept {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = spread(hash) & mask;
    while (table_[at].arena.raw() != 0 && table_[at].hash != hash) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Entry> old(table_.empty() ? 64 : table_.size() * 2);
    old.swap(table_);
    for (const Entry& entry : old) {
      if (entry.arena.raw() != 0) table_[place(entry.hash)] = entry;
    }
  }
  std::vector<Entry> table_;  // a power of two
  std::size_t size_ = 0;
};
static_assert(sizeof(HeatIndex::Entry) == 16);

}  // namespace farlift::kv::node
