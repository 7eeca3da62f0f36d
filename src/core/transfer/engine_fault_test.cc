// The engine when things go wrong: cancelled, stalled, refused, not quiet, closed.
#include "core/transfer/crc_pool.h"
#include "core/transfer/engine_test_base.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

namespace farlift::transfer {
namespace {

using fabric::OpKind;

TEST(Engine, cancelling_a_stalled_transfer_aborts_its_peer) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(1); });
  const TransferId stuck = scene.start(OpKind::read, 1, 100);
  scene.start(OpKind::read, 2, 100);
  scene.settle();
  EXPECT_EQ(scene.ended[0].times, 0);
  EXPECT_EQ(scene.ended[1].times, 1);
  scene.engine->cancel(stuck);
  scene.engine->cancel(stuck);
  scene.run();
  EXPECT_EQ(scene.ended[0].outcome.status.code(), Errc::aborted);
  EXPECT_TRUE(scene.ended[0].outcome.status.error().quiet);
  EXPECT_EQ(scene.ended[0].outcome.operations, 4u);
  scene.engine->cancel(stuck);  // reported already
  EXPECT_EQ(scene.engine->stats().read.errors, 1u);
  EXPECT_EQ(scene.engine->stats().fences, 0u);
}

TEST(Engine, a_shared_peer_is_aborted_only_when_nobody_wants_it) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(1); });
  const TransferId a = scene.start(OpKind::write, 1, 100);
  const TransferId b = scene.start(OpKind::write, 1, 100);
  scene.settle();
  scene.engine->cancel(a);
  scene.settle();
  EXPECT_EQ(scene.ended[0].times, 0);  // its operations are out, and are the peer's to finish
  scene.change([](fake::World& w) REQUIRES(w.mutex) { EXPECT_EQ(w.aborts, 0u); });
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.clear(); });
  scene.run();
  EXPECT_EQ(scene.ended[0].outcome.status.code(), Errc::aborted);
  EXPECT_TRUE(scene.ended[1].outcome.status.ok());
  EXPECT_TRUE(scene.exact(1, OpKind::write));
  scene.engine->cancel(b);

  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(2); });
  const TransferId c = scene.start(OpKind::write, 2, 100);
  const TransferId d = scene.start(OpKind::write, 2, 100);
  scene.settle();
  scene.engine->cancel(c);
  scene.engine->cancel(d);
  scene.run();
  EXPECT_EQ(scene.ended[2].outcome.status.code(), Errc::aborted);
  EXPECT_EQ(scene.ended[3].outcome.status.code(), Errc::aborted);
}

TEST(Engine, a_cancelled_transfer_in_the_round_ends_though_the_round_is_stuck) {
  EngineOptions options = Scene::small();
  options.in_flight_max = 4;
  Scene scene(1, options);
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(1); });
  scene.start(OpKind::read, 1, 100);  // takes every place
  scene.settle();
  const TransferId waiting = scene.start(OpKind::read, 2, 100);
  scene.settle();
  EXPECT_EQ(scene.ended[1].times, 0);
  scene.engine->cancel(waiting);
  scene.settle();
  EXPECT_EQ(scene.ended[1].times, 1);
  scene.engine->cancel_all();
  scene.run();
}

TEST(Engine, not_quiet_fences_before_anybody_is_told) {
  Scene scene;
  scene.engine->bind(fake::peer_address(7));
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled = {2, 3}; });
  scene.start(OpKind::read, 2, 40);  // out when the fence comes: flushed
  scene.settle();
  scene.start(OpKind::read, 1, 10);  // ends not quiet
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.unquiet = 100; });
  scene.settle();
  scene.change([](fake::World& w) REQUIRES(w.mutex) {
    w.unquiet = 0;
    EXPECT_EQ(w.opens, 2u);
    EXPECT_EQ(w.closes, 1u);
    EXPECT_EQ(w.peers, 1u);  // the bound one, known to the new initiator
  });
  ASSERT_EQ(scene.ended[0].times, 1);
  ASSERT_EQ(scene.ended[1].times, 1);
  EXPECT_EQ(scene.ended[0].outcome.status.code(), Errc::flushed);
  EXPECT_FALSE(scene.ended[0].outcome.status.error().quiet);
  EXPECT_EQ(scene.ended[1].outcome.status.code(), Errc::connection_lost);
  EXPECT_FALSE(scene.ended[1].outcome.status.error().quiet);
  EXPECT_EQ(scene.engine->stats().fences, 1u);
  scene.start(OpKind::read, 1, 100);
  scene.run();
  EXPECT_TRUE(scene.ended[2].outcome.status.ok());
  scene.engine->unbind(fake::peer_address(7));
}

