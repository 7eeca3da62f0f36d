// Delete, rotation, fencing, migration, eviction (spec kv 8), in a simulated world.
#include "kvcache/node/testing/stub_domain.h"
#include "kvcache/node/testing/world.h"
#include "kvcache/wire/sink.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

class KvNodeRotation : public ::testing::TestWithParam<fabric::FenceMode> {
 protected:
  void start(WorldOptions with = {}, Length quota = Length(4u << 20),
             Duration postpone_max = kPostponeMax) {
    client_.reset();
    world_ = std::make_unique<World>(std::move(with));
    NodeOptions options = world_->options();
    options.tenants[0].quota = quota;
    options.postpone_max = postpone_max;
    world_->start(std::move(options));
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  ArenaView arena(std::uint32_t id = 1) { return world_->see().arenas().at(id - 1); }
  bool rotated(std::uint32_t id, std::uint32_t gen) {
    return world_->until(
        [&] { return arena(id).gen == ArenaGen(gen) && arena(id).state == ArenaState::active; });
  }
  StubControl stub_;  // outlives the world
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

INSTANTIATE_TEST_SUITE_P(Fences, KvNodeRotation,
                         ::testing::Values(fabric::FenceMode::mr, fabric::FenceMode::endpoint,
                                           fabric::FenceMode::drain));

TEST_P(KvNodeRotation, every_step_is_seen_and_old_descriptors_are_refused_K049) {
  start({.fence_mode = GetParam()});
  std::vector<std::pair<Bytes, Descriptor>> old;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const Bytes key = bytes_of("k" + std::to_string(i));
    ASSERT_EQ(client_->put(key, pattern(3000, i)).outcome, Outcome::ok);
    old.emplace_back(key, *world_->stored_descriptor("t1", key));
  }
  const std::vector<RKey> keys = arena().keys;
  ASSERT_TRUE(world_->node().rotate(ArenaId(1)));
  EXPECT_FALSE(world_->node().rotate(ArenaId(77)));
  std::vector<ArenaState> seen;
  const Instant began = world_->clock.now();
  ASSERT_TRUE(world_->until([&] {
    const ArenaState now = arena().state;
    if (seen.empty() || seen.back() != now) seen.push_back(now);
    if (now == ArenaState::grace) {
      EXPECT_EQ(arena().published, 0u);
      EXPECT_EQ(arena().keys, keys) << "readable to the end of grace";
    }
    return now == ArenaState::active;
  }));
  EXPECT_EQ(seen, (std::vector<ArenaState>{ArenaState::sealing, ArenaState::migrate,
                                           ArenaState::unpublish, ArenaState::grace,
                                           ArenaState::close, ArenaState::fence, ArenaState::scrub,
                                           ArenaState::enlist, ArenaState::active}));
  EXPECT_GE(world_->clock.now() - began, kGrace);
  EXPECT_NE(arena().keys, keys);
  EXPECT_EQ(arena().gen, ArenaGen(2));
  if (!client_->connected() || GetParam() == fabric::FenceMode::endpoint) {
    world_->pass(100ms);
    EXPECT_EQ(world_->see().counter("links"), 0u) << "clients say HELLO again";
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  for (std::uint64_t i = 0; i < 5; ++i) {
    ASSERT_EQ(client_->put(bytes_of("new" + std::to_string(i)), pattern(3000, 100 + i)).outcome,
              Outcome::ok);
  }
  for (const auto& [key, descriptor] : old) {
    EXPECT_EQ(client_->read(descriptor).code(), Errc::access);
    EXPECT_FALSE(client_->get(key).has_value());
    EXPECT_FALSE(world_->stored_descriptor("t1", key).has_value());
  }
}

TEST_F(KvNodeRotation, K047_K048_delete_and_put_again) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  const Descriptor held = *world_->stored_descriptor("t1", key);
  EXPECT_EQ(client_->remove(key, Version(7, 7)), Outcome::conflict);
  EXPECT_EQ(client_->remove(key), Outcome::ok);
  EXPECT_EQ(client_->remove(key), Outcome::miss);
  EXPECT_FALSE(client_->get(key).has_value());
  EXPECT_EQ(client_->read(held).value(), pattern(900, 1)) << "unchanged until the rotation";
  ASSERT_EQ(client_->put(key, pattern(900, 2)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(key), pattern(900, 2));
  EXPECT_EQ(client_->read(held).value(), pattern(900, 1));
  world_->node().rotate_all();
  ASSERT_TRUE(rotated(1, 2));
  EXPECT_EQ(client_->read(held).code(), Errc::access);
  EXPECT_FALSE(client_->get(key).has_value());
}

TEST_F(KvNodeRotation, K050_no_key_comes_back_in_thousands_of_rotations) {
  start();
  std::set<std::uint64_t> keys;
  ASSERT_TRUE(keys.insert(arena().keys[0].raw()).second);
  for (std::uint32_t i = 1; i <= 10000; ++i) {
    ASSERT_TRUE(world_->node().rotate(ArenaId(1)));
    while (arena().state != ArenaState::active) world_->node().step();
    ASSERT_TRUE(keys.insert(arena().keys[0].raw()).second) << i;
  }
  EXPECT_EQ(world_->see().counter("keys_ever"), 10001u);
}

TEST_F(KvNodeRotation, K050_neither_on_two_rails_where_the_provider_repeats_them) {
  start({.rails = 2,
         .fabric_faults = {
             .connection_lost = 0, .not_quiet = 0, .spurious_error = 0, .repeated_key = 300}});
  std::vector<std::set<std::uint64_t>> keys(2);
  for (std::uint32_t i = 1; i <= 10000; ++i) {
    const ArenaView now = arena();
    for (std::size_t rail = 0; rail < 2; ++rail) {
      ASSERT_TRUE(keys[rail].insert(now.keys[rail].raw()).second) << i << " on rail " << rail;
    }
    ASSERT_TRUE(world_->node().rotate(ArenaId(1)));
    while (arena().state != ArenaState::active) world_->node().step();
  }
  EXPECT_GT(world_->see().counter("keys_refused"), 0u);
}

TEST_F(KvNodeRotation, K051_K052_a_key_that_was_retired_is_refused) {
  start({.wrap = stub_.wrap()});
  const RKey first = arena().keys[0];
  stub_.next_keys = {first, first, first};  // the constant key bug, for a while
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(rotated(1, 2));
  EXPECT_NE(arena().keys[0], first);
  EXPECT_EQ(world_->see().counter("keys_refused"), 3u);
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(100, 1)).outcome, Outcome::ok);
  stub_.constant_key = first;  // for ever
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(world_->until([&] { return arena(1).state == ArenaState::lost; }));
  stub_.constant_key.reset();
  EXPECT_EQ(client_->put(bytes_of("k2"), pattern(100, 2)).outcome, Outcome::ok)
      << "service goes on in another arena";
  EXPECT_EQ(client_->get(bytes_of("k2")), pattern(100, 2));
  EXPECT_FALSE(world_->node().rotate(ArenaId(1)));
}

