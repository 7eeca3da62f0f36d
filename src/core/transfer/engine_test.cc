#include "core/transfer/engine.h"

#include "core/transfer/crc_pool.h"
#include "core/transfer/engine_test_base.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <poll.h>
#include <vector>

namespace farlift::transfer {
namespace {

using fabric::OpKind;

TEST(Engine, moves_values_both_ways) {
  Scene scene;
  scene.start(OpKind::write, 1, 95);
  scene.start(OpKind::read, 1, 95);
  scene.start(OpKind::read, 2, 0);
  EXPECT_EQ(scene.engine->stats().live, 3u);
  scene.run();
  for (const Ended& e : scene.ended) EXPECT_TRUE(e.outcome.status.ok());
  EXPECT_TRUE(scene.exact(0, OpKind::write));
  EXPECT_TRUE(scene.exact(1, OpKind::read));
  const EngineStats stats = scene.engine->stats();
  EXPECT_EQ(stats.write.operations, 10u);
  EXPECT_EQ(stats.write.bytes, 95u);
  EXPECT_EQ(stats.read.operations, 10u);
  EXPECT_EQ(stats.read.errors, 0u);
  EXPECT_EQ(stats.live, 0u);
}

TEST(Engine, done_is_never_called_from_inside_submit_or_cancel) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.unknown.insert(9); });
  const TransferId empty = scene.start(OpKind::write, 1, 0);
  scene.start(OpKind::write, 9, 10);
  const TransferId fresh = scene.start(OpKind::write, 1, 10);
  scene.engine->cancel(empty);
  scene.engine->cancel(fresh);
  for (const Ended& e : scene.ended) EXPECT_EQ(e.times, 0);
  scene.run();
  EXPECT_EQ(scene.ended[1].outcome.status.code(), Errc::unsupported);
  EXPECT_EQ(scene.ended[2].outcome.status.code(), Errc::aborted);
  EXPECT_EQ(scene.ended[2].outcome.operations, 0u);
}

TEST(Engine, a_small_value_does_not_wait_for_a_large_one) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.in_order = true; });
  scene.start(OpKind::write, 1, 100'000);
  scene.settle();  // never settles with work left, so everything is done but for what follows
  scene.start(OpKind::write, 1, 100'000);
  for (int i = 0; i < 10; ++i) scene.engine->step();
  scene.start(OpKind::write, 2, 30);
  std::uint64_t before = 0;
  scene.change([&](fake::World& w) REQUIRES(w.mutex) { before = w.landed.raw(); });
  while (scene.ended[2].times == 0) ASSERT_TRUE(scene.engine->step());
  std::uint64_t after = 0;
  scene.change([&](fake::World& w) REQUIRES(w.mutex) { after = w.landed.raw(); });
  EXPECT_EQ(scene.ended[1].times, 0);
  EXPECT_LT(after - before, 400u);  // a few rounds of 8 operations of 10 bytes
  scene.run();
}

TEST(Engine, never_passes_its_limits) {
  Scene scene;
  for (int i = 0; i < 20; ++i) scene.start(OpKind::read, 1 + static_cast<unsigned>(i) % 3, 200);
  scene.run();
  scene.change([](fake::World& w) REQUIRES(w.mutex) { EXPECT_EQ(w.in_flight_seen, 8u); });
  EngineOptions options = Scene::small();
  options.in_flight_max = 0;
  fake::World world(1);
  fake::Domain narrow(world, 3);
  SystemClock clock;
  auto engine = Engine::create(narrow, clock, options).value();
  int done = 0;
  {
    MutexLock lock(world.mutex);
    world.windows[1] = std::vector<std::byte>(100);
  }
  auto memory = std::make_shared<std::vector<std::byte>>(100);
  Job job;
  job.peer = fake::peer_address(1);
  job.local.push_back({*memory, nullptr});
  job.remote.push_back({RKey(1), RemoteAddr(0), Length(100)});
  engine->submit(std::move(job), lend([&done, memory](const TransferOutcome& o) {
                   done += o.status.ok() ? 1 : 0;
                 }));
  while (engine->live() > 0) engine->step();
  EXPECT_EQ(done, 1);
  MutexLock lock(world.mutex);
  EXPECT_EQ(world.in_flight_seen, 3u);
}

TEST(Engine, peers_are_linked_while_bound_or_in_use) {
  Scene scene;
  const auto peers = [&scene] {
    std::size_t count = 0;
    scene.change([&](fake::World& w) REQUIRES(w.mutex) { count = w.peers; });
    return count;
  };
  scene.engine->bind(fake::peer_address(1));
  scene.engine->bind(fake::peer_address(1));
  scene.start(OpKind::write, 2, 50);
  EXPECT_EQ(peers(), 2u);
  scene.run();
  EXPECT_EQ(peers(), 1u);
  scene.engine->unbind(fake::peer_address(1));
  EXPECT_EQ(peers(), 1u);
  scene.start(OpKind::write, 1, 50);
  scene.engine->unbind(fake::peer_address(1));
  EXPECT_EQ(peers(), 1u);
  scene.run();
  EXPECT_EQ(peers(), 0u);
  EXPECT_TRUE(scene.exact(1, OpKind::write));
}

TEST(Engine, an_event_loop_needs_only_the_descriptor) {
  CrcPool pool(1);
  EngineOptions options;
  options.piece_max = Length(100'000);
  options.crc_pool = &pool;
  Scene scene(1, options);
  const int fd = scene.engine->wait_fd();
  ASSERT_GE(fd, 0);
  for (const bool fence : {false, true}) {
    scene.start(OpKind::read, 1, 1'000'000);
    scene.engine->step();
    while (scene.engine->live() > 0) {
      pollfd p{fd, POLLIN, 0};
      ASSERT_EQ(::poll(&p, 1, 10'000), 1);
      scene.engine->step();
    }
    if (!fence) {
      scene.change([](fake::World& w) REQUIRES(w.mutex) { w.unquiet = 100; });
      scene.start(OpKind::read, 1, 10);
      scene.run();
      scene.change([](fake::World& w) REQUIRES(w.mutex) { w.unquiet = 0; });
    }
  }
  EXPECT_EQ(scene.engine->wait_fd(), fd);
  EXPECT_TRUE(scene.exact(0, OpKind::read));
  EXPECT_TRUE(scene.exact(2, OpKind::read));
}

TEST(Engine, done_may_submit_again) {
  fake::World world(1);
  fake::Domain domain(world);
  SystemClock clock;
  auto engine = Engine::create(domain, clock, Scene::small()).value();
  {
    MutexLock lock(world.mutex);
    world.windows[1] = std::vector<std::byte>(8);
  }
  int rounds = 0;
  std::vector<std::byte> memory(8, std::byte{5});
  std::function<void()> next = [&] {
    Job job;
    job.peer = fake::peer_address(1);
    job.local.push_back({memory, nullptr});
    job.remote.push_back({RKey(1), RemoteAddr(0), Length(8)});
    engine->submit(std::move(job), lend([&](const TransferOutcome& o) {
                     EXPECT_TRUE(o.status.ok());
                     if (++rounds < 50) next();
                   }));
  };
  next();
  while (engine->live() > 0) engine->step();
  EXPECT_EQ(rounds, 50);
}

}  // namespace
}  // namespace farlift::transfer
