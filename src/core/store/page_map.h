// PageMap: which pages of one segment are free, with the longest free run at hand. Private to this
// folder.
//
// A bit a page, and above the words a tree that knows of each subtree its free prefix, suffix and
// longest run. Freed neighbours are one run without further ado. Nothing is allocated after
// construction, so giving back cannot fail: about 130 KiB for a segment of 1 GiB.
//
// Invariants: take() finds a run of `count` pages whenever there is one, at the lowest offset; a
//             page is free, taken or in quarantine; giving back a page that is not taken is an
//             ASSERT.
// Threads:    one at a time (the pool's lock). Errors: none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace farlift::store {

class PageMap {
 public:
  explicit PageMap(std::uint32_t pages);

  // count > 0. The first page of the lowest run that is long enough.
  std::optional<std::uint32_t> take(std::uint32_t count);
  void give(std::uint32_t first, std::uint32_t count) noexcept;

  // Taken pages that nobody holds any more but that stay untouched until release_quarantine(),
  // which frees them all and says how many.
  void quarantine(std::uint32_t first, std::uint32_t count) noexcept;
  std::uint32_t release_quarantine() noexcept;

  std::uint32_t pages() const noexcept { return pages_; }
  std::uint32_t free() const noexcept { return free_; }
  std::uint32_t quarantined() const noexcept { return quarantined_; }
  std::uint32_t longest() const noexcept { return tree_[1].longest; }

 private:
  struct Node {
    std::uint32_t prefix = 0;
    std::uint32_t suffix = 0;
    std::uint32_t longest = 0;
  };
  static constexpr std::uint32_t kWord = 64;

  static Node leaf(std::uint64_t taken) noexcept;
  static Node join(const Node& left, const Node& right, std::uint32_t half) noexcept;
  std::uint32_t find(std::uint32_t count) const noexcept;
  void refresh(std::size_t first_word, std::size_t last_word) noexcept;
  template <class Change>
  void for_words(std::uint32_t first, std::uint32_t count, Change change) noexcept;

  const std::uint32_t pages_;
  std::size_t leaves_;                     // a power of two
  std::vector<std::uint64_t> taken_;       // bits past pages_ are set for ever
  std::vector<std::uint64_t> quarantine_;  // a subset of taken_
  std::vector<Node> tree_;                 // heap order: the root is 1, word w is leaves_ + w
  std::uint32_t free_;
  std::uint32_t quarantined_ = 0;
};

}  // namespace farlift::store
