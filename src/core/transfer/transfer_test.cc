#include "core/transfer/transfer.h"

#include "core/transfer/crc_pool.h"
#include "core/transfer/fake_fabric.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <condition_variable>
#include <mutex>
#include <numeric>
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

// One value, its local memory cut into spans and its remote memory into windows, each with canaries
// around it.
struct Scene {
  fake::World world;
  fake::Domain domain{world};
  std::unique_ptr<fabric::Initiator> initiator = domain.open_initiator({}).value();
  fabric::PeerId peer = initiator->add_peer(fake::peer_address(1)).value();
  std::vector<std::vector<std::byte>> locals;
  TransferRequest request;

  static constexpr std::size_t kMargin = 16;
  static constexpr std::byte kCanary{0xEE};

  Scene(std::uint64_t seed, OpKind kind, const std::vector<std::size_t>& spans,
        const std::vector<std::size_t>& windows)
      : world(seed) {
    request.kind = kind;
    request.peer = peer;
    MutexLock lock(world.mutex);
    for (const std::size_t length : spans) {
      locals.push_back(std::vector<std::byte>(length + 2 * kMargin, kCanary));
      request.local.push_back({std::span(locals.back()).subspan(kMargin, length), nullptr});
    }
    std::uint64_t key = 100;
    for (const std::size_t length : windows) {
      world.windows[key] = std::vector<std::byte>(length + 2 * kMargin, kCanary);
      request.remote.push_back({RKey(key++), RemoteAddr(kMargin), Length(length)});
    }
  }
  ~Scene() {
    MutexLock lock(world.mutex);
    EXPECT_TRUE(world.violations.empty()) << world.violations.front();
  }

  std::size_t length() const {
    std::size_t total = 0;
    for (const LocalSpan& span : request.local) total += span.bytes.size();
    return total;
  }
  void put_local(std::span<const std::byte> bytes) {
    for (const LocalSpan& span : request.local) {
      std::copy_n(bytes.begin(), span.bytes.size(), span.bytes.begin());
      bytes = bytes.subspan(span.bytes.size());
    }
  }
  std::vector<std::byte> local() const {
    std::vector<std::byte> all;
    for (const LocalSpan& span : request.local)
      all.insert(all.end(), span.bytes.begin(), span.bytes.end());
    return all;
  }
  void put_remote(std::span<const std::byte> bytes) {
    MutexLock lock(world.mutex);
    for (const RemoteWindow& window : request.remote) {
      const std::size_t now = std::min<std::size_t>(bytes.size(), window.length.raw());
      std::copy_n(bytes.begin(), now, world.windows[window.key.raw()].begin() + kMargin);
      bytes = bytes.subspan(now);
    }
  }
  // The first `length` bytes of the windows; everything else must be canary.
  std::vector<std::byte> remote(std::size_t length) {
    MutexLock lock(world.mutex);
    std::vector<std::byte> all;
    for (const RemoteWindow& window : request.remote) {
      const auto& memory = world.windows[window.key.raw()];
      const std::size_t now = std::min<std::size_t>(length - all.size(), window.length.raw());
      for (std::size_t i = 0; i < memory.size(); ++i) {
        const bool value = i >= kMargin && i < kMargin + now;
        EXPECT_TRUE(value || memory[i] == kCanary);
      }
      all.insert(all.end(), memory.begin() + kMargin,
                 memory.begin() + static_cast<std::ptrdiff_t>(kMargin + now));
    }
    return all;
  }
  bool local_margins_intact() const {
    return std::all_of(locals.begin(), locals.end(), [](const std::vector<std::byte>& memory) {
      return std::all_of(memory.begin(), memory.begin() + kMargin,
                         [](std::byte b) { return b == kCanary; }) &&
             std::all_of(memory.end() - kMargin, memory.end(),
                         [](std::byte b) { return b == kCanary; });
    });
  }

  void drive(Transfer& transfer) {
    std::array<fabric::Completion, 8> completions;
    while (!transfer.done()) {
      const std::size_t count = initiator->poll(completions);
      for (std::size_t i = 0; i < count; ++i) transfer.on_completion(completions[i]);
      if (count == 0) {
        transfer.resume();
        if (!transfer.done() && transfer.in_flight() == 0 && !transfer.wants_to_post())
          initiator->wait(100);
      }
    }
  }
  TransferOutcome run(std::uint32_t high = 7) {
    Transfer transfer(*initiator, request, high);
    transfer.start();
    drive(transfer);
    return transfer.outcome();
  }
};

