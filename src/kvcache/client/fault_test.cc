// What goes wrong while reading: rotation, restarts, silence, partitions, forged records (spec kv
// 9.4, 9.7, 10, 11). Every failure is a miss or an error, and no byte comes after the report.
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

#include <sys/mman.h>

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;

const Version kFirst(1, 5);

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}
bool is_bad(Outcome outcome) {
  return outcome >= Outcome::bad_magic && outcome <= Outcome::bad_crc;
}

WorldOptions with_nodes(std::size_t nodes, Length arena = Length(1u << 20)) {
  WorldOptions options;
  options.nodes = nodes;
  options.arena = arena;
  return options;
}

TEST(KvFault, K038_a_large_batch_gives_each_key_its_own_result) {
  World world(with_nodes(3, Length(4u << 20)));
  constexpr std::uint64_t kKeys = 10000;
  std::vector<GetRequest> requests;
  std::vector<Outcome> expected;
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    const std::uint64_t number = i % 50 == 49 ? i - 1 : i;  // duplicates
    requests.push_back({key_of(number), world.dest(64, i * 64),
                        i % 2 == 0 ? ReadMode::framed : ReadMode::payload_only});
    expected.push_back(number % 100 == 7    ? Outcome::miss
                       : number % 100 == 17 ? Outcome::bad_crc
                                            : Outcome::ok);
    if (number != i || number % 100 == 7) continue;
    const Stored stored = world.node(i % 3).publish(key_of(i), pattern(64, i), kFirst);
    if (number % 100 == 17) {
      world.node(i % 3).slot(stored.descriptor)[kHeaderBytes + 3] ^= std::byte{1};
    }
  }
  const auto results = world.mget(std::move(requests));
  ASSERT_EQ(results.size(), kKeys);
  for (std::uint64_t i = 0; i < kKeys; ++i) {
    ASSERT_EQ(results[i].outcome, expected[i]) << i;
    if (expected[i] != Outcome::ok) continue;
    ASSERT_TRUE(same(world.dest(64, i * 64), pattern(64, i % 50 == 49 ? i - 1 : i))) << i;
  }
}

TEST(KvFault, K039_a_dead_node_does_not_keep_the_others_waiting) {
  for (const bool linked_before : {false, true}) {
    World world(with_nodes(3));
    for (std::uint64_t i = 0; i < 30; ++i) {
      world.node(i % 3).publish(key_of(i), pattern(64, i), kFirst);
    }
    world.pass(10ms);
    const auto requests = [&] {
      std::vector<GetRequest> list;
      for (std::uint64_t i = 0; i < 30; ++i) list.push_back({key_of(i), world.dest(64, i * 64)});
      return list;
    };
    if (linked_before) {
      for (const GetResult& got : world.mget(requests())) ASSERT_EQ(got.outcome, Outcome::ok);
    }
    world.network->stop(world.node(1).target(0), true);
    world.links->pause("n2", true);
    const Instant begun = world.clock().now();
    const auto results = world.mget(requests());
    EXPECT_LE(world.clock().now() - begun, 11s);
    for (std::uint64_t i = 0; i < 30; ++i) {
      if (i % 3 != 1) {
        EXPECT_EQ(results[i].outcome, Outcome::ok) << i;
      } else {
        EXPECT_TRUE(results[i].outcome == Outcome::timeout ||
                    results[i].outcome == Outcome::unreachable)
            << outcome_name(results[i].outcome);
      }
    }
    world.network->stop(world.node(1).target(0), false);
    world.links->pause("n2", false);
    world.pass(2s);
    for (const GetResult& got : world.mget(requests())) EXPECT_EQ(got.outcome, Outcome::ok);
  }
}

