// Histories of a pool: random ones against a model, and many threads at once.
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/store/pool_test_base.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>
#include <vector>

namespace farlift::store {
namespace {

// Any history against a set of what lives: bytes stay what they were, ranges never overlap, counts
// agree, and in the end everything is free and in one piece.
RC_GTEST_PROP(Pool, any_history_keeps_the_invariants, ()) {
  Fixture f(*rc::gen::inRange<std::uint64_t>(1, 40), 1);
  const std::uint64_t segment_pages = f.pool->segment_size().raw() / kPage;
  struct Live {
    ObjectRef object;
    std::vector<std::byte> bytes;
  };
  std::vector<Live> live;
  std::uint64_t quarantined = 0;
  std::uint32_t holds = 0;
  std::uint64_t seed = 0;
  const auto steps = *rc::gen::container<std::vector<std::pair<std::uint8_t, std::uint32_t>>>(
      120,
      rc::gen::pair(rc::gen::inRange<std::uint8_t>(0, 16), rc::gen::arbitrary<std::uint32_t>()));
  for (const auto& [what, amount] : steps) {
    if (what < 8) {
      f.grow = f.pool->stats().segments < 4;
      const std::uint64_t length =
          1 + amount % (what < 5 ? std::min<std::uint64_t>(3, segment_pages) * kPage
                                 : segment_pages * kPage);
      const auto bytes = pattern(length, ++seed);
      auto draft = f.pool->reserve(Length(length));
      if (!draft.ok()) {
        RC_ASSERT(draft.code() == Errc::no_memory);
        continue;
      }
      const Crc32c crc = draft->fill(bytes);
      live.push_back({std::move(*draft).seal(crc), bytes});
    } else if (what < 13 && !live.empty()) {
      const std::size_t victim = amount % live.size();
      if (holds > 0) quarantined += live[victim].object->footprint().raw();
      std::swap(live[victim], live.back());
      live.pop_back();
    } else if (what == 13) {
      f.pool->hold_reclaim();
      ++holds;
    } else if (what == 14 && holds > 0) {
      f.pool->release_reclaim();
      if (--holds == 0) quarantined = 0;
    } else if (const auto victim = f.pool->begin_drain(); victim.ok()) {
      if (!f.pool->end_drain(*victim)) f.pool->cancel_drain(*victim);
    }
    std::uint64_t used = 0;
    std::map<const std::byte*, const std::byte*> ranges;
    for (const Live& l : live) {
      used += l.object->footprint().raw();
      for (std::size_t i = 0; i < l.object->extents(); ++i) {
        const auto span = l.object->span(i);
        RC_ASSERT(ranges.emplace(span.data(), span.data() + span.size()).second);
      }
    }
    const std::byte* end = nullptr;
    for (const auto& [from, to] : ranges) {
      RC_ASSERT(from >= end);
      end = to;
    }
    const PoolStats stats = f.pool->stats();
    RC_ASSERT(stats.objects == live.size());
    RC_ASSERT(stats.quarantined.raw() == quarantined);
    RC_ASSERT(stats.allocated.raw() == used + quarantined);
  }
  for (const Live& l : live) RC_ASSERT(read(*l.object) == l.bytes);
  live.clear();
  for (; holds > 0; --holds) f.pool->release_reclaim();
  RC_ASSERT(f.pool->stats().allocated == Length(0));
  f.grow = false;
  Draft whole = f.pool->reserve(f.pool->segment_size()).value();
  RC_ASSERT(whole.contiguous().has_value());
}

// Writers, readers that drop the last pin, a thread that forks in spirit, one that shrinks and
// grows.
TEST(Pool, many_threads) {
  Fixture f(64, 8);
  std::atomic<bool> done{false};
  std::vector<std::thread> writers;
  std::vector<std::thread> others;
  std::atomic<std::uint64_t> stored{0};
  for (std::uint64_t t = 0; t < 3; ++t) {
    writers.emplace_back([&, t] {
      Prng prng(t);
      std::vector<ObjectRef> mine;
      for (int i = 0; i < 1500; ++i) {
        const std::size_t length = 1 + prng.below(9 * kPage);
        auto reserved = f.pool->reserve(Length(length));
        ASSERT_TRUE(reserved.ok());  // the pool may always grow
        Draft draft = std::move(reserved).value();
        for (std::size_t e = 0; e < draft.extents(); ++e) {
          std::fill(draft.span(e).begin(), draft.span(e).end(), static_cast<std::byte>(length));
        }
        std::vector<std::byte> expected(length, static_cast<std::byte>(length));
        mine.push_back(std::move(draft).seal(digest::crc32c(expected)));
        stored.fetch_add(1);
        if (mine.size() > 20) {
          const std::size_t victim = prng.below(mine.size());
          std::thread([object = std::move(mine[victim])]() mutable {
            EXPECT_EQ(digest::crc32c(read(*object)), object->crc());
            object.reset();
          }).join();
          mine[victim] = mine.back();
          mine.pop_back();
        }
      }
    });
  }
  others.emplace_back([&] {
    while (!done.load()) {
      f.pool->hold_reclaim();
      std::this_thread::yield();
      f.pool->release_reclaim();
    }
  });
  others.emplace_back([&] {
    while (!done.load()) {
      if (f.pool->stats().segments < 6) {
        EXPECT_TRUE(f.pool->expand().ok());
      }
      if (const auto victim = f.pool->begin_drain(); victim.ok() && !f.pool->end_drain(*victim)) {
        f.pool->cancel_drain(*victim);
      }
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : writers) thread.join();
  done = true;
  for (std::thread& thread : others) thread.join();
  EXPECT_EQ(stored.load(), 4500u);
  const PoolStats stats = f.pool->stats();
  EXPECT_EQ(stats.objects, 0u);
  EXPECT_EQ(stats.allocated, Length(0));
}

}  // namespace
}  // namespace farlift::store
