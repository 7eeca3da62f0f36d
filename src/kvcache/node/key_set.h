// KeySet: remote keys that were in use once and never are again (spec kv 8.2 step 8). Nothing is
// ever taken out: 8 bytes a key at 3/4 load.
//
// Threads: one. Errors: none.
#pragma once

#include "core/base/types.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace farlift::kv::node {

class KeySet {
 public:
  bool contains(RKey key) const noexcept {
    if (key.raw() == 0) return has_zero_;
    return !table_.empty() && table_[place(key.raw())] == key.raw();
  }
  void insert(RKey key) {
    if (key.raw() == 0) {
      size_ += has_zero_ ? 0 : 1;
      has_zero_ = true;
      return;
    }
    if ((size_ + 1) * 4 > table_.size() * 3) grow();
    std::uint64_t& at = table_[place(key.raw())];
    size_ += at == 0 ? 1 : 0;
    at = key.raw();
  }
  std::size_t size() const noexcept { return size_; }

 private:
  std::size_t place(std::uint64_t key) const noexcept {
    const std::size_t mask = table_.size() - 1;
    std::size_t at = (key * 0x9E3779B97F4A7C15u >> 20) & mask;
    while (table_[at] != 0 && table_[at] != key) at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<std::uint64_t> old(table_.empty() ? 16 : table_.size() * 2);
    old.swap(table_);
    for (const std::uint64_t key : old) {
      if (key != 0) table_[place(key)] = key;
    }
  }

  std::vector<std::uint64_t> table_;  // a power of two; 0: empty
  std::size_t size_ = 0;
  bool has_zero_ = false;
};

}  // namespace farlift::kv::node
