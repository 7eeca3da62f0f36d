#include "core/base/adaptive_spin.h"
#include "core/base/bounded_queue.h"
#include "core/base/clock.h"
#include "core/base/gate.h"
#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "core/base/unique_fd.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fcntl.h>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace farlift {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return Error::make(Errc::invalid_argument, "odd");
  return n / 2;
}

Result<int> quarter(int n) {
  TRY_ASSIGN(const int once, half(n));
  TRY_ASSIGN(const int twice, half(once));
  return twice;
}

TEST(Result, carries_a_value_or_the_first_error) {
  EXPECT_EQ(*quarter(12), 3);
  EXPECT_EQ(quarter(6).code(), Errc::invalid_argument);
  EXPECT_EQ(quarter(7).error().describe(), "odd: invalid argument");
  EXPECT_EQ(quarter(7).value_or(-1), -1);
}

TEST(Result, holds_move_only_values) {
  Result<std::unique_ptr<int>> r = std::make_unique<int>(5);
  ASSERT_TRUE(r.ok());
  const std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 5);
}

TEST(Result, value_of_an_error_and_error_of_a_value_abort) {
  EXPECT_DEATH({ static_cast<void>(half(1).value()); }, "assertion failed");
  EXPECT_DEATH({ static_cast<void>(half(2).error()); }, "assertion failed");
}

TEST(Error, quiet_by_default_and_says_errno) {
  const Error e = Error::from_errno("open", ENOENT);
  EXPECT_TRUE(e.quiet);
  EXPECT_EQ(e.code, Errc::not_found);
  EXPECT_EQ(e.describe(), "open: not found (No such file or directory)");
  EXPECT_FALSE(Error::not_quiet(Errc::timeout, "x").quiet);
}

TEST(Types, fits_never_wraps) {
  EXPECT_TRUE(fits(Offset(0), Length(10), Length(10)));
  EXPECT_TRUE(fits(Offset(10), Length(0), Length(10)));
  EXPECT_FALSE(fits(Offset(1), Length(10), Length(10)));
  EXPECT_FALSE(fits(Offset(11), Length(0), Length(10)));
  EXPECT_FALSE(fits(Offset(8), Length(UINT64_MAX - 4), Length(10)));
  EXPECT_FALSE(fits(Offset(UINT64_MAX), Length(2), Length(10)));
}

TEST(Prng, repeats_from_its_seed_and_stays_below) {
  Prng a(7);
  Prng b(7);
  Prng c(8);
  std::set<std::uint64_t> seen;
  bool differs = false;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t x = a.next();
    EXPECT_EQ(x, b.next());
    differs |= x != c.next();
    seen.insert(a.below(3));
    static_cast<void>(b.below(3));
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(seen, (std::set<std::uint64_t>{0, 1, 2}));
}

TEST(Prng, secure_random_does_not_repeat) {
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) seen.insert(secure_random_u64());
  EXPECT_EQ(seen.size(), 1000u);
}

TEST(Gate, close_waits_for_those_inside_and_refuses_the_next) {
  Gate gate;
  std::atomic<bool> closed{false};
  Gate::Pass pass = gate.enter();
  ASSERT_TRUE(pass);
  std::thread closer([&] {
    gate.close();
    closed = true;
  });
  while (!gate.closed()) std::this_thread::yield();
  EXPECT_FALSE(gate.enter());
  EXPECT_FALSE(closed);
  pass = Gate::Pass();
  closer.join();
  EXPECT_TRUE(closed);
}

TEST(BoundedQueue, full_and_closed_leave_the_item_with_the_caller) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  auto first = std::make_unique<int>(1);
  ASSERT_TRUE(queue.try_push(std::move(first)).ok());
  auto second = std::make_unique<int>(2);
  EXPECT_EQ(queue.try_push(std::move(second)).code(), Errc::exhausted);
  ASSERT_NE(second, nullptr);
  queue.close();
  EXPECT_EQ(queue.try_push(std::move(second)).code(), Errc::closed);
  EXPECT_EQ(**queue.pop(), 1);
  EXPECT_FALSE(queue.pop().has_value());
}

