#include "core/store/pool.h"

#include "core/digest/crc32c.h"
#include "core/store/pool_test_base.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace farlift::store {
namespace {

TEST(Pool, a_value_comes_back_as_it_was) {
  Fixture f(64, 4);
  for (const std::size_t length : {1u, 4095u, 4096u, 4097u, 16384u, 16385u, 100000u}) {
    const auto bytes = pattern(length, length);
    const ObjectRef object = f.store(bytes);
    EXPECT_EQ(object->length(), Length(length));
    EXPECT_EQ(object->crc(), digest::crc32c(bytes));
    EXPECT_EQ(read(*object), bytes);
    EXPECT_EQ(object->extents(), (length + 4 * kPage - 1) / (4 * kPage));
    EXPECT_EQ(object->footprint().raw(), (length + kPage - 1) / kPage * kPage);
    EXPECT_EQ(f.pool->stats().allocated, object->footprint());
    ASSERT_TRUE(object->contiguous().has_value());
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), object->contiguous()->begin(),
                           object->contiguous()->end()));
    for (std::size_t i = 0; i < object->extents(); ++i) {
      EXPECT_LE(object->span(i).size(), 4 * kPage);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(object->span(i).data()) % kPage, 0u);
      EXPECT_EQ(object->lend(i).data(), object->span(i).data());
    }
  }
  EXPECT_EQ(f.pool->stats().allocated, Length(0));
}

TEST(Pool, refusals) {
  Fixture f(8, 8);
  EXPECT_EQ(f.pool->reserve(Length(0)).code(), Errc::invalid_argument);
  EXPECT_EQ(f.pool->reserve(Length(8 * kPage + 1)).code(), Errc::too_large);
  EXPECT_EQ(f.pool->reserve(Length(UINT64_MAX)).code(), Errc::too_large);
  EXPECT_TRUE(f.pool->fits_one_segment(Length(8 * kPage)));
  EXPECT_FALSE(Pool::fits_one_segment(Length(0), Length(kPage), Length(kPage)));
  f.grow = false;
  const ObjectRef all = f.store_pages(8);
  EXPECT_EQ(f.pool->reserve(Length(1)).code(), Errc::no_memory);
  EXPECT_EQ(f.pool->expand().code(), Errc::no_memory);
  for (const auto& [segment, chunk] :
       {std::pair{5000u, 4096u}, {4096u, 5000u}, {4096u, 8192u}, {0u, 4096u}, {4096u, 0u}}) {
    PoolOptions bad;
    bad.segment_size = Length(segment);
    bad.chunk_size = Length(chunk);
    EXPECT_EQ(Pool::create({}, bad, f.budget).code(), Errc::invalid_argument);
  }
}

TEST(Pool, a_dropped_draft_returns_its_storage) {
  Fixture f(8, 2);
  {
    Draft a = f.pool->reserve(Length(3 * kPage)).value();
    Draft b = f.pool->reserve(Length(2 * kPage)).value();
    a = std::move(b);
    EXPECT_EQ(f.pool->stats().allocated.raw(), 5 * kPage);
    EXPECT_EQ(f.pool->stats().objects, 0u);
  }
  EXPECT_EQ(f.pool->stats().allocated, Length(0));
}

TEST(Pool, is_split_only_when_no_run_is_long_enough) {
  Fixture f(10, 4);
  f.grow = false;
  std::vector<ObjectRef> ones;
  for (int i = 0; i < 10; ++i) ones.push_back(f.store_pages(1));
  for (const std::size_t hole : {1u, 2u, 4u, 6u, 7u, 8u, 9u}) ones[hole].reset();
  const auto bytes = pattern(5 * kPage - 7, 99);
  const ObjectRef split = f.store(bytes);  // runs of 2, 1 and 4 are free
  EXPECT_FALSE(split->contiguous().has_value());
  EXPECT_EQ(split->extents(), 2u);
  EXPECT_EQ(split->span(0).size(), 4 * kPage);
  EXPECT_EQ(split->span(1).size(), kPage - 7);
  EXPECT_EQ(split->footprint().raw(), 5 * kPage);
  EXPECT_EQ(read(*split), bytes);
  EXPECT_TRUE(f.store_pages(1)->contiguous().has_value());
  EXPECT_EQ(f.pool->stats().allocated.raw(), 8 * kPage);
}

