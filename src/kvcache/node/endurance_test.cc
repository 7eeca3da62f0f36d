// Many of everything: rotations, migrations that fail, lost writes, tenants at the limit of the
// card; and accounts that are right after all of it (spec kv 8, 10), in a simulated world.
#include "kvcache/node/testing/stub_domain.h"
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/long_run.h"

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;
using farlift::testing::repeats;

class KvNodeEndurance : public ::testing::Test {
 protected:
  void start(WorldOptions with = {}, Duration grace = kGrace) {
    client_.reset();
    world_ = std::make_unique<World>(std::move(with));
    NodeOptions options = world_->options();
    options.grace = grace;
    world_->start(std::move(options));
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  std::uint64_t count(const char* name) { return world_->see().counter(name); }
  bool until_count(const char* name, std::uint64_t value) {
    return world_->until([&] { return count(name) == value; });
  }
  // Gauges against the manifest.
  void expect_accounts() {
    std::map<SlotState, std::uint64_t> states;
    std::uint64_t live = 0;
    for (const ArenaView& arena : world_->see().arenas()) {
      std::map<SlotState, std::uint64_t> here;
      std::uint64_t end = 0;
      std::uint64_t arena_live = 0;
      for (const SlotView& slot : world_->see().slots(arena.id)) {
        ++here[slot.state];
        ++states[slot.state];
        const std::uint64_t at =
            static_cast<std::uint64_t>(slot.header.data() - world_->see().memory(arena.id).data());
        ASSERT_GE(at, end) << "slots overlap";
        if (slot.state == SlotState::free) continue;
        end = at + kHeaderBytes + slot.payload.size();
        if (slot.state == SlotState::published) arena_live += slot.payload.size();
      }
      live += arena_live;
      EXPECT_LE(end, arena.used.raw());
      EXPECT_EQ(arena_live, arena.live.raw());
      EXPECT_EQ(here[SlotState::free], arena.free);
      EXPECT_EQ(here[SlotState::reserved], arena.reserved);
      EXPECT_EQ(here[SlotState::sealed], arena.sealed);
      EXPECT_EQ(here[SlotState::published], arena.published);
      EXPECT_EQ(here[SlotState::quarantined], arena.quarantined);
    }
    EXPECT_EQ(states[SlotState::published], count("slots_published"));
    EXPECT_EQ(states[SlotState::quarantined], count("slots_quarantined"));
    EXPECT_EQ(live, count("bytes_live"));
  }
  StubControl stub_;
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

// The last N publishes, deletes or overwrites are lost: until it converged, and afterwards, a read
// gets what was committed at some time, or nothing; and within 60 s directory and manifest agree.
TEST_F(KvNodeEndurance, K067_a_failover_loses_the_last_writes) {
  enum class Kind { publish, remove, overwrite };
  std::uint64_t seed = 0;
  for (const Kind kind : {Kind::publish, Kind::remove, Kind::overwrite}) {
    for (const std::uint64_t lost : {1u, 5u, 25u}) {
      SCOPED_TRACE("kind " + std::to_string(static_cast<int>(kind)) + ", " + std::to_string(lost));
      start({.seed = ++seed});
      std::map<Bytes, std::set<Bytes>> committed;
      const auto put = [&](std::uint64_t number, std::uint64_t round) {
        const Bytes key = bytes_of("k" + std::to_string(number));
        const Bytes value = pattern(500, seed * 10000 + round * 100 + number);
        ASSERT_EQ(client_->put(key, value, PutMode::replace).outcome, Outcome::ok);
        committed[key].insert(value);
      };
      for (std::uint64_t i = 0; i < 30; ++i) put(i, 0);
      world_->pass(2s);
      const Instant before = world_->clock.now();
      for (std::uint64_t i = 0; i < lost; ++i) {
        if (kind == Kind::publish) put(100 + i, 1);
        if (kind == Kind::overwrite) put(i, 1);
        if (kind == Kind::remove) {
          ASSERT_EQ(client_->remove(bytes_of("k" + std::to_string(i))), Outcome::ok);
        }
      }
      world_->valkey.fail_over(world_->clock.now() - before);
      const Instant end = world_->clock.now() + 60s;
      const auto reads_are_committed = [&] {
        for (const auto& [key, values] : committed) {
          const auto got = client_->get(key);
          ASSERT_TRUE(!got || values.contains(*got));
        }
      };
      while (world_->clock.now() < end) {
        reads_are_committed();
        world_->pass(5s);
      }
      reads_are_committed();
      std::set<std::pair<Bytes, Location>> published;
      for (const ArenaView& arena : world_->see().arenas()) {
        for (const SlotView& slot : world_->see().slots(arena.id)) {
          if (slot.state == SlotState::published) published.emplace(slot.key, slot.location);
        }
      }
      std::size_t named = 0;
      for (const auto& [key, values] : committed) {
        const auto descriptor = world_->stored_descriptor("t1", key);
        if (!descriptor) continue;
        ++named;
        EXPECT_TRUE(published.contains({key, descriptor->location}))
            << "the directory names what the manifest does not have";
      }
      EXPECT_EQ(named, published.size()) << "the manifest has what the directory does not name";
      EXPECT_GE(named, 30 - lost) << "what was not touched is there";
    }
  }
}

TEST_F(KvNodeEndurance, R050_migrations_that_fail_leave_nothing_behind) {
  start({}, Duration(0));
  const Bytes value = pattern(3000, 1), filling = pattern(20000, 1);
  const auto ring = keyring_of(1);
  const Bytes key = bytes_of("hot");
  for (int round = 0; round < 1000; ++round) {
    ASSERT_EQ(client_->put(key, value, PutMode::replace).outcome, Outcome::ok);
    const auto at = world_->stored_descriptor("t1", key)->location;
    ASSERT_EQ(client_->put(bytes_of("fill"), filling, PutMode::replace).outcome, Outcome::ok);
    ASSERT_EQ(client_->remove(bytes_of("fill")), Outcome::ok);
    (void)client_->send(FrameType::touch, encode(TouchRequest{{ring.signing().key_hash(key)}}));
    world_->pass(10ms);
    std::byte* const memory = world_->see().at(at);
    ASSERT_NE(memory, nullptr);
    memory[kHeaderBytes + 17] ^= std::byte{1};  // the copy's CRC will not be right
    world_->node().rotate_all();
    ASSERT_TRUE(until_count("arenas_rotating", 0));
    ASSERT_TRUE(until_count("purges_waiting", 0));
    EXPECT_FALSE(client_->get(key).has_value());
  }
  EXPECT_EQ(count("slots_reserved") + count("slots_sealed") + count("slots_published") +
                count("slots_quarantined"),
            0u);
  EXPECT_EQ(count("migrated"), 0u);
}

TEST_F(KvNodeEndurance, K061_random_puts_deletes_and_rotations_account_for_everything) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    start({.seed = seed});
    Prng prng(seed);
    std::map<Bytes, Bytes> model;
    for (int i = 0; i < 300; ++i) {
      const Bytes key = bytes_of("k" + std::to_string(prng.below(40)));
      const auto dice = prng.below(20);
      if (dice == 0) {
        world_->node().rotate(ArenaId(1 + static_cast<std::uint32_t>(prng.below(4))));
      } else if (dice < 6) {
        (void)client_->remove(key);
        model.erase(key);
      } else {
        const Bytes value = pattern(prng.below(60000), prng.next());
        if (client_->put(key, value, PutMode::replace).outcome == Outcome::ok) model[key] = value;
      }
      if (dice == 1) world_->pass(5s);
      const auto got = client_->get(key);
      ASSERT_TRUE(!got || *got == model[key]) << "seed " << seed;
    }
    world_->pass(90s);
    std::uint64_t published = 0;
    for (const ArenaView& arena : world_->see().arenas()) {
      for (const SlotView& slot : world_->see().slots(arena.id)) {
        if (slot.state != SlotState::published) continue;
        ++published;
        EXPECT_EQ(world_->stored_descriptor("t1", slot.key)->location, slot.location);
      }
    }
    EXPECT_EQ(published, count("slots_published"));
    world_->node().rotate_all();
    ASSERT_TRUE(until_count("arenas_rotating", 0));
    ASSERT_TRUE(until_count("purges_waiting", 0));
    EXPECT_EQ(count("bytes_used"), 0u);
    for (int i = 0; i < 40; ++i) {
      EXPECT_FALSE(world_->stored_descriptor("t1", bytes_of("k" + std::to_string(i))).has_value());
    }
  }
}

