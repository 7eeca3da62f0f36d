#include "core/transfer/runner.h"

#include "core/digest/crc32c.h"
#include "core/transfer/crc_pool.h"
#include "core/transfer/fake_fabric.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

namespace farlift::transfer {
namespace {

using fabric::OpKind;

// A rail over the fake fabric whose window `key` is filled with a byte.
struct Scene {
  SystemClock clock;
  fake::World world{1};
  fake::Domain domain{world};
  std::unique_ptr<Runner> runner;

  explicit Scene(CrcPool* pool = nullptr, Duration patience = std::chrono::seconds(60)) {
    RunnerOptions options;
    options.engine.piece_max = Length(1000);
    options.engine.crc_pool = pool;
    options.stop_patience = patience;
    runner = Runner::create(domain, clock, options).value();
    MutexLock lock(world.mutex);
    for (std::uint64_t key = 0; key < 256; ++key) {
      world.windows[key] = std::vector<std::byte>(kWindow, static_cast<std::byte>(key));
    }
  }
  ~Scene() {
    runner.reset();
    MutexLock lock(world.mutex);
    EXPECT_TRUE(world.violations.empty()) << world.violations.front();
    EXPECT_TRUE(world.initiators.empty());
  }
  static constexpr std::size_t kWindow = 300'000;

  static Job read(unsigned peer, std::uint64_t key, std::span<std::byte> into) {
    Job job;
    job.kind = OpKind::read;
    job.peer = fake::peer_address(peer);
    job.local.push_back({into, nullptr});
    job.remote.push_back({RKey(key), RemoteAddr(0), Length(into.size())});
    job.compute_crc = true;
    return job;
  }
  template <class Change>
  void change(Change set)
      FARLIFT_TS(no_thread_safety_analysis) {  // it cannot follow the mutex into a lambda
    MutexLock lock(world.mutex);
    set(world);
  }
  void wait_for_posts(std::uint32_t count) {
    for (std::uint32_t posts = 0; posts < count;) {
      change([&](fake::World& w) REQUIRES(w.mutex) { posts = w.posts; });
      std::this_thread::yield();
    }
  }
};

TEST(Runner, many_threads_submit_and_each_hears_once) {
  CrcPool pool(2);
  Scene scene(&pool);
  std::atomic<int> right{0};
  std::atomic<int> told{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      scene.runner->bind(fake::peer_address(t));
      for (std::uint64_t i = 0; i < 50; ++i) {
        const std::uint64_t key = t * 50 + i;
        auto memory =
            std::make_shared<std::vector<std::byte>>(i % 10 == 0 ? Scene::kWindow : 1 + i * 20);
        Job job = Scene::read(t, key, *memory);
        auto lender = lend([&, memory, key](const TransferOutcome& outcome) {
          told.fetch_add(1);
          const std::vector<std::byte> expected(memory->size(), static_cast<std::byte>(key));
          if (outcome.status.ok() && *memory == expected && outcome.crc == digest::crc32c(expected))
            right.fetch_add(1);
        });
        ASSERT_TRUE(scene.runner->submit(std::move(job), std::move(lender)).ok());
      }
      scene.runner->unbind(fake::peer_address(t));
    });
  }
  for (std::thread& thread : threads) thread.join();
  scene.runner->drain();
  EXPECT_EQ(told.load(), 200);
  EXPECT_EQ(right.load(), 200);
  const EngineStats stats = scene.runner->stats();
  EXPECT_EQ(stats.live, 0u);
  EXPECT_EQ(stats.read.errors, 0u);
  scene.runner->drain();  // at once
}

TEST(Runner, cancelling_from_another_thread) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(1); });
  std::vector<std::byte> memory(5000);
  std::promise<TransferOutcome> promise;
  auto job = Scene::read(1, 1, memory);
  const auto id = scene.runner->submit(
      std::move(job), lend([&](const TransferOutcome& o) { promise.set_value(o); }));
  ASSERT_TRUE(id.ok());
  scene.wait_for_posts(5);
  scene.runner->cancel(*id);
  EXPECT_EQ(promise.get_future().get().status.code(), Errc::aborted);
  scene.runner->cancel(*id);
  scene.runner->drain();
}