TEST(BoundedQueue, every_item_arrives_once) {
  BoundedQueue<int> queue(16);
  constexpr int kItems = 20000;
  std::atomic<long> sum{0};
  std::vector<std::thread> consumers;
  for (int t = 0; t < 3; ++t) {
    consumers.emplace_back([&] {
      while (const auto item = queue.pop()) sum += *item;
    });
  }
  for (int i = 1; i <= kItems; ++i) {
    for (;;) {
      int item = i;
      if (queue.try_push(std::move(item)).ok()) break;
      std::this_thread::yield();
    }
  }
  queue.close();
  for (std::thread& t : consumers) t.join();
  EXPECT_EQ(sum.load(), long{kItems} * (kItems + 1) / 2);
}

TEST(UniqueFd, closes_once) {
  int raw = -1;
  {
    UniqueFd fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ASSERT_TRUE(fd);
    raw = fd.get();
    const UniqueFd moved = std::move(fd);
    EXPECT_EQ(moved.get(), raw);
  }
  EXPECT_EQ(::fcntl(raw, F_GETFD), -1);
}

TEST(ManualClock, moves_only_when_told) {
  ManualClock clock;
  const Instant start = clock.now();
  EXPECT_EQ(clock.now(), start);
  clock.advance(std::chrono::seconds(1));
  EXPECT_EQ(clock.now() - start, std::chrono::seconds(1));
}

TEST(AdaptiveSpin, rests_after_misses_and_tries_again) {
  AdaptiveSpin spin(std::chrono::microseconds(50), 2);
  for (std::uint32_t i = 0; i < AdaptiveSpin::kMissesMax; ++i) {
    EXPECT_EQ(spin.budget(), std::chrono::microseconds(50));
    spin.count(false);
  }
  for (std::uint32_t i = 0; i < AdaptiveSpin::kRests; ++i) EXPECT_EQ(spin.budget().count(), 0);
  EXPECT_EQ(spin.budget(), std::chrono::microseconds(50));
  spin.count(false);  // a single miss of the trial is enough to rest again
  EXPECT_EQ(spin.budget().count(), 0);
}

TEST(AdaptiveSpin, goes_on_while_it_pays_and_never_on_one_core) {
  AdaptiveSpin spin(std::chrono::microseconds(50), 2);
  for (int i = 0; i < 100; ++i) {
    EXPECT_GT(spin.budget().count(), 0);
    spin.count(i % 2 == 0);
  }
  EXPECT_EQ(AdaptiveSpin(std::chrono::microseconds(50), 1).budget().count(), 0);
}

TEST(WaitingThread, polls_while_each_has_a_core_and_one_is_left) {
  EXPECT_TRUE(WaitingThread::may_poll(2));
  const WaitingThread one;
  EXPECT_TRUE(WaitingThread::may_poll(2));
  EXPECT_FALSE(WaitingThread::may_poll(1));
  {
    const WaitingThread two;
    EXPECT_FALSE(WaitingThread::may_poll(2));
    EXPECT_FALSE(WaitingThread::may_poll(3));
    EXPECT_TRUE(WaitingThread::may_poll(4));
  }
  EXPECT_TRUE(WaitingThread::may_poll(2));
}

std::string g_line;

TEST(Log, cuts_long_lines_and_honours_the_level) {
  set_log_sink([](LogLevel, std::string_view line) noexcept { g_line = line; });
  log(LogLevel::info, std::string(5000, 'x'));
  EXPECT_EQ(g_line.size(), 1024u);
  g_line.clear();
  log(LogLevel::debug, "dropped");
  EXPECT_EQ(g_line, "");
  logf(LogLevel::warning, "%d of %s", 3, "four");
  EXPECT_EQ(g_line, "3 of four");
  set_log_sink(nullptr);
}

}  // namespace
}  // namespace farlift