TEST(KvFault, K049_after_a_rotation_the_card_refuses_and_a_fresh_descriptor_is_tried_once) {
  for (const ReadMode mode : {ReadMode::framed, ReadMode::payload_only}) {
    World world;
    world.node().publish(key_of(1), pattern(500, 1), kFirst);
    ASSERT_EQ(world.get(key_of(1), world.dest(500), mode).outcome, Outcome::ok);
    world.node().rotate();
    std::uint64_t before = world.posts();
    EXPECT_EQ(world.get(key_of(1), world.dest(500), mode).outcome, Outcome::access);
    EXPECT_EQ(world.posts(), before + 1) << "the fresh descriptor is the same one: no retry";
    world.node().publish(key_of(1), pattern(500, 2), Version(2, 6));
    world.node().rotate();
    world.node().publish(key_of(1), pattern(500, 3), Version(3, 7));
    ASSERT_EQ(world.get(key_of(1), world.dest(500), mode).outcome, Outcome::ok);
    EXPECT_TRUE(same(world.dest(500), pattern(500, 3)));
    world.node().rotate();
    world.valkey->flush_all();
    EXPECT_EQ(world.get(key_of(1), world.dest(500), mode).outcome, Outcome::miss);
    world.node().announce();
    world.node().publish(key_of(2), pattern(500, 4), kFirst);
    ASSERT_EQ(world.get(key_of(2), world.dest(500), mode).outcome, Outcome::ok);
    world.node().rotate();
    world.node().publish(key_of(2), pattern(500, 5), Version(2, 8));
    before = world.posts();
    EXPECT_EQ(world.get(key_of(2), world.dest(500), mode).outcome, Outcome::ok)
        << "one retry with the fresh descriptor";
    EXPECT_EQ(world.posts(), before + 2);
    EXPECT_TRUE(same(world.dest(500), pattern(500, 5)));
  }
}

TEST(KvFault, R044_what_outlived_its_lease_is_never_read_on_any_path) {
  WorldOptions options;
  options.tune = [](ClientOptions& o) { o.lease = 500ms; };
  World world(options);
  for (std::uint64_t i = 0; i < 4; ++i) {
    world.node().publish(key_of(i), pattern(500, i), kFirst);
  }
  std::optional<Client::Group> group;
  world.client->write_group("g", 1, {key_of(2)}, [&](auto g) { group = g; });
  ASSERT_TRUE(world.run([&] { return group.has_value(); }));
  ASSERT_EQ(world.exists({key_of(0), key_of(1), key_of(3)}), (std::vector<bool>(3, true)));
  world.pass(1s);
  world.node().rotate();
  const auto dead = [](Outcome outcome) {
    return outcome == Outcome::access || outcome == Outcome::miss;
  };
  const Outcome framed = world.get(key_of(0), world.dest(500)).outcome;
  EXPECT_TRUE(dead(framed)) << outcome_name(framed);
  const Outcome alone = world.get(key_of(1), world.dest(500), ReadMode::payload_only).outcome;
  EXPECT_TRUE(dead(alone)) << outcome_name(alone);
  for (const GetResult& got :
       world.mget({{key_of(0), world.dest(500)},
                   {key_of(3), world.dest(500, 600), ReadMode::payload_only}})) {
    EXPECT_TRUE(dead(got.outcome)) << outcome_name(got.outcome);
  }
  group.reset();
  world.client->read_group("g", [&](auto g) { group = g; });
  ASSERT_TRUE(world.run([&] { return group.has_value(); }));
  ASSERT_EQ(group->outcome, Outcome::ok);
  EXPECT_TRUE(dead(world.get(key_of(2), world.dest(500)).outcome));
}

TEST(KvFault, K058_readers_under_pressure_without_grace_see_values_or_misses) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    WorldOptions options;
    options.seed = seed;
    options.landing = 1u << 20;
    World world(options);
    constexpr std::uint64_t kReaders = 100;
    std::uint32_t rev = 0;
    const auto refill = [&] {
      ++rev;
      for (std::uint64_t k = 0; k < 10; ++k) {
        world.node().publish(key_of(k), pattern(700, k * 1000 + rev), Version(rev, rev));
      }
    };
    refill();
    std::uint64_t good = 0;
    std::uint64_t bad = 0;
    std::size_t busy = 0;
    std::vector<bool> reading(kReaders);
    for (int round = 0; round < 60; ++round) {
      for (std::uint64_t r = 0; r < kReaders; ++r) {
        if (reading[r]) continue;
        reading[r] = true;
        ++busy;
        world.client->get(
            {key_of(r % 10), world.dest(700, r * 700),
             r % 2 == 0 ? ReadMode::framed : ReadMode::payload_only},
            [&, r](const GetResult& got) {
              reading[r] = false;
              --busy;
              if (got.outcome == Outcome::ok) {
                ++good;
                EXPECT_TRUE(same(world.dest(700, r * 700),
                                 pattern(700, r % 10 * 1000 + got.version.rev())));
              } else {
                ++bad;
                EXPECT_TRUE(got.outcome == Outcome::access || got.outcome == Outcome::miss ||
                            got.outcome == Outcome::unreachable || is_bad(got.outcome))
                    << outcome_name(got.outcome);
              }
            });
      }
      for (int i = 0; i < 300; ++i) world.step();
      world.node().rotate();
      refill();
    }
    ASSERT_TRUE(world.run([&] { return busy == 0; }));
    EXPECT_GT(good, 0u);
  }
}