TEST(Runner, stopping_aborts_what_stalls) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(1); });
  std::vector<std::byte> memory(5000);
  TransferOutcome outcome;
  auto job = Scene::read(1, 1, memory);
  ASSERT_TRUE(
      scene.runner->submit(std::move(job), lend([&](const TransferOutcome& o) { outcome = o; }))
          .ok());
  scene.wait_for_posts(5);
  scene.runner->stop();
  EXPECT_EQ(outcome.status.code(), Errc::aborted);
  EXPECT_TRUE(outcome.status.error().quiet);
  auto late = Scene::read(1, 1, memory);
  std::unique_ptr<Lender> lender = lend([](const TransferOutcome&) {});
  EXPECT_EQ(scene.runner->submit(std::move(late), std::move(lender)).code(), Errc::closed);
  EXPECT_NE(lender, nullptr);  // stays with the caller
  EXPECT_EQ(late.local.size(), 1u);
  scene.runner->bind(fake::peer_address(1));
  scene.runner->drain();
  scene.runner->stop();
}

TEST(Runner, stopping_closes_over_what_ignores_even_that) {
  Scene scene(nullptr, std::chrono::milliseconds(20));
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stubborn.insert(1); });
  std::vector<std::byte> memory(5000);
  TransferOutcome outcome;
  auto job = Scene::read(1, 1, memory);
  ASSERT_TRUE(
      scene.runner->submit(std::move(job), lend([&](const TransferOutcome& o) { outcome = o; }))
          .ok());
  scene.wait_for_posts(5);
  scene.runner->stop();
  EXPECT_EQ(outcome.status.code(), Errc::aborted);
  EXPECT_FALSE(outcome.status.error().quiet);
  EXPECT_FALSE(scene.world.lent(memory));
}

TEST(Runner, a_full_queue_is_an_answer) {
  Scene scene;
  std::promise<void> entered;
  std::promise<void> leave;
  auto leaving = leave.get_future();
  std::vector<std::byte> memory(10);
  auto job = Scene::read(1, 1, memory);
  ASSERT_TRUE(scene.runner
                  ->submit(std::move(job), lend([&](const TransferOutcome&) {
                             entered.set_value();
                             leaving.wait();
                           }))
                  .ok());
  entered.get_future().wait();
  std::atomic<std::size_t> told{0};
  Job nothing;
  nothing.peer = fake::peer_address(1);
  for (std::size_t i = 0; i < Runner::kQueuedMax; ++i) {
    Job copy = nothing;
    ASSERT_TRUE(
        scene.runner->submit(std::move(copy), lend([&told](const TransferOutcome&) { ++told; }))
            .ok());
  }
  std::unique_ptr<Lender> lender = lend([](const TransferOutcome&) {});
  EXPECT_EQ(scene.runner->submit(std::move(nothing), std::move(lender)).code(), Errc::exhausted);
  EXPECT_NE(lender, nullptr);
  EXPECT_EQ(scene.runner->stats().live, Runner::kQueuedMax);
  leave.set_value();
  scene.runner->drain();
  EXPECT_EQ(told.load(), Runner::kQueuedMax);
}

TEST(Runner, done_may_submit) {
  Scene scene;
  std::vector<std::byte> memory(10);
  std::atomic<int> rounds{0};
  std::function<void()> next = [&] {
    auto job = Scene::read(1, 1, memory);
    auto id = scene.runner->submit(std::move(job), lend([&](const TransferOutcome&) {
                                     if (++rounds < 100) next();
                                   }));
    EXPECT_TRUE(id.ok());
  };
  next();
  scene.runner->drain();
  EXPECT_EQ(rounds.load(), 100);
}

TEST(Runner, a_fence_under_load_leaves_nothing_lent) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.unquiet = 3; });
  std::atomic<int> told{0};
  std::atomic<int> lent{0};
  for (int i = 0; i < 300; ++i) {
    auto memory = std::make_shared<std::vector<std::byte>>(8000);
    auto job = Scene::read(static_cast<unsigned>(i % 5), 1, *memory);
    ASSERT_TRUE(scene.runner
                    ->submit(std::move(job), lend([&, memory](const TransferOutcome& outcome) {
                               ++told;
                               if (scene.world.lent(*memory)) ++lent;
                               if (outcome.status.ok()) {
                                 EXPECT_EQ(*memory, std::vector<std::byte>(8000, std::byte{1}));
                               }
                             }))
                    .ok());
  }
  scene.runner->drain();
  EXPECT_EQ(told.load(), 300);
  EXPECT_EQ(lent.load(), 0);
  EXPECT_GT(scene.runner->stats().fences, 0u);
}

}  // namespace
}  // namespace farlift::transfer
