#include "s3/volume/pin_budget.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace farlift::s3::volume {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr Duration kSoon = std::chrono::milliseconds(20);
constexpr Duration kLong = std::chrono::seconds(60);

TEST(PinBudget, follows_the_rule_of_the_limit) {
  EXPECT_EQ(PinBudget::rule(0, false, 0), Length(8 * kMiB));
  EXPECT_EQ(PinBudget::rule(8 * kMiB, false, 0), Length(8 * kMiB));
  EXPECT_EQ(PinBudget::rule(16 * kMiB, false, 0), Length(8 * kMiB));
  EXPECT_EQ(PinBudget::rule(70 * kMiB, false, 0), Length(62 * kMiB));
  EXPECT_EQ(PinBudget::rule(std::uint64_t{1} << 40, false, 0), Length(1024 * kMiB));
  EXPECT_EQ(PinBudget::rule(0, true, 3200 * kMiB), Length(200 * kMiB));
  EXPECT_EQ(PinBudget::rule(0, true, std::uint64_t{1} << 40), Length(1024 * kMiB));
}

TEST(PinBudget, counts_whole_pages) {
  EXPECT_EQ(PinBudget::cost(0, Length(1)), Length(4096));
  EXPECT_EQ(PinBudget::cost(4095, Length(2)), Length(8192));
  EXPECT_EQ(PinBudget::cost(4096, Length(4096)), Length(4096));
  EXPECT_EQ(PinBudget::cost(100, Length(4096)), Length(8192));
}

TEST(PinBudget, who_does_not_fit_waits_its_turn_or_leaves_at_its_deadline) {
  SystemClock clock;
  PinBudget budget(Length(8 * kMiB), clock);
  auto first = budget.enter(Length(6 * kMiB), PinUse::push, clock.now()).value();
  EXPECT_EQ(budget.enter(Length(4 * kMiB), PinUse::push, clock.now() + kSoon).code(),
            Errc::timeout);
  EXPECT_EQ(budget.enter(Length(9 * kMiB), PinUse::push, clock.now() + kLong).code(),
            Errc::too_large);
  EXPECT_EQ(budget.counters().budget_refused, 2u);
  EXPECT_EQ(budget.counters().budget_waits, 1u);
  std::atomic<bool> in{false};
  std::thread waiter([&] {
    auto pass = budget.enter(Length(4 * kMiB), PinUse::push, clock.now() + kLong);
    in.store(pass.ok());
  });
  while (budget.counters().budget_waits < 2) std::this_thread::yield();
  EXPECT_FALSE(in.load());
  first.leave();
  waiter.join();
  EXPECT_TRUE(in.load());
  EXPECT_EQ(budget.counters().pinned_bytes, 0u);
  EXPECT_EQ(budget.counters().pinned_peak, 6 * kMiB);
}

TEST(PinBudget, a_small_one_does_not_overtake_a_large_one_that_waits) {
  SystemClock clock;
  PinBudget budget(Length(8 * kMiB), clock);
  auto first = budget.enter(Length(6 * kMiB), PinUse::push, clock.now()).value();
  std::atomic<int> order{0};
  std::atomic<int> large{0};
  std::atomic<int> small{0};
  std::thread one([&] {
    auto pass = budget.enter(Length(7 * kMiB), PinUse::push, clock.now() + kLong).value();
    large.store(order.fetch_add(1) + 1);
  });
  while (budget.counters().budget_waits < 1) std::this_thread::yield();
  std::thread two([&] {
    auto pass = budget.enter(Length(2 * kMiB), PinUse::push, clock.now() + kLong).value();
    small.store(order.fetch_add(1) + 1);
  });
  while (budget.counters().budget_waits < 2) std::this_thread::yield();
  EXPECT_EQ(small.load(), 0);
  first.leave();
  one.join();
  two.join();
  EXPECT_EQ(large.load(), 1);
  EXPECT_EQ(small.load(), 2);
}

TEST(PinBudget, receive_buffers_take_half_and_let_readers_pass) {
  SystemClock clock;
  PinBudget budget(Length(8 * kMiB), clock);
  EXPECT_EQ(budget.enter(Length(5 * kMiB), PinUse::receive, clock.now() + kLong).code(),
            Errc::too_large);
  auto receive = budget.enter(Length(4 * kMiB), PinUse::receive, clock.now()).value();
  std::thread writer(
      [&] { EXPECT_TRUE(budget.enter(Length(kMiB), PinUse::receive, clock.now() + kLong).ok()); });
  while (budget.counters().budget_waits < 1) std::this_thread::yield();
  EXPECT_TRUE(budget.enter(Length(4 * kMiB), PinUse::push, clock.now() + kSoon).ok());
  receive.leave();
  writer.join();
}

TEST(PinBudget, a_failed_registration_halves_it_for_a_minute) {
  ManualClock clock;
  PinBudget budget(Length(8 * kMiB), clock);
  budget.registration_failed();
  EXPECT_EQ(budget.limit(), Length(4 * kMiB));
  EXPECT_EQ(budget.slice_max(), Length(2 * kMiB));
  EXPECT_EQ(budget.enter(Length(6 * kMiB), PinUse::push, clock.now()).code(), Errc::timeout);
  clock.advance(std::chrono::seconds(61));
  EXPECT_EQ(budget.limit(), Length(8 * kMiB));
  EXPECT_TRUE(budget.enter(Length(6 * kMiB), PinUse::push, clock.now()).ok());
}

TEST(PinBudget, many_threads_never_go_over_it) {
  SystemClock clock;
  PinBudget budget(Length(8 * kMiB), clock);
  std::vector<std::thread> threads;
  std::atomic<int> admitted{0};
  for (unsigned t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        auto pass = budget.enter(Length((1 + (t + i) % 4) * kMiB),
                                 t % 2 == 0 ? PinUse::push : PinUse::receive, clock.now() + kLong);
        if (pass.ok()) admitted.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(admitted.load(), 1600);
  EXPECT_LE(budget.counters().pinned_peak, 8 * kMiB);
  EXPECT_EQ(budget.counters().pinned_bytes, 0u);
}

}  // namespace
}  // namespace farlift::s3::volume