TEST(KvFault, K062_K063_after_a_restart_old_descriptors_are_stale) {
  for (const std::uint32_t repeated : {0u, 1000u}) {  // keys of the old registrations come back
    WorldOptions options;
    options.fabric.faults.repeated_key = repeated;
    World world(options);
    for (std::uint64_t i = 0; i < 5; ++i) {
      world.node().publish(key_of(i), pattern(300, i), kFirst);
      ASSERT_EQ(world.get(key_of(i), world.dest(300)).outcome, Outcome::ok);
    }
    world.node().restart(true);
    world.pass(50ms);
    const std::uint64_t before = world.posts();
    for (std::uint64_t i = 0; i < 5; ++i) {
      EXPECT_EQ(world.get(key_of(i), world.dest(300)).outcome, Outcome::stale);
      EXPECT_EQ(world.get(key_of(i), world.dest(300), ReadMode::payload_only).outcome,
                Outcome::stale);
    }
    EXPECT_EQ(world.posts(), before);
    ASSERT_FALSE(world.node().seen.stale.empty()) << "the node is told, it alone may clean up";
    EXPECT_EQ(world.node().seen.stale[0].key, key_of(0));
    world.node().publish(key_of(0), pattern(300, 9), Version(2, 1));
    EXPECT_EQ(world.get(key_of(0), world.dest(300)).outcome, Outcome::ok);
    EXPECT_TRUE(same(world.dest(300), pattern(300, 9)));
  }
}

TEST(KvFault, K064_R057_silence_is_a_timeout_and_nothing_lands_later) {
  for (const ReadMode mode : {ReadMode::framed, ReadMode::payload_only}) {
    World world;
    const Bytes value = pattern(60000, 1);
    world.node().publish(key_of(1), value, kFirst);
    ASSERT_EQ(world.get(key_of(1), world.dest(60000), mode).outcome, Outcome::ok);
    std::optional<GetResult> got;
    const Instant begun = world.clock().now();
    world.client->get({key_of(1), world.dest(60000), mode}, [&](GetResult r) { got = r; });
    ASSERT_TRUE(world.run([&] { return world.network->moving() > 0; }));
    world.network->stop(world.node().target(0), true);
    ASSERT_TRUE(world.run([&] { return got.has_value(); }));
    EXPECT_EQ(got->outcome, Outcome::timeout);
    EXPECT_LE(world.clock().now() - begun, 5500ms);
    const auto dest = world.dest(60000);
    std::fill(dest.begin(), dest.end(), std::byte{0xCA});
    world.network->stop(world.node().target(0), false);
    world.pass(10s);
    for (const std::byte b : dest) ASSERT_EQ(b, std::byte{0xCA});
    EXPECT_EQ(world.get(key_of(1), dest, mode).outcome, Outcome::ok) << "over a new link";
    EXPECT_EQ(world.counter("timeouts"), 1u);
  }
}

TEST(KvFault, K065_memory_may_go_as_soon_as_the_timeout_is_reported) {
  World world;
  world.node().publish(key_of(1), pattern(60000, 1), kFirst);
  constexpr std::size_t kBytes = 64 << 10;
  void* base = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(base, MAP_FAILED);
  auto landing = world.client->register_memory({static_cast<std::byte*>(base), kBytes}).value();
  std::optional<GetResult> got;
  world.client->get({key_of(1), landing->bytes().first(60000)}, [&](GetResult r) { got = r; });
  ASSERT_TRUE(world.run([&] { return world.network->moving() > 0; }));
  world.network->stop(world.node().target(0), true);
  ASSERT_TRUE(world.run([&] { return got.has_value(); }));
  ASSERT_EQ(got->outcome, Outcome::timeout);
  landing.reset();
  ASSERT_EQ(::munmap(base, kBytes), 0);
  world.network->stop(world.node().target(0), false);
  world.pass(10s);  // a late landing would end the program
}