TEST(Transfer, cuts_at_spans_windows_and_pieces) {
  Scene scene(1, OpKind::write, {10, 20}, {7, 100});
  scene.request.piece_max = Length(8);
  const auto bytes = pattern(30, 1);
  scene.put_local(bytes);
  const TransferOutcome outcome = scene.run();
  ASSERT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.operations, 5u);  // 7 | 3 | 8 8 4
  EXPECT_EQ(outcome.moved, Length(30));
  EXPECT_EQ(scene.remote(30), bytes);
}

TEST(Transfer, windows_that_cannot_hold_the_value_are_not_touched) {
  Scene scene(1, OpKind::write, {31}, {10, 20});
  EXPECT_EQ(scene.run().status.code(), Errc::out_of_range);
  EXPECT_TRUE(scene.remote(0).empty());
  MutexLock lock(scene.world.mutex);
  EXPECT_EQ(scene.world.posts, 0u);
}

TEST(Transfer, windows_that_wrap_are_refused_and_sums_do_not_overflow) {
  Scene scene(1, OpKind::write, {10}, {10});
  scene.request.remote.push_back({RKey(1), RemoteAddr(2), Length(UINT64_MAX - 1)});
  EXPECT_EQ(scene.run().status.code(), Errc::out_of_range);
  scene.request.remote.back() = {RKey(1), RemoteAddr(0), Length(UINT64_MAX)};
  scene.request.remote.push_back(scene.request.remote.back());
  EXPECT_TRUE(scene.run().status.ok());
}

TEST(Transfer, nothing_to_move_is_done_at_once) {
  Scene scene(1, OpKind::read, {}, {});
  scene.request.compute_crc = true;
  const TransferOutcome outcome = scene.run();
  EXPECT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.operations, 0u);
  EXPECT_EQ(outcome.crc, Crc32c(0));
}

TEST(Transfer, empty_spans_and_windows_are_passed_over) {
  Scene scene(1, OpKind::write, {0, 3, 0, 0, 4, 0}, {0, 0, 5, 0, 5});
  const auto bytes = pattern(7, 3);
  scene.put_local(bytes);
  const TransferOutcome outcome = scene.run();
  EXPECT_EQ(outcome.operations, 3u);
  EXPECT_EQ(scene.remote(7), bytes);
}

TEST(Transfer, stops_posting_at_the_first_failure_and_waits_for_the_rest) {
  Scene scene(5, OpKind::write, {1000}, {1000});
  scene.request.piece_max = Length(10);
  scene.request.in_flight_max = 8;
  Transfer transfer(*scene.initiator, scene.request, 1);
  transfer.start();
  EXPECT_EQ(transfer.in_flight(), 8u);
  std::array<fabric::Completion, 1> one;
  {
    MutexLock lock(scene.world.mutex);
    scene.world.refuse = 100;
  }
  ASSERT_EQ(scene.initiator->poll(one), 1u);
  transfer.on_completion(one[0]);
  {
    MutexLock lock(scene.world.mutex);
    scene.world.refuse = 0;
  }
  EXPECT_FALSE(transfer.done());
  EXPECT_EQ(transfer.in_flight(), 7u);
  scene.drive(transfer);
  const TransferOutcome outcome = transfer.outcome();
  EXPECT_EQ(outcome.status.code(), Errc::access);
  EXPECT_EQ(outcome.operations, 8u);
  EXPECT_EQ(outcome.moved, Length(70));
  EXPECT_TRUE(outcome.status.error().quiet);
}

