#include "core/store/page_map.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

namespace farlift::store {
namespace {

// The obvious allocator: a letter a page.
class Model {
 public:
  explicit Model(std::uint32_t pages) : state_(pages, 'f') {}

  std::optional<std::uint32_t> take(std::uint32_t count) {
    std::uint32_t run = 0;
    for (std::uint32_t page = 0; page < state_.size(); ++page) {
      run = state_[page] == 'f' ? run + 1 : 0;
      if (run == count) {
        set(page + 1 - count, count, 't');
        return page + 1 - count;
      }
    }
    return std::nullopt;
  }
  void set(std::uint32_t first, std::uint32_t count, char state) {
    std::fill_n(state_.begin() + first, count, state);
  }
  void release() { std::replace(state_.begin(), state_.end(), 'q', 'f'); }
  std::uint32_t count(char state) const {
    return static_cast<std::uint32_t>(std::count(state_.begin(), state_.end(), state));
  }
  std::uint32_t longest() const {
    std::uint32_t best = 0;
    std::uint32_t run = 0;
    for (const char c : state_) best = std::max(best, run = c == 'f' ? run + 1 : 0);
    return best;
  }
  const std::vector<char>& state() const { return state_; }

 private:
  std::vector<char> state_;
};

bool same(const PageMap& map, const Model& model) {
  return map.free() == model.count('f') && map.quarantined() == model.count('q') &&
         map.longest() == model.longest();
}

TEST(PageMap, whole_and_nothing) {
  for (const std::uint32_t pages : {1u, 2u, 63u, 64u, 65u, 128u, 129u, 1000u, 262144u}) {
    PageMap map(pages);
    EXPECT_EQ(map.longest(), pages);
    EXPECT_FALSE(map.take(pages + 1).has_value());
    EXPECT_EQ(map.take(pages).value(), 0u);
    EXPECT_EQ(map.free(), 0u);
    EXPECT_FALSE(map.take(1).has_value());
    map.give(0, pages);
    EXPECT_EQ(map.longest(), pages);
  }
}

TEST(PageMap, freed_neighbours_are_one_run) {
  PageMap map(300);
  for (std::uint32_t i = 0; i < 100; ++i) ASSERT_EQ(map.take(3).value(), 3 * i);
  for (std::uint32_t i = 0; i < 100; i += 2) map.give(3 * i, 3);
  EXPECT_EQ(map.longest(), 3u);
  for (std::uint32_t i = 1; i < 100; i += 2) map.give(3 * i, 3);
  EXPECT_EQ(map.longest(), 300u);
}

TEST(PageMap, quarantined_pages_are_neither_free_nor_reused) {
  PageMap map(130);
  ASSERT_EQ(map.take(70).value(), 0u);
  map.quarantine(0, 65);
  EXPECT_EQ(map.quarantined(), 65u);
  EXPECT_EQ(map.take(60).value(), 70u);
  EXPECT_FALSE(map.take(1).has_value());
  EXPECT_EQ(map.release_quarantine(), 65u);
  EXPECT_EQ(map.take(65).value(), 0u);
  EXPECT_EQ(map.release_quarantine(), 0u);
}

using PageMapDeathTest = ::testing::Test;
TEST(PageMapDeathTest, giving_back_twice_is_a_bug) {
  PageMap map(10);
  ASSERT_EQ(map.take(4).value(), 0u);
  map.give(0, 2);
  EXPECT_DEATH(map.give(1, 2), "taken_");
  EXPECT_DEATH(map.give(8, 3), "first");
  map.quarantine(2, 2);
  EXPECT_DEATH(map.give(2, 2), "quarantine_");
}

// Every sequence of takes (of any size), gives, quarantines and releases up to a depth, on a tiny
// segment.
struct Held {
  std::uint32_t first;
  std::uint32_t count;
};

void enumerate(const PageMap& map, const Model& model, const std::vector<Held>& held, int depth,
               std::uint64_t& visited) {
  ++visited;
  ASSERT_TRUE(same(map, model));
  if (depth == 0) return;
  for (std::uint32_t count = 1; count <= map.pages(); ++count) {
    PageMap next = map;
    Model expected = model;
    const auto first = next.take(count);
    ASSERT_EQ(first, expected.take(count));
    if (!first) continue;
    auto more = held;
    more.push_back({*first, count});
    enumerate(next, expected, more, depth - 1, visited);
  }
  for (std::size_t i = 0; i < held.size(); ++i) {
    auto fewer = held;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    for (const char to : {'f', 'q'}) {
      PageMap next = map;
      Model expected = model;
      if (to == 'f') {
        next.give(held[i].first, held[i].count);
      } else {
        next.quarantine(held[i].first, held[i].count);
      }
      expected.set(held[i].first, held[i].count, to);
      enumerate(next, expected, fewer, depth - 1, visited);
    }
  }
  if (map.quarantined() > 0) {
    PageMap next = map;
    Model expected = model;
    next.release_quarantine();
    expected.release();
    enumerate(next, expected, held, depth - 1, visited);
  }
}

TEST(PageMap, every_short_history_on_five_pages) {
  std::uint64_t visited = 0;
  enumerate(PageMap(5), Model(5), {}, 6, visited);
  EXPECT_GT(visited, 5000u);
}

// Long random histories over sizes that cross words and tree levels.
RC_GTEST_PROP(PageMap, behaves_as_the_model, ()) {
  const auto pages = *rc::gen::inRange<std::uint32_t>(1, 700);
  PageMap map(pages);
  Model model(pages);
  std::vector<Held> held;
  const auto steps = *rc::gen::container<std::vector<std::pair<std::uint8_t, std::uint16_t>>>(
      400, rc::gen::pair(rc::gen::inRange<std::uint8_t>(0, 20),
                         rc::gen::inRange<std::uint16_t>(0, 2000)));
  for (const auto& [what, amount] : steps) {
    if (what < 11 || held.empty()) {
      const std::uint32_t count = 1 + amount % (what < 8 ? 9u : pages);
      const auto first = map.take(count);
      RC_ASSERT(first == model.take(count));
      if (first) held.push_back({*first, count});
    } else if (what == 19) {
      RC_ASSERT(map.release_quarantine() == model.count('q'));
      model.release();
    } else {
      const std::size_t victim = amount % held.size();
      const Held h = held[victim];
      held[victim] = held.back();
      held.pop_back();
      if (what < 17) {
        map.give(h.first, h.count);
        model.set(h.first, h.count, 'f');
      } else {
        map.quarantine(h.first, h.count);
        model.set(h.first, h.count, 'q');
      }
    }
    RC_ASSERT(same(map, model));
  }
  for (const Held& h : held) map.give(h.first, h.count);
  map.release_quarantine();
  RC_ASSERT(map.longest() == pages);
}

}  // namespace
}  // namespace farlift::store