TEST(KvFault, one_timeout_closes_one_link_and_neighbours_try_again) {
  World world(with_nodes(2));
  for (std::uint64_t i = 0; i < 40; ++i) {
    world.node(i % 2).publish(key_of(i), pattern(5000, i), kFirst);
  }
  std::vector<GetRequest> requests;
  for (std::uint64_t i = 0; i < 40; ++i)
    requests.push_back({key_of(i), world.dest(5000, i * 5000)});
  world.network->stop(world.node(0).target(0), true);
  std::optional<std::vector<GetResult>> results;
  world.client->mget(requests, [&](auto r) { results = std::move(r); });
  ASSERT_TRUE(world.run([&] { return world.counter("timeouts") > 0; }));
  world.network->stop(world.node(0).target(0), false);
  ASSERT_TRUE(world.run([&] { return results.has_value(); }));
  for (std::uint64_t i = 0; i < 40; ++i) {
    const Outcome outcome = (*results)[i].outcome;
    if (i % 2 == 1) {
      EXPECT_EQ(outcome, Outcome::ok);
    }
    if (outcome == Outcome::ok) {
      EXPECT_TRUE(same(world.dest(5000, i * 5000), pattern(5000, i)));
    } else {
      EXPECT_EQ(outcome, Outcome::timeout);
    }
  }
  EXPECT_EQ(world.node(1).seen.hellos, 1u);
}

TEST(KvFault, an_endpoint_fence_costs_a_new_hello_and_no_wrong_byte) {
  World world;
  const Bytes value = pattern(3000, 1);
  world.node().publish(key_of(1), value, kFirst);
  ASSERT_EQ(world.get(key_of(1), world.dest(3000)).outcome, Outcome::ok);
  world.node().fence();
  EXPECT_EQ(world.get(key_of(1), world.dest(3000)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(3000), value));
  EXPECT_EQ(world.node().seen.hellos, 2u);
}

TEST(KvFault, a_lost_control_connection_means_a_new_hello_before_the_next_post) {
  World world;
  world.node().publish(key_of(1), pattern(300, 1), kFirst);
  ASSERT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  world.links->lose_links("c1", "n1");
  world.pass(50ms);
  ASSERT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  EXPECT_EQ(world.node().seen.hellos, 2u);
}

TEST(KvFault, K070_clocks_that_jump_cost_hits_only) {
  World world;
  const Bytes value = pattern(300, 1);
  for (const Duration jump : {Duration(24h), Duration(-24h)}) {
    world.node().publish(key_of(1), value, kFirst);
    world.node().announce();
    world.pass(10ms);
    world.valkey->state().shift_clock(jump);
    for (int i = 0; i < 5; ++i) {
      const GetResult got = world.get(key_of(1), world.dest(300));
      if (got.outcome == Outcome::ok) {
        EXPECT_TRUE(same(world.dest(300), value));
      } else {
        EXPECT_TRUE(got.outcome == Outcome::miss || got.outcome == Outcome::unreachable);
      }
      world.pass(1s);
    }
  }
  world.manual.advance(24h);  // ours: everything cached is old, every link still proven
  world.node().publish(key_of(1), value, kFirst);
  world.node().announce();
  world.pass(2s);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
}

TEST(KvFault, K071_partitions_give_bounded_errors_and_heal_by_themselves) {
  World world;
  const Bytes value = pattern(300, 1);
  world.node().publish(key_of(1), value, kFirst);
  ASSERT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  // Client and Valkey: cached until L, then CONTROL_DOWN.
  world.valkey->set_down("c1", true);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  EXPECT_EQ(world.get(key_of(2), world.dest(300)).outcome, Outcome::control_down);
  world.pass(11s);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::control_down);
  EXPECT_EQ(world.put(key_of(3), value).outcome, Outcome::control_down);
  EXPECT_EQ(world.remove(key_of(1)), Outcome::control_down);
  world.valkey->set_down("c1", false);
  world.pass(1s);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  // Node and Valkey: the record lapses; the link that stands serves on, a new one cannot be made.
  world.valkey->set_down("n1", true);
  world.pass(6s);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  world.links->lose_links("c1", "n1");
  world.pass(50ms);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::unreachable);
  world.valkey->set_down("n1", false);
  world.pass(2s);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  // Client and node.
  world.links->partition("c1", "n1");
  world.links->lose_links("c1", "n1");
  world.pass(50ms);
  const Instant begun = world.clock().now();
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::unreachable);
  EXPECT_LE(world.clock().now() - begun, 2s);
  world.links->heal_all();
  world.pass(1s);
  EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
}