TEST(Pool, grows_one_segment_at_a_time_and_counts) {
  Fixture f(4, 4);
  const ObjectRef a = f.store_pages(3);
  const ObjectRef b = f.store_pages(3);
  EXPECT_NE(a->segment(), b->segment());
  EXPECT_EQ(f.pool->stats().segments, 2u);
  EXPECT_EQ(f.pool->stats().expands, 1u);
  ASSERT_TRUE(f.pool->expand().ok());
  EXPECT_EQ(f.pool->stats().segments, 3u);
  EXPECT_EQ(f.pool->stats().capacity.raw(), 12 * kPage);
  EXPECT_EQ(f.pool->stats().objects, 2u);
}

TEST(Pool, without_rails_nothing_is_pinned) {
  memory::PinnedBudget nothing{Length(0)};
  PoolOptions options;
  options.segment_size = Length(kPage);
  options.chunk_size = Length(kPage);
  auto pool = Pool::create({}, options, nothing).value();
  EXPECT_TRUE(pool->expand().ok());
}

TEST(Pool, fills_the_fuller_segment_first) {
  Fixture f(8, 8);
  const ObjectRef a = f.store_pages(5);
  const ObjectRef b = f.store_pages(7);  // second segment, fuller
  EXPECT_EQ(f.store_pages(1)->segment(), b->segment());
  EXPECT_EQ(f.store_pages(2)->segment(), a->segment());
}

TEST(Pool, draining) {
  Fixture f(8, 8);
  EXPECT_EQ(f.pool->begin_drain().code(), Errc::not_found);  // the last one
  ObjectRef a = f.store_pages(6);
  ObjectRef b = f.store_pages(4);
  const SegmentId victim = f.pool->begin_drain().value();
  EXPECT_EQ(victim, b->segment());
  EXPECT_EQ(f.pool->stats().draining_segments, 1u);
  EXPECT_EQ(f.pool->begin_drain().code(), Errc::not_found);  // the last one in use
  f.grow = false;
  EXPECT_EQ(f.pool->reserve(Length(3 * kPage)).code(), Errc::no_memory);  // nothing is placed there
  EXPECT_FALSE(f.pool->end_drain(victim));
  f.pool->cancel_drain(victim);
  EXPECT_EQ(f.store_pages(3)->segment(), victim);
  ASSERT_EQ(f.pool->begin_drain().value(), victim);
  ObjectRef pin = b;
  b.reset();
  EXPECT_FALSE(f.pool->end_drain(victim));  // still pinned
  pin.reset();
  EXPECT_TRUE(f.pool->end_drain(victim));
  EXPECT_EQ(f.pool->stats().segments, 1u);
  EXPECT_EQ(f.pool->stats().shrinks, 1u);
  EXPECT_EQ(f.pool->stats().capacity.raw(), 8 * kPage);
  f.grow = true;
  EXPECT_NE(f.store_pages(8)->segment(), victim);  // ids are not used again
}

