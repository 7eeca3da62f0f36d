// A scene for tests of the engine: a fake fabric, transfers over memory that watches who may touch
// it, and what must hold when all is over.
//
// Threads: as used by one test. Errors: gtest failures.
#pragma once

#include "core/base/log.h"
#include "core/digest/crc32c.h"
#include "core/transfer/engine.h"
#include "core/transfer/fake_fabric.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace farlift::transfer {

// Eight bytes at a time: sanitizers make a loop over bytes slow.
inline std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::uint64_t> words(length / 8 + 1);
  for (std::uint64_t& word : words) word = prng.next();
  const auto bytes = std::as_bytes(std::span(words)).first(length);
  return {bytes.begin(), bytes.end()};
}

// Fences are what these tests are about; a line for each would drown the rest.
[[maybe_unused]] inline const bool quiet_log = [] {
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

  TransferId start(fabric::OpKind kind, unsigned peer, std::size_t length) {
    auto value = pattern(length, next_key);
    std::vector<std::byte> local =
        kind == fabric::OpKind::write ? value : std::vector<std::byte>(length);
    Job job;
    job.kind = kind;
    job.peer = fake::peer_address(peer);
    job.compute_crc = kind == fabric::OpKind::read;
    job.remote.push_back({RKey(next_key), RemoteAddr(0), Length(length)});
    {
      MutexLock lock(world.mutex);
      world.windows[next_key++] =
          kind == fabric::OpKind::read ? value : std::vector<std::byte>(length);
    }
    values.push_back(std::move(value));
    ended.emplace_back();
    auto lender = std::make_unique<Memory>(world, std::move(local), ended.back());
    job.local.push_back({lender->bytes(), nullptr});
    return engine->submit(std::move(job), std::move(lender));
  }
  // Whether transfer `index` left the right bytes where they belong.
  bool exact(std::size_t index, fabric::OpKind kind) {
    if (kind == fabric::OpKind::read) {
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

}  // namespace farlift::transfer
