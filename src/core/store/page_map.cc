#include "core/store/page_map.h"

#include "core/base/assert.h"

#include <algorithm>
#include <bit>

namespace farlift::store {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};

constexpr std::uint64_t mask(std::uint32_t first, std::uint32_t count) noexcept {
  return (count == 64 ? kAll : (std::uint64_t{1} << count) - 1) << first;
}

constexpr std::uint32_t longest_run(std::uint64_t ones) noexcept {
  if (ones == kAll) return 64;
  std::uint32_t length = 0;
  for (; ones != 0; ones &= ones << 1) ++length;
  return length;
}

// The lowest bit from which `count` ones follow; there is one.
constexpr std::uint32_t find_run(std::uint64_t ones, std::uint32_t count) noexcept {
  for (std::uint32_t have = 1; have < count;) {
    const std::uint32_t step = std::min(have, count - have);
    ones &= ones >> step;
    have += step;
  }
  return static_cast<std::uint32_t>(std::countr_zero(ones));
}

}  // namespace

PageMap::PageMap(std::uint32_t pages) : pages_(pages), free_(pages) {
  ASSERT(pages > 0);
  const std::size_t words = (std::size_t{pages} + kWord - 1) / kWord;
  leaves_ = std::bit_ceil(words);
  taken_.assign(words, 0);
  quarantine_.assign(words, 0);
  if (pages % kWord != 0) taken_.back() = ~mask(0, pages % kWord);
  tree_.assign(2 * leaves_, Node());
  refresh(0, words - 1);
}

PageMap::Node PageMap::leaf(std::uint64_t taken) noexcept {
  return Node{static_cast<std::uint32_t>(std::countr_zero(taken)),
              static_cast<std::uint32_t>(std::countl_zero(taken)), longest_run(~taken)};
}

PageMap::Node PageMap::join(const Node& left, const Node& right, std::uint32_t half) noexcept {
  return Node{left.prefix == half ? half + right.prefix : left.prefix,
              right.suffix == half ? half + left.suffix : right.suffix,
              std::max({left.longest, right.longest, left.suffix + right.prefix})};
}

// Recomputes the leaves [first_word, last_word] and everything above them.
void PageMap::refresh(std::size_t first_word, std::size_t last_word) noexcept {
  for (std::size_t word = first_word; word <= last_word; ++word)
    tree_[leaves_ + word] = leaf(taken_[word]);
  std::size_t first = leaves_ + first_word;
  std::size_t last = leaves_ + last_word;
  for (std::uint32_t half = kWord; first > 1; half *= 2) {
    first /= 2;
    last /= 2;
    for (std::size_t node = first; node <= last; ++node) {
      tree_[node] = join(tree_[2 * node], tree_[2 * node + 1], half);
    }
  }
}

template <class Change>
void PageMap::for_words(std::uint32_t first, std::uint32_t count, Change change) noexcept {
  while (count > 0) {
    const std::uint32_t at = first % kWord;
    const std::uint32_t now = std::min(count, kWord - at);
    change(first / kWord, mask(at, now));
    first += now;
    count -= now;
  }
}

// The first page of the lowest run of `count` free pages; longest() >= count.
std::uint32_t PageMap::find(std::uint32_t count) const noexcept {
  std::size_t node = 1;
  std::uint64_t base = 0;
  std::uint64_t span = std::uint64_t{kWord} * leaves_;
  while (node < leaves_) {
    span /= 2;
    const Node& left = tree_[2 * node];
    const Node& right = tree_[2 * node + 1];
    if (left.longest >= count) {
      node = 2 * node;
    } else if (left.suffix + right.prefix >= count) {
      return static_cast<std::uint32_t>(base + span - left.suffix);
    } else {
      node = 2 * node + 1;
      base += span;
    }
  }
  return static_cast<std::uint32_t>(base) + find_run(~taken_[node - leaves_], count);
}

std::optional<std::uint32_t> PageMap::take(std::uint32_t count) {
  ASSERT(count > 0);
  if (longest() < count) return std::nullopt;
  const std::uint32_t first = find(count);
  for_words(first, count, [this](std::size_t word, std::uint64_t bits) {
    ASSERT((taken_[word] & bits) == 0);
    taken_[word] |= bits;
  });
  refresh(first / kWord, (first + count - 1) / kWord);
  free_ -= count;
  return first;
}

void PageMap::give(std::uint32_t first, std::uint32_t count) noexcept {
  ASSERT(count > 0 && first < pages_ && count <= pages_ - first);
  for_words(first, count, [this](std::size_t word, std::uint64_t bits) {
    ASSERT((taken_[word] & bits) == bits && (quarantine_[word] & bits) == 0);
    taken_[word] &= ~bits;
  });
  refresh(first / kWord, (first + count - 1) / kWord);
  free_ += count;
}

void PageMap::quarantine(std::uint32_t first, std::uint32_t count) noexcept {
  ASSERT(count > 0 && first < pages_ && count <= pages_ - first);
  for_words(first, count, [this](std::size_t word, std::uint64_t bits) {
    ASSERT((taken_[word] & bits) == bits && (quarantine_[word] & bits) == 0);
    quarantine_[word] |= bits;
  });
  quarantined_ += count;
}

std::uint32_t PageMap::release_quarantine() noexcept {
  if (quarantined_ == 0) return 0;
  for (std::size_t word = 0; word < taken_.size(); ++word) {
    taken_[word] &= ~quarantine_[word];
    quarantine_[word] = 0;
  }
  refresh(0, taken_.size() - 1);
  const std::uint32_t released = quarantined_;
  free_ += released;
  quarantined_ = 0;
  return released;
}

}  // namespace farlift::store