TEST(Engine, transfers_with_nothing_out_live_through_a_fence) {
  EngineOptions options = Scene::small();
  options.in_flight_max = 4;
  options.piece_max = Length(10);
  Scene scene(3, options);
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stalled.insert(1); });
  scene.start(OpKind::read, 1, 40);  // takes every place
  scene.settle();
  scene.start(OpKind::read, 2, 100);
  scene.settle();
  scene.change([](fake::World& w) REQUIRES(w.mutex) {
    w.stalled.clear();
    w.unquiet = 100;
  });
  scene.engine->step();
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.unquiet = 0; });
  scene.run();
  EXPECT_FALSE(scene.ended[0].outcome.status.ok());
  // The second had nothing out at the first fence; it may only fail if it had when another came.
  EXPECT_TRUE(scene.ended[1].outcome.status.ok());
  EXPECT_TRUE(scene.exact(1, OpKind::read));
}

TEST(Engine, an_initiator_that_cannot_be_opened_again_refuses_until_it_can) {
  Scene scene;
  scene.engine->bind(fake::peer_address(1));
  scene.change([](fake::World& w) REQUIRES(w.mutex) {
    w.unquiet = 100;
    w.fail_open = true;
  });
  scene.start(OpKind::read, 1, 10);
  scene.run();
  scene.start(OpKind::read, 1, 10);
  scene.run();
  EXPECT_EQ(scene.ended[1].outcome.status.code(), Errc::exhausted);
  EXPECT_TRUE(scene.ended[1].outcome.status.error().quiet);
  scene.engine->wake();
  scene.engine->wait(-1);  // returns because it was woken, though there is no initiator
  scene.engine->wait(1);
  scene.change([](fake::World& w) REQUIRES(w.mutex) {
    w.unquiet = 0;
    w.fail_open = false;
  });
  scene.start(OpKind::read, 1, 10);
  scene.run();
  EXPECT_TRUE(scene.ended[2].outcome.status.ok());
  scene.engine->unbind(fake::peer_address(1));
  fake::World world(1);
  fake::Domain domain(world);
  {
    MutexLock lock(world.mutex);
    world.fail_open = true;
  }
  EXPECT_EQ(Engine::create(domain, scene.clock, Scene::small()).code(), Errc::exhausted);
}

TEST(Engine, closing_ends_everything) {
  Scene scene;
  scene.change([](fake::World& w) REQUIRES(w.mutex) { w.stubborn.insert(1); });
  scene.start(OpKind::read, 1, 100);
  scene.settle();
  scene.start(OpKind::read, 2, 100);
  scene.engine->close();
  EXPECT_EQ(scene.ended[0].outcome.status.code(), Errc::aborted);
  EXPECT_FALSE(scene.ended[0].outcome.status.error().quiet);
  EXPECT_TRUE(scene.ended[1].outcome.status.error().quiet);  // nothing was out
  scene.start(OpKind::read, 2, 100);
  scene.run();
  EXPECT_EQ(scene.ended[2].outcome.status.code(), Errc::aborted);
  scene.engine->wake();
  scene.engine->close();
}

// Many transfers under every fault at once: each is reported once, none while its memory may be
// touched (the Scene's destructor checks both), and those that report success are exact.
RC_GTEST_PROP(Engine, any_mixture_ends_right, (std::uint64_t seed)) {
  CrcPool pool(1);
  EngineOptions options = Scene::small();
  options.crc_pool = *rc::gen::arbitrary<bool>() ? &pool : nullptr;
  options.piece_max = Length(*rc::gen::element(10u, 100'000u));
  Scene scene(seed, options);
  scene.change([](fake::World& w) REQUIRES(w.mutex) {
    w.again = *rc::gen::element(0u, 30u);
    w.refuse = *rc::gen::element(0u, 5u);
    w.unquiet = *rc::gen::element(0u, 1u, 5u);
    w.stalled.insert(3);
    w.stubborn.insert(4);
    w.unknown.insert(5);
  });
  Prng prng(seed);
  std::vector<OpKind> kinds;
  std::vector<TransferId> ids;
  const bool large = options.piece_max > Length(10);
  for (int i = 0; i < 30; ++i) {
    kinds.push_back(prng.chance(1, 2) ? OpKind::read : OpKind::write);
    const auto peer =
        static_cast<unsigned>(prng.chance(1, 10) ? 3 + prng.below(3) : 1 + prng.below(2));
    ids.push_back(
        scene.start(kinds.back(), peer, large && prng.chance(1, 10) ? 270'000 : prng.below(150)));
    for (std::uint64_t steps = prng.below(4); steps > 0; --steps) scene.engine->step();
    if (prng.chance(1, 8)) scene.engine->cancel(ids[prng.below(ids.size())]);
  }
  for (int i = 0; i < 400; ++i) {
    if (!scene.engine->step()) scene.engine->wait(0);
  }
  scene.engine->cancel_all();
  for (int i = 0; i < 200; ++i) scene.engine->step();
  scene.engine->close();
  RC_ASSERT(scene.engine->live() == 0u);
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    RC_ASSERT(scene.ended[i].times == 1);
    if (scene.ended[i].outcome.status.ok()) RC_ASSERT(scene.exact(i, kinds[i]));
  }
}

}  // namespace
}  // namespace farlift::transfer