// A quarter of an hour of a half-filled node (at length, ten whole ones): at any time the gauges
// are what the manifest says, slots lie one after the other, and in the end nothing is left of what
// was rotated away.
TEST_F(KvNodeEndurance, K061_a_long_time_of_puts_deletes_and_rotations) {
  for (std::uint64_t seed = 1; seed <= repeats<std::uint64_t>(1, 10); ++seed) {
    start({.seed = seed});
    Prng prng(seed * 77);
    std::map<Bytes, std::set<Bytes>> model;
    std::uint64_t operations = 0;
    const Instant end = world_->clock.now() + repeats<Duration>(15min, 1h);
    while (world_->clock.now() < end) {
      const Bytes key = bytes_of("k" + std::to_string(prng.below(60)));
      const auto dice = prng.below(40);
      if (dice == 0) {
        world_->node().rotate(ArenaId(1 + static_cast<std::uint32_t>(prng.below(4))));
      } else if (dice < 14) {
        (void)client_->remove(key);
      } else {
        const Bytes value = pattern(prng.below(50000), prng.next());
        const Outcome outcome = client_->put(key, value, PutMode::replace).outcome;
        ASSERT_TRUE(outcome == Outcome::ok || outcome == Outcome::full);
        if (outcome == Outcome::ok) model[key].insert(value);
      }
      const auto got = client_->get(key);
      ASSERT_TRUE(!got || model[key].contains(*got)) << "seed " << seed;
      if (++operations % 16 == 0) expect_accounts();
      world_->pass(std::chrono::milliseconds(prng.below(8000)));
    }
    EXPECT_GT(operations, 100u);
    EXPECT_GT(count("rotations"), 0u);
    world_->pass(90s);
    expect_accounts();
    std::uint64_t published = 0;
    for (const ArenaView& arena : world_->see().arenas()) {
      for (const SlotView& slot : world_->see().slots(arena.id)) {
        if (slot.state != SlotState::published) continue;
        ++published;
        EXPECT_EQ(world_->stored_descriptor("t1", slot.key)->location, slot.location);
      }
    }
    EXPECT_EQ(published, world_->valkey.state().count_with_prefix("okv:d:t1:") / 2)
        << "a descriptor of what is not there";
    world_->node().rotate_all();
    ASSERT_TRUE(until_count("arenas_rotating", 0));
    ASSERT_TRUE(until_count("purges_waiting", 0));
    EXPECT_EQ(count("bytes_used"), 0u);
    EXPECT_EQ(world_->valkey.state().count_with_prefix("okv:d:t1:"), 0u);
  }
}

