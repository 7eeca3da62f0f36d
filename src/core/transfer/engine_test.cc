#include "core/transfer/engine.h"

#include "core/base/log.h"
#include "core/digest/crc32c.h"
#include "core/transfer/crc_pool.h"
#include "core/transfer/fake_fabric.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <numeric>
#include <poll.h>
#include <vector>

namespace farlift::transfer {
namespace {

using fabric::OpKind;

// Eight bytes at a time: sanitizers make a loop over bytes slow.
std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::uint64_t> words(length / 8 + 1);
  for (std::uint64_t& word : words) word = prng.next();
  const auto bytes = std::as_bytes(std::span(words)).first(length);
  return {bytes.begin(), bytes.end()};
}

// Fences are what these tests are about; a line for each would drown the rest.
[[maybe_unused]] const bool quiet_log = [] {
  set_log_level(LogLevel::error);
  return true;
}();

struct Ended {
  int times = 0;
  bool destroyed = false;
  bool lent_when_told = false;
  bool lent_when_destroyed = false;
  TransferOutcome outcome;
  std::vector<std::byte> bytes;  // local memory when told
};

// Owns its memory, and looks whether anybody may still touch it when it is told and when it goes.
class Memory final : public Lender {
 public:
  Memory(fake::World& world, std::vector<std::byte> memory, Ended& ended)
      : world_(world), memory_(std::move(memory)), ended_(ended) {}
  ~Memory() override {
    ended_.destroyed = true;
    ended_.lent_when_destroyed = world_.lent(memory_);
  }
  std::span<std::byte> bytes() { return memory_; }
  void done(const TransferOutcome& outcome) noexcept override {
    ++ended_.times;
    ended_.outcome = outcome;
    ended_.lent_when_told = world_.lent(memory_);
    ended_.bytes = memory_;
  }

 private:
  fake::World& world_;
  std::vector<std::byte> memory_;
  Ended& ended_;
};

struct Scene {
  SystemClock clock;
  fake::World world;
  fake::Domain domain;
  std::unique_ptr<Engine> engine;
  std::deque<Ended> ended;
  std::vector<std::vector<std::byte>> values;
  std::uint64_t next_key = 1;

  explicit Scene(std::uint64_t seed = 1, EngineOptions options = small())
      : world(seed), domain(world) {
    engine = Engine::create(domain, clock, options).value();
  }
  ~Scene() {
    engine.reset();
    for (const Ended& e : ended) {
      EXPECT_EQ(e.times, 1);
      EXPECT_TRUE(e.destroyed);
      EXPECT_FALSE(e.lent_when_told);
      EXPECT_FALSE(e.lent_when_destroyed);
    }
    MutexLock lock(world.mutex);
    EXPECT_TRUE(world.violations.empty()) << world.violations.front();
    EXPECT_TRUE(world.initiators.empty());
    EXPECT_EQ(world.peers, 0u);
  }
  static EngineOptions small() {
    EngineOptions options;
    options.piece_max = Length(10);
    options.in_flight_max = 8;
    options.in_flight_per_transfer_max = 4;
    return options;
  }

  TransferId start(OpKind kind, unsigned peer, std::size_t length) {
    auto value = pattern(length, next_key);
    std::vector<std::byte> local = kind == OpKind::write ? value : std::vector<std::byte>(length);
    Job job;
    job.kind = kind;
    job.peer = fake::peer_address(peer);
    job.compute_crc = kind == OpKind::read;
    job.remote.push_back({RKey(next_key), RemoteAddr(0), Length(length)});
    {
      MutexLock lock(world.mutex);
      world.windows[next_key++] = kind == OpKind::read ? value : std::vector<std::byte>(length);
    }
    values.push_back(std::move(value));
    ended.emplace_back();
    auto lender = std::make_unique<Memory>(world, std::move(local), ended.back());
    job.local.push_back({lender->bytes(), nullptr});
    return engine->submit(std::move(job), std::move(lender));
  }
  // Whether transfer `index` left the right bytes where they belong.
  bool exact(std::size_t index, OpKind kind) {
    if (kind == OpKind::read) {
      return ended[index].bytes == values[index] &&
             ended[index].outcome.crc == digest::crc32c(values[index]);
    }
    MutexLock lock(world.mutex);
    return world.windows[index + 1] == values[index];
  }
  void run() {
    for (int idle = 0; engine->live() > 0 && idle < 1000;) {
      if (engine->step()) continue;
      ++idle;
      engine->wait(10);
    }
    EXPECT_EQ(engine->live(), 0u);
  }
  // Steps until there is nothing to do right now.
  void settle() {
    for (int quiet = 0; quiet < 3;) quiet = engine->step() ? 0 : quiet + 1;
  }
  template <class Change>
  void change(Change set)
      FARLIFT_TS(no_thread_safety_analysis) {  // it cannot follow the mutex into a lambda
    MutexLock lock(world.mutex);
    set(world);
  }
};

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