TEST_F(KvNodeRotation, K055_a_close_that_fails_on_one_of_two_rails) {
  start({.rails = 2, .wrap = stub_.wrap()});
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  const Descriptor old = *world_->stored_descriptor("t1", bytes_of("k"));
  const Bytes before(world_->see().memory(ArenaId(1)).begin(),
                     world_->see().memory(ArenaId(1)).end());
  stub_.fail_close_on_rail = 1;
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(world_->until([&] { return arena(1).state == ArenaState::lost; }));
  stub_.fail_close_on_rail.reset();
  for (std::uint64_t i = 0; i < 20; ++i) {
    ASSERT_EQ(client_->put(bytes_of("n" + std::to_string(i)), pattern(90000, i)).outcome,
              Outcome::ok);
  }
  EXPECT_TRUE(std::ranges::equal(world_->see().memory(ArenaId(1)), before))
      << "no byte is ever used again";
  EXPECT_FALSE(world_->stored_descriptor("t1", bytes_of("k")).has_value());
  EXPECT_EQ(world_->see().counter("arenas_lost"), 1u);
}

TEST_F(KvNodeRotation, K055_an_endpoint_that_does_not_close_is_no_fence) {
  start({.fence_mode = fabric::FenceMode::endpoint, .rails = 2, .wrap = stub_.wrap()},
        Length(3u << 20));
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  const Bytes before(world_->see().memory(ArenaId(1)).begin(),
                     world_->see().memory(ArenaId(1)).end());
  stub_.fail_target_close_on_rail = 0;
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(world_->until([&] { return arena(1).state == ArenaState::lost; }));
  world_->pass(100ms);
  ASSERT_EQ(client_->greet(), Outcome::ok) << "both rails are open again";
  ASSERT_EQ(client_->put(bytes_of("k2"), pattern(900'000, 2)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(bytes_of("k2")), pattern(900'000, 2)) << "in another arena";
  // What is still open could carry a read of any arena of the tenant: nothing is fenced any more.
  world_->node().rotate(ArenaId(2));
  ASSERT_TRUE(world_->until([&] { return arena(2).state == ArenaState::lost; }));
  stub_.fail_target_close_on_rail.reset();
  world_->pass(100ms);
  ASSERT_EQ(client_->greet(), Outcome::ok);
  ASSERT_EQ(client_->put(bytes_of("k3"), pattern(900'000, 3)).outcome, Outcome::ok);
  EXPECT_EQ(client_->put(bytes_of("k4"), pattern(900'000, 4)).outcome, Outcome::full)
      << "lost arenas still count";
  // Closed after all: fences hold again, and what is lost stays lost.
  world_->node().rotate(ArenaId(3));
  ASSERT_TRUE(rotated(3, 2));
  EXPECT_TRUE(std::ranges::equal(world_->see().memory(ArenaId(1)), before));
  EXPECT_EQ(world_->see().counter("arenas_lost"), 2u);
}

TEST_F(KvNodeRotation, an_endpoint_that_does_not_open_again_is_waited_for) {
  start({.fence_mode = fabric::FenceMode::endpoint, .rails = 2, .wrap = stub_.wrap()});
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  stub_.fail_target_open_on_rail = 1;
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(rotated(1, 2));
  world_->pass(5s);
  EXPECT_EQ(client_->greet(), Outcome::unreachable);
  stub_.fail_target_open_on_rail.reset();
  world_->pass(5s);
  ASSERT_EQ(client_->greet(), Outcome::ok);
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 2)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(1000, 2));
}

TEST_F(KvNodeRotation, K056_rotation_while_the_directory_is_away) {
  start();
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  const Descriptor old = *world_->stored_descriptor("t1", bytes_of("k"));
  world_->valkey.set_down(true);
  world_->pass(3s);
  EXPECT_EQ(client_->put(bytes_of("k2"), pattern(10, 1)).outcome, Outcome::control_down);
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(rotated(1, 2));
  EXPECT_EQ(client_->read(old).code(), Errc::access);
  world_->pass(30s);
  world_->valkey.set_down(false);
  EXPECT_TRUE(world_->stored_descriptor("t1", bytes_of("k")).has_value()) << "not yet purged";
  ASSERT_TRUE(world_->until([&] { return world_->see().counter("purges_waiting") == 0; }));
  EXPECT_FALSE(world_->stored_descriptor("t1", bytes_of("k")).has_value());
  EXPECT_EQ(client_->put(bytes_of("k"), pattern(10, 2)).outcome, Outcome::ok);
}

TEST_F(KvNodeRotation, K059_reader_leases_postpone) {
  start({}, Length(4u << 20), 60s);
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  const auto directory = world_->valkey.open_directory("reader");
  const auto lease = [&](Duration time) {
    directory->take_lease(NodeId(1), world_->node().incarnation(), ArenaId(1), ClientId{}, time,
                          [](const Status&) {});
  };
  world_->others.push_back([&] { return directory->step(); });
  lease(30s);
  world_->node().rotate(ArenaId(1));
  world_->pass(22s);
  EXPECT_EQ(arena().state, ArenaState::grace) << "the lease holds it";
  world_->pass(11s);
  EXPECT_EQ(arena().gen, ArenaGen(2)) << "it lapsed";
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(1000, 1)).outcome, Outcome::ok);
  lease(600s);
  world_->node().rotate(ArenaId(1));
  world_->pass(55s);
  EXPECT_EQ(arena().gen, ArenaGen(2));
  world_->pass(7s);
  EXPECT_EQ(arena().gen, ArenaGen(3)) << "at most postpone_max";
  world_->others.clear();
}

TEST_F(KvNodeRotation, K060_an_arena_changes_its_tenant) {
  world_ = std::make_unique<World>();
  NodeOptions options = world_->options();
  options.tenants.push_back({"t2", keyring_of(2), Length(4u << 20)});
  world_->start(std::move(options));
  client_ = std::make_unique<RawClient>(*world_, "c1");
  RawClient two(*world_, "c2", "t2", keyring_of(2));
  ASSERT_EQ(client_->greet(), Outcome::ok);
  ASSERT_EQ(two.greet(), Outcome::ok);
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(100000, 1)).outcome, Outcome::ok);
  const Descriptor old = *world_->stored_descriptor("t1", bytes_of("k"));
  ASSERT_TRUE(world_->see().hand_over(ArenaId(1), "t2"));
  ASSERT_TRUE(rotated(1, 2));
  EXPECT_EQ(arena().tenant, "t2");
  for (const std::byte b : world_->see().memory(ArenaId(1))) ASSERT_EQ(b, std::byte{0});
  EXPECT_EQ(client_->read(old).code(), Errc::access);
  EXPECT_EQ(two.read(old).code(), Errc::access);
  ASSERT_EQ(two.put(bytes_of("k"), pattern(100, 2)).outcome, Outcome::ok);
  const Descriptor fresh = *world_->stored_descriptor("t2", bytes_of("k"));
  EXPECT_EQ(fresh.location.arena, ArenaId(1));
  EXPECT_EQ(client_->read(fresh).code(), Errc::access) << "in the other tenant's domain now";
  EXPECT_EQ(two.get(bytes_of("k")), pattern(100, 2));
}

TEST_F(KvNodeRotation, K031_full_is_said_at_once) {
  start({}, Length(1u << 20));
  int stored = 0;
  while (client_->put(bytes_of("k" + std::to_string(stored)), pattern(100000, 1)).outcome ==
         Outcome::ok) {
    ASSERT_LT(++stored, 100);
  }
  ASSERT_GE(stored, 8);
  ASSERT_TRUE(world_->until([&] { return arena().state == ArenaState::grace; }));
  const Instant before = world_->clock.now();
  EXPECT_EQ(client_->put(bytes_of("x"), pattern(100000, 1)).outcome, Outcome::full);
  EXPECT_LT(world_->clock.now() - before, 10ms);
  ASSERT_TRUE(rotated(1, 2));
  EXPECT_EQ(client_->put(bytes_of("x"), pattern(100000, 1)).outcome, Outcome::ok);
}

// All four arenas are full and one of them waits out its grace: everybody is told at once, and
// nobody's wait grows with the number of those who ask.
TEST_F(KvNodeRotation, K031_full_is_said_at_once_to_everybody_while_a_rotation_is_in_grace) {
  start();
  int stored = 0;
  while (client_->put(bytes_of("k" + std::to_string(stored)), pattern(100000, 1)).outcome ==
         Outcome::ok) {
    ASSERT_LT(++stored, 100);
  }
  ASSERT_GE(stored, 36);
  const auto in_grace = [&] {
    const auto arenas = world_->see().arenas();
    return std::any_of(arenas.begin(), arenas.end(),
                       [](const ArenaView& one) { return one.state == ArenaState::grace; });
  };
  ASSERT_TRUE(world_->until(in_grace));
  std::uint64_t full = 0;
  for (std::uint64_t i = 0; in_grace(); ++i) {
    const Instant before = world_->clock.now();
    const PutReply put = client_->put(bytes_of("x" + std::to_string(i)), pattern(100000, 1));
    if (!in_grace()) break;
    ASSERT_EQ(put.outcome, Outcome::full);
    ASSERT_LT(world_->clock.now() - before, 10ms);
    ++full;
    world_->pass(90ms);
  }
  EXPECT_GT(full, 100u);
  EXPECT_EQ(world_->see().counter("slots_reserved"), 0u);
  ASSERT_TRUE(world_->until([&] { return world_->see().counter("arenas_rotating") == 0; }));
  EXPECT_EQ(client_->put(bytes_of("y"), pattern(100000, 1)).outcome, Outcome::ok);
}

// Clients put where a record tells of room: it does not wait for its next renewal.
TEST_F(KvNodeRotation, the_record_tells_of_room_as_soon_as_an_arena_is_writable) {
  start({}, Length(1u << 20));
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(900'000, 1)).outcome, Outcome::ok);
  const auto free_bytes = [&] {
    std::uint64_t told = 0;
    const auto text = world_->valkey.state().get(node_name(NodeId(1)));
    if (text) told = decode_node_record(text_of(*text))->free_bytes;
    return told;
  };
  for (std::uint32_t gen = 2; gen < 6; ++gen) {
    world_->pass(1100ms);  // a renewal counts what is there now
    ASSERT_LT(free_bytes(), 900'000u);
    world_->node().rotate(ArenaId(1));
    ASSERT_TRUE(rotated(1, gen));
    world_->pass(200ms);
    EXPECT_GT(free_bytes(), 900'000u);
    ASSERT_EQ(client_->put(bytes_of("k"), pattern(900'000, gen)).outcome, Outcome::ok);
  }
}

// No memory is left for a tenant that has a quota: an arena that lies empty with another one moves
// over, scrubbed, without anybody asking for it.
TEST_F(KvNodeRotation, K060_an_empty_arena_is_handed_over_to_the_tenant_that_starves) {
  world_ = std::make_unique<World>();
  NodeOptions options = world_->options();
  options.tenants.push_back({"t2", keyring_of(2), Length(4u << 20)});
  options.pinned_max = Length(2u << 20);  // two arenas for both
  world_->start(std::move(options));
  client_ = std::make_unique<RawClient>(*world_, "c1");
  ASSERT_EQ(client_->greet(), Outcome::ok);
  RawClient two(*world_, "c2", "t2", keyring_of(2));
  ASSERT_EQ(two.greet(), Outcome::ok);
  for (const char* key : {"a", "b"}) {
    ASSERT_EQ(client_->put(bytes_of(key), pattern(900000, 7)).outcome, Outcome::ok);
  }
  ASSERT_EQ(world_->see().counter("arenas"), 2u);
  const Descriptor old = *world_->stored_descriptor("t1", bytes_of("a"));
  const ArenaId arena_id = old.location.arena;
  EXPECT_EQ(two.put(bytes_of("k"), pattern(100, 1)).outcome, Outcome::full);
  world_->pass(1s);
  EXPECT_EQ(two.put(bytes_of("k"), pattern(100, 1)).outcome, Outcome::full)
      << "what is in use is nobody else's";
  EXPECT_EQ(client_->get(bytes_of("a")), pattern(900000, 7));
  ASSERT_EQ(client_->remove(bytes_of("a")), Outcome::ok);
  ASSERT_TRUE(world_->node().rotate(arena_id));  // empty, and still t1's
  ASSERT_TRUE(rotated(arena_id.raw(), 2));
  EXPECT_EQ(arena(arena_id.raw()).tenant, "t1");
  EXPECT_EQ(two.put(bytes_of("k"), pattern(100, 1)).outcome, Outcome::full);
  ASSERT_TRUE(world_->until([&] { return arena(arena_id.raw()).tenant == "t2"; }));
  for (const std::byte b : world_->see().memory(arena_id)) ASSERT_EQ(b, std::byte{0});
  ASSERT_EQ(two.put(bytes_of("k"), pattern(100, 1)).outcome, Outcome::ok);
  EXPECT_EQ(world_->stored_descriptor("t2", bytes_of("k"))->location.arena, arena_id);
  EXPECT_EQ(two.get(bytes_of("k")), pattern(100, 1));
  EXPECT_EQ(client_->read(old).code(), Errc::access);
  EXPECT_EQ(client_->get(bytes_of("b")), pattern(900000, 7)) << "the other arena stayed";
  EXPECT_EQ(world_->see().counter("arenas"), 2u);
}

TEST_F(KvNodeRotation, the_coldest_arena_is_evicted_and_touches_keep_a_hot_one) {
  start();
  std::vector<Bytes> keys;
  for (int i = 0; i < 28; ++i) {
    keys.push_back(bytes_of("k" + std::to_string(i)));
    ASSERT_EQ(client_->put(keys.back(), pattern(130000, 1)).outcome, Outcome::ok);
  }
  const auto ring = keyring_of(1);
  TouchRequest touch;
  for (int i = 0; i < 7; ++i)
    touch.key_hashes.push_back(ring.signing().key_hash(keys[static_cast<std::size_t>(i)]));
  (void)client_->send(FrameType::touch, encode(touch));
  world_->pass(1s);
  EXPECT_EQ(world_->see().counter("touches"), 7u);
  EXPECT_EQ(client_->put(bytes_of("more"), pattern(300000, 1)).outcome, Outcome::full);
  world_->pass(30s);
  EXPECT_EQ(arena(1).gen, ArenaGen(1)) << "touched: kept";
  EXPECT_EQ(arena(2).gen, ArenaGen(2)) << "the oldest of the others went";
  EXPECT_EQ(client_->put(bytes_of("more"), pattern(300000, 1)).outcome, Outcome::ok);
}

}  // namespace
}  // namespace farlift::kv::node::testing