// 64 tenants may have 16 arenas each, and the card takes 1000: 24 are refused, to whoever comes too
// late, and nobody else notices.
TEST_F(KvNodeEndurance, K075_at_the_registration_limit_arenas_are_refused) {
  constexpr std::uint64_t kArena = 64u << 10;
  constexpr std::uint64_t kTenants = 64, kArenas = 16, kRoom = 1000;
  const auto name = [](std::uint64_t t) { return "t" + std::to_string(t + 1); };
  stub_.room = Length(kRoom * kArena);
  world_ = std::make_unique<World>(WorldOptions{.wrap = stub_.wrap()});
  NodeOptions options = world_->options();
  options.tenants.clear();
  options.arena_size = Length(kArena);
  options.grace = Duration(0);
  for (std::uint64_t t = 0; t < kTenants; ++t) {
    options.tenants.push_back(
        {name(t), keyring_of(static_cast<std::uint8_t>(t + 1)), Length(kArenas * kArena)});
  }
  world_->start(std::move(options));
  std::vector<std::unique_ptr<RawClient>> clients;
  for (std::uint64_t t = 0; t < kTenants; ++t) {
    clients.push_back(std::make_unique<RawClient>(*world_, "c" + std::to_string(t), name(t),
                                                  keyring_of(static_cast<std::uint8_t>(t + 1)),
                                                  std::size_t{kArena}));
    ASSERT_EQ(clients.back()->greet(), Outcome::ok);
  }
  const auto value = [](std::uint64_t t, std::uint64_t i) { return pattern(40000, t * 100 + i); };
  std::vector<std::pair<std::uint64_t, std::uint64_t>> stored;
  std::uint64_t full = 0;
  for (std::uint64_t i = 0; i < kArenas; ++i) {  // one value an arena, tenant by tenant
    for (std::uint64_t t = 0; t < kTenants; ++t) {
      const Outcome outcome =
          clients[t]->put(bytes_of("k" + std::to_string(i)), value(t, i)).outcome;
      ASSERT_TRUE(outcome == Outcome::ok || outcome == Outcome::full) << t << ' ' << i;
      if (outcome == Outcome::ok) stored.emplace_back(t, i);
      full += outcome == Outcome::full ? 1 : 0;
    }
  }
  EXPECT_EQ(full, kTenants * kArenas - kRoom);
  EXPECT_EQ(count("arenas"), kRoom);
  EXPECT_GE(count("arenas_refused"), full);
  // Whoever was refused has arenas that may be emptied for it (8.3); the others keep all they have.
  std::uint64_t there = 0;
  for (std::size_t n = 0; n < stored.size(); n += 3) {
    const auto [t, i] = stored[n];
    const auto got = clients[t]->get(bytes_of("k" + std::to_string(i)));
    if (t < kTenants - full) {
      ASSERT_TRUE(got.has_value()) << t << ' ' << i;
    }
    if (got) {
      EXPECT_EQ(*got, value(t, i));
    }
    there += got ? 1 : 0;
  }
  EXPECT_GE(there + full, (stored.size() + 2) / 3);
  ASSERT_TRUE(until_count("arenas_rotating", 0));
  // What was emptied for one is not handed to another that was refused as well.
  for (std::uint64_t t = kTenants - full; t < kTenants; ++t) {
    EXPECT_EQ(clients[t]->put(bytes_of("later"), value(t, 99)).outcome, Outcome::ok)
        << t << ": an evicted arena of its own";
  }
}

}  // namespace
}  // namespace farlift::kv::node::testing