TEST(KvFault, K074_a_rogue_node_behind_a_forged_record_is_unreachable) {
  World world(with_nodes(2));
  const Keyring rogue_keys = ring_of(1, 0x77);  // the right id, another secret
  auto transport = world.links->open_transport("rogue");
  FakeNode::Options options;
  options.keys = &rogue_keys;
  options.host = "rogue";
  options.clock = &world.clock();
  options.open_domain = [&] { return world.network->open_domain("rogue"); };
  FakeNode rogue(options, *transport, *world.valkey);
  rogue.announcing = false;
  world.node(0).publish(key_of(1), pattern(300, 1), kFirst);
  world.node(0).announcing = false;
  world.pass(10ms);  // its own record has arrived, and is replaced
  NodeRecord forged = rogue.record();
  forged.incarnation = world.node(0).incarnation();
  const std::string text = encode_node_record(forged);
  world.valkey->write(node_name(NodeId(1)), bytes_of_text(text));
  std::optional<GetResult> got;
  world.client->get({key_of(1), world.dest(300)}, [&](GetResult r) { got = r; });
  ASSERT_TRUE(world.run([&] {
    rogue.step();
    return got.has_value();
  }));
  EXPECT_EQ(got->outcome, Outcome::unreachable);
  EXPECT_EQ(rogue.seen.hellos, 1u);
  EXPECT_EQ(world.posts(), 0u);
}

TEST(KvFault, hellos_that_do_not_hold_end_as_unreachable) {
  const auto mischiefs = std::vector<std::function<void(Mischief&)>>{
      [](Mischief& m) { m.mute = true; }, [](Mischief& m) { m.wrong_proof = true; },
      [](Mischief& m) { m.deaf_to_hello2 = true; }, [](Mischief& m) { m.another_node = true; },
      [](Mischief& m) { m.garbage = true; }};
  for (const auto& set : mischiefs) {
    World world;
    world.node().publish(key_of(1), pattern(300, 1), kFirst);
    set(world.node().mischief);
    const Instant begun = world.clock().now();
    EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::unreachable);
    EXPECT_LE(world.clock().now() - begun, 2s);
    EXPECT_EQ(world.posts(), 0u);
    world.node().mischief = {};
    world.pass(200ms);
    EXPECT_EQ(world.get(key_of(1), world.dest(300)).outcome, Outcome::ok);
  }
}

TEST(KvFault, faults_of_the_fabric_never_give_wrong_bytes) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    WorldOptions options;
    options.seed = seed;
    options.fabric.faults = {
        .connection_lost = 60, .not_quiet = 60, .spurious_error = 60, .repeated_key = 0};
    World world(options);
    std::size_t good = 0;
    for (std::uint64_t i = 0; i < 40; ++i) {
      const Bytes value = pattern(3000, i);
      world.node().publish(key_of(i), value, kFirst);
      if (world.get(key_of(i), world.dest(3000)).outcome != Outcome::ok) continue;
      ++good;
      ASSERT_TRUE(same(world.dest(3000), value));
    }
    EXPECT_GT(good, 20u);
  }
}

TEST(KvFault, closing_ends_what_is_under_way_as_timeout_and_quiet) {
  World world;
  world.node().publish(key_of(1), pattern(60000, 1), kFirst);
  std::optional<GetResult> got;
  std::optional<PutResult> put;
  world.client->get({key_of(1), world.dest(60000)}, [&](GetResult r) { got = r; });
  ASSERT_TRUE(world.run([&] { return world.network->moving() > 0; }));
  world.client->put({key_of(2), world.landing_bytes().last(1000)}, [&](PutResult r) { put = r; });
  world.client.reset();
  ASSERT_TRUE(got && put);
  EXPECT_EQ(got->outcome, Outcome::timeout);
  EXPECT_EQ(put->outcome, Outcome::timeout);
  EXPECT_EQ(world.network->moving(), 0u);
  world.open_client();
}

}  // namespace
}  // namespace farlift::kv::client::testing