TEST(Pool, a_hold_keeps_what_was_freed_for_a_child) {
  Fixture f(8, 8);
  f.grow = false;
  ObjectRef a = f.store_pages(4);
  const auto before = read(*a);
  const std::span<const std::byte> seen = *a->contiguous();
  f.pool->hold_reclaim();
  f.pool->hold_reclaim();
  a.reset();
  EXPECT_EQ(f.pool->stats().quarantined.raw(), 4 * kPage);
  EXPECT_EQ(f.pool->stats().allocated.raw(), 4 * kPage);
  EXPECT_EQ(f.pool->stats().objects, 0u);
  const ObjectRef b = f.store_pages(4);
  EXPECT_EQ(f.pool->reserve(Length(1)).code(), Errc::no_memory);
  EXPECT_TRUE(std::equal(seen.begin(), seen.end(), before.begin(), before.end()));
  f.pool->release_reclaim();
  EXPECT_EQ(f.pool->reserve(Length(1)).code(), Errc::no_memory);
  f.pool->release_reclaim();
  EXPECT_EQ(f.pool->stats().quarantined, Length(0));
  EXPECT_TRUE(f.pool->reserve(Length(4 * kPage)).ok());
}

TEST(Pool, a_real_child_reads_the_old_value) {
  Fixture f(8, 8);
  f.grow = false;
  const auto bytes = pattern(5 * kPage, 1);
  ObjectRef a = f.store(bytes);
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  f.pool->hold_reclaim();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char c = 0;
    const bool started = ::read(go[0], &c, 1) == 1;
    _exit(started && digest::crc32c(*a->contiguous()) == a->crc() ? 0 : 1);
  }
  a.reset();
  const ObjectRef b = f.store_pages(3);
  EXPECT_FALSE(f.pool->reserve(Length(kPage)).ok());
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  f.pool->release_reclaim();
  EXPECT_TRUE(f.pool->reserve(Length(5 * kPage)).ok());
  close(go[0]);
  close(go[1]);
}

TEST(Pool, a_quarantine_delays_the_return_of_a_segment) {
  Fixture f(4, 4);
  const ObjectRef a = f.store_pages(4);
  ObjectRef b = f.store_pages(2);
  const SegmentId victim = f.pool->begin_drain().value();
  ASSERT_EQ(victim, b->segment());
  f.pool->hold_reclaim();
  b.reset();
  EXPECT_FALSE(f.pool->end_drain(victim));
  f.pool->release_reclaim();
  EXPECT_TRUE(f.pool->end_drain(victim));
}

TEST(Pool, copies_are_independent_whatever_the_extents) {
  Fixture f(32, 3);
  std::vector<ObjectRef> ones;
  for (int i = 0; i < 32; ++i) ones.push_back(f.store_pages(1));
  for (std::size_t i = 0; i < 32; i += 2) ones[i].reset();
  f.grow = false;
  const auto bytes = pattern(7 * kPage + 5, 5);
  ObjectRef source = f.store(bytes);  // in pieces of one page
  ASSERT_FALSE(source->contiguous().has_value());
  f.grow = true;
  ASSERT_TRUE(f.pool->expand().ok());
  Draft draft = f.pool->reserve(source->length()).value();  // contiguous, in chunks of three
  ASSERT_TRUE(draft.contiguous().has_value());
  ASSERT_TRUE(source->copy_into(draft).ok());
  const ObjectRef copy = std::move(draft).seal(source->crc());
  Draft back = f.pool->reserve(copy->length()).value();
  ASSERT_TRUE(copy->copy_into(back).ok());
  source.reset();
  EXPECT_EQ(read(*copy), bytes);
}

TEST(Pool, a_copy_of_damaged_bytes_is_refused) {
  Fixture f(8, 8);
  const ObjectRef object = f.store_pages(2);
  object->lend(0)[123] ^= std::byte{1};
  Draft draft = f.pool->reserve(object->length()).value();
  EXPECT_EQ(object->copy_into(draft).code(), Errc::checksum);
}

using PoolDeathTest = ::testing::Test;
TEST(PoolDeathTest, going_before_its_objects_is_a_bug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(
      {
        ObjectRef left;
        Fixture f(8, 8);
        left = f.store_pages(1);
        f.pool.reset();
      },
      "segment->map");
}

}  // namespace
}  // namespace farlift::store