TEST(Transfer, any_operation_that_is_not_quiet_makes_the_whole_so) {
  Scene scene(5, OpKind::write, {30}, {30});
  scene.request.piece_max = Length(10);
  Transfer transfer(*scene.initiator, scene.request, 1);
  transfer.start();
  std::array<fabric::Completion, 1> one;
  for (const bool unquiet : {false, true, false}) {
    {
      MutexLock lock(scene.world.mutex);
      scene.world.refuse = unquiet ? 0 : 100;
      scene.world.unquiet = unquiet ? 100 : 0;
    }
    ASSERT_EQ(scene.initiator->poll(one), 1u);
    transfer.on_completion(one[0]);
  }
  ASSERT_TRUE(transfer.done());
  EXPECT_EQ(transfer.outcome().status.code(), Errc::access);  // the first one
  EXPECT_FALSE(transfer.outcome().status.error().quiet);
}

TEST(Transfer, stopping) {
  Scene scene(5, OpKind::write, {1000}, {1000});
  scene.request.piece_max = Length(10);
  scene.request.in_flight_max = 4;
  Transfer transfer(*scene.initiator, scene.request, 1);
  transfer.start();
  transfer.stop(Error::make(Errc::aborted, "test"));
  EXPECT_FALSE(transfer.done());
  scene.drive(transfer);
  EXPECT_EQ(transfer.outcome().status.code(), Errc::aborted);
  EXPECT_EQ(transfer.outcome().operations, 4u);
  transfer.stop(Error::make(Errc::internal, "test"));
  EXPECT_EQ(transfer.outcome().status.code(), Errc::aborted);

  Scene done(5, OpKind::write, {10}, {10});
  Transfer finished(*done.initiator, done.request, 1);
  finished.start();
  done.drive(finished);
  finished.stop(Error::make(Errc::aborted, "test"));
  EXPECT_TRUE(finished.outcome().status.ok());
}

TEST(Transfer, a_lost_initiator_ends_what_was_out) {
  Scene scene(5, OpKind::read, {100}, {100});
  scene.request.piece_max = Length(10);
  scene.request.in_flight_max = 4;
  Transfer transfer(*scene.initiator, scene.request, 1);
  transfer.start();
  scene.initiator->close();
  transfer.lost(Error::not_quiet(Errc::flushed, "test"));
  ASSERT_TRUE(transfer.done());
  EXPECT_EQ(transfer.outcome().status.code(), Errc::flushed);
  EXPECT_FALSE(transfer.outcome().status.error().quiet);
}

TEST(Transfer, goes_on_with_another_initiator) {
  Scene scene(5, OpKind::write, {100}, {100});
  scene.request.piece_max = Length(10);
  const auto bytes = pattern(100, 9);
  scene.put_local(bytes);
  Transfer transfer(*scene.initiator, scene.request, 1);
  ASSERT_EQ(transfer.post(1).posted, 1u);
  std::array<fabric::Completion, 1> one;
  ASSERT_EQ(scene.initiator->poll(one), 1u);
  transfer.take(one[0]);
  auto next = scene.domain.open_initiator({}).value();
  transfer.lost(Error::not_quiet(Errc::flushed, "test"));  // nothing was out, so nothing failed
  transfer.move_to(*next, next->add_peer(fake::peer_address(1)).value());
  scene.initiator = std::move(next);
  transfer.resume();
  scene.drive(transfer);
  EXPECT_TRUE(transfer.outcome().status.ok());
  EXPECT_EQ(scene.remote(100), bytes);
}

TEST(Transfer, times_its_operations) {
  Scene scene(1, OpKind::write, {10}, {10});
  ManualClock clock;
  scene.request.clock = &clock;
  Transfer transfer(*scene.initiator, scene.request, 1);
  transfer.start();
  clock.advance(std::chrono::microseconds(7));
  scene.drive(transfer);
  EXPECT_EQ(transfer.outcome().busy, Duration(7000));
}

