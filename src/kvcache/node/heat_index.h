// HeatIndex: finds the slot of a key hash, for TOUCH (spec kv 5): the node never sees reads. Open
// addressing, 12 bytes an entry: of the hash it keeps 32 bits, and of two keys that share them it
// knows the later one, so that the other stays cold.
//
// Invariants: an entry may be older than its slot; users check SlotRef::valid() and the hash.
// Threads:    one. Errors: none.
#pragma once

#include "kvcache/node/arena.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace farlift::kv::node {

class HeatIndex {
 public:
  struct Entry {
    KeyHash hash;
    ArenaId arena;
    SlotIndex slot;
  };

  std::optional<Entry> find(KeyHash hash) const noexcept {
    if (table_.empty()) return std::nullopt;
    const Cell& at = table_[place(tag_of(hash))];
    if (at.arena.raw() == 0) return std::nullopt;
    return Entry{hash, at.arena, at.slot};
  }
  void insert(const Entry& entry) {
    if ((size_ + 1) * 4 > table_.size() * 3) grow();
    Cell& at = table_[place(tag_of(entry.hash))];
    size_ += at.arena.raw() == 0 ? 1 : 0;
    at = {tag_of(entry.hash), entry.arena, entry.slot};
  }
  // Only when it still means that slot.
  void erase(const Entry& entry) noexcept {
    if (table_.empty()) return;
    std::size_t hole = place(tag_of(entry.hash));
    if (table_[hole].arena != entry.arena || table_[hole].slot != entry.slot) return;
    const std::size_t mask = table_.size() - 1;
    --size_;
    for (std::size_t at = (hole + 1) & mask; table_[at].arena.raw() != 0; at = (at + 1) & mask) {
      const std::size_t home = table_[at].tag & mask;
      if (((at - home) & mask) < ((at - hole) & mask)) continue;  // it is where it may be
      table_[hole] = table_[at];
      hole = at;
    }
    table_[hole] = Cell{};
  }
  std::size_t size() const noexcept { return size_; }
  std::size_t bytes() const noexcept { return table_.size() * sizeof(Cell); }

 private:
  struct Cell {
    std::uint32_t tag = 0;
    ArenaId arena;  // 0: empty
    SlotIndex slot;
  };
  static_assert(sizeof(Cell) == 12);

  static std::uint32_t tag_of(KeyHash hash) noexcept {
    return static_cast<std::uint32_t>(hash.raw() >> 8);
  }
  std::size_t place(std::uint32_t tag) const noexcept {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = tag & mask;
    while (table_[at].arena.raw() != 0 && table_[at].tag != tag) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<Cell> old(table_.empty() ? 64 : table_.size() * 2);
    old.swap(table_);
    for (const Cell& cell : old) {
      if (cell.arena.raw() != 0) table_[place(cell.tag)] = cell;
    }
  }
  std::vector<Cell> table_;  // a power of two
  std::size_t size_ = 0;
};

}  // namespace farlift::kv::node