TEST(Transfer, a_pool_hashes_large_values_and_done_waits_for_it) {
  CrcPool pool(1);
  constexpr std::size_t kBytes = kInlineHashMax.raw() * 2;
  Scene scene(3, OpKind::read, {kBytes / 4, kBytes / 4 * 3}, {kBytes});
  scene.request.piece_max = Length(kBytes / 10);
  scene.request.compute_crc = true;
  scene.request.crc_pool = &pool;
  const auto bytes = pattern(kBytes, 4);
  scene.put_remote(bytes);

  // The pool is kept busy, so everything arrives before anything is hashed.
  std::mutex m;
  std::condition_variable cv;
  bool go = false;
  ASSERT_TRUE(pool.try_submit([&] {
    std::unique_lock lock(m);
    cv.wait(lock, [&] { return go; });
  }));
  Transfer transfer(*scene.initiator, scene.request, 1);
  transfer.start();
  std::array<fabric::Completion, 8> completions;
  while (transfer.in_flight() > 0) {
    const std::size_t count = scene.initiator->poll(completions);
    for (std::size_t i = 0; i < count; ++i) transfer.on_completion(completions[i]);
  }
  EXPECT_FALSE(transfer.done());
  {
    const std::lock_guard lock(m);
    go = true;
  }
  cv.notify_all();
  scene.drive(transfer);
  EXPECT_EQ(transfer.outcome().crc, digest::crc32c(bytes));
  EXPECT_EQ(scene.local(), bytes);
}

TEST(Transfer, a_full_pool_or_a_small_value_is_hashed_at_once) {
  CrcPool pool(1);
  std::mutex m;
  std::condition_variable cv;
  bool busy = false;
  bool go = false;
  const auto block = [&] {
    std::unique_lock lock(m);
    busy = true;
    cv.notify_all();
    cv.wait(lock, [&] { return go; });
  };
  const auto release = [&] {
    const std::lock_guard lock(m);
    go = true;
    cv.notify_all();
  };
  ASSERT_TRUE(pool.try_submit(block));
  {  // else the pool would take it later, and with it a place of the full queue would come free
    std::unique_lock lock(m);
    cv.wait(lock, [&] { return busy; });
  }
  for (const std::size_t length :
       {std::size_t{kInlineHashMax.raw()}, std::size_t{kInlineHashMax.raw() + 1}}) {
    if (length > kInlineHashMax.raw()) {
      while (pool.try_submit([] {})) continue;
    }
    Scene scene(3, OpKind::read, {length}, {length});
    scene.request.piece_max = Length(100'000);
    scene.request.compute_crc = true;
    scene.request.crc_pool = &pool;
    const auto bytes = pattern(length, 4);
    scene.put_remote(bytes);
    const TransferOutcome outcome = scene.run();
    EXPECT_EQ(outcome.crc, digest::crc32c(bytes));
  }
  release();
}

// Whatever the cuts, the order of completions and the Initiator's moods: the right bytes in the
// right places, the CRC of them, nothing else touched, and never more out than allowed.
RC_GTEST_PROP(Transfer, moves_exactly_the_value, (std::uint64_t seed)) {
  const auto sizes =
      rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 400));
  const auto spans = *sizes;
  auto windows = *sizes;
  const std::size_t length = std::accumulate(spans.begin(), spans.end(), std::size_t{0});
  const std::size_t room = std::accumulate(windows.begin(), windows.end(), std::size_t{0});
  if (room < length) windows.push_back(length - room + *rc::gen::inRange<std::size_t>(0, 50));
  const OpKind kind = *rc::gen::element(OpKind::read, OpKind::write);
  Scene scene(seed, kind, spans, windows);
  scene.request.piece_max = Length(*rc::gen::inRange<std::uint64_t>(1, 300));
  scene.request.in_flight_max = *rc::gen::inRange<std::uint32_t>(1, 9);
  scene.request.compute_crc = *rc::gen::arbitrary<bool>();
  {
    MutexLock lock(scene.world.mutex);
    scene.world.again = *rc::gen::element(0u, 40u);
  }
  const auto bytes = pattern(length, seed);
  if (kind == OpKind::write) {
    scene.put_local(bytes);
  } else {
    scene.put_remote(bytes);
  }
  const TransferOutcome outcome = scene.run();
  RC_ASSERT(outcome.status.ok());
  RC_ASSERT(outcome.moved == Length(length));
  RC_ASSERT(scene.local() == bytes);
  RC_ASSERT(scene.remote(length) == bytes);
  RC_ASSERT(scene.local_margins_intact());
  if (scene.request.compute_crc) RC_ASSERT(outcome.crc == digest::crc32c(bytes));
  MutexLock lock(scene.world.mutex);
  RC_ASSERT(scene.world.in_flight_seen <= scene.request.in_flight_max);
  RC_ASSERT(scene.world.posts == outcome.operations);
}

}  // namespace
}  // namespace farlift::transfer
