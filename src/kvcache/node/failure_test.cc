// The directory failing, lying and losing writes; nodes that die; reconcile, migration, drain
// (spec kv 7.5, 7.6, 8.3, 8.4, 10), in a simulated world.
#include "kvcache/node/testing/stub_domain.h"
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

#include <set>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

class KvNodeFailure : public ::testing::Test {
 protected:
  void start(WorldOptions with = {}) {
    client_.reset();
    world_ = std::make_unique<World>(std::move(with));
    world_->start(world_->options());
    client_ = std::make_unique<RawClient>(*world_, "c1");
    ASSERT_EQ(client_->greet(), Outcome::ok);
  }
  std::uint64_t count(const char* name, std::uint64_t node = 1) {
    return world_->see(node).counter(name);
  }
  bool until_count(const char* name, std::uint64_t value, std::uint64_t node = 1) {
    return world_->until([&] { return count(name, node) == value; });
  }
  StubControl stub_;
  std::unique_ptr<World> world_;
  std::unique_ptr<RawClient> client_;
};

TEST_F(KvNodeFailure, K027_the_reply_of_a_publish_is_lost) {
  start();
  const Bytes key = bytes_of("k"), value = pattern(900, 1);
  sim::SimValkeyFaults faults;
  faults.reply_lost = 1000;
  world_->valkey.set_faults(faults);
  const auto request =
      client_->send(FrameType::put_pull, encode(client_->pull_request(key, value)));
  ASSERT_TRUE(until_count("publish_unknown", 1));
  EXPECT_EQ(count("slots_quarantined"), 1u) << "P14";
  world_->valkey.set_faults({});
  const auto reply = decode_put_reply(client_->receive(request)->body);
  EXPECT_TRUE(reply->outcome == Outcome::ok || reply->outcome == Outcome::control_down);
  world_->pass(35s);
  EXPECT_EQ(count("slots_published"), 1u) << "reconcile found it published";
  EXPECT_EQ(client_->get(key), value);
}

TEST_F(KvNodeFailure, K027_K028_a_publish_applied_long_after) {
  start();
  const Bytes key = bytes_of("k"), value = pattern(900, 1);
  sim::SimValkeyFaults faults;
  faults.applied_late = 1000;
  faults.late_max = 25s;
  world_->valkey.set_faults(faults);
  const auto request =
      client_->send(FrameType::put_pull, encode(client_->pull_request(key, value)));
  ASSERT_TRUE(until_count("publish_unknown", 1));
  world_->valkey.set_faults({});
  EXPECT_EQ(decode_put_reply(client_->receive(request)->body)->outcome, Outcome::control_down);
  for (int i = 0; i < 40; ++i) {
    const auto got = client_->get(key);
    EXPECT_TRUE(!got || *got == value);
    world_->pass(1s);
    if (i == 5) {
      ASSERT_EQ(client_->put(bytes_of("another"), pattern(900, 7)).outcome, Outcome::ok);
    }
  }
  EXPECT_EQ(client_->get(key), value);
  world_->pass(60s);
  EXPECT_EQ(count("slots_quarantined"), 0u);
}

// A DELETE that meets half a pair, or what is no descriptor, has no location to name.
TEST_F(KvNodeFailure, a_delete_applied_long_after_spares_what_was_put_since) {
  start();
  const Bytes key = bytes_of("k");
  for (const bool garbage : {false, true}) {
    ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
    if (garbage) {
      world_->valkey.write(descriptor_name("t1", key), bytes_of("short"));
    } else {
      world_->valkey.evict(descriptor_name("t1", key));
    }
    const std::uint64_t before = count("deletes");
    const auto request = client_->send(FrameType::remove, encode(RemoveRequest{key, {}}));
    ASSERT_TRUE(until_count("deletes", before + 1));  // the look at the pair is under way
    sim::SimValkeyFaults faults;
    faults.applied_late = 1000;
    faults.late_max = 25s;
    world_->valkey.set_faults(faults);
    EXPECT_EQ(decode_outcome(client_->receive(request)->body)->outcome, Outcome::control_down);
    world_->valkey.set_faults({});
    ASSERT_TRUE(world_->until([&] {  // as soon as the node hears the directory again
      return client_->put(key, pattern(900, 2), PutMode::replace).outcome == Outcome::ok;
    }));
    for (int i = 0; i < 30; ++i) {
      world_->pass(1s);
      ASSERT_EQ(client_->get(key), pattern(900, 2)) << i;
    }
    ASSERT_EQ(client_->remove(key), Outcome::ok);
  }
}

TEST_F(KvNodeFailure, K027_valkey_stops_between_seal_and_publish) {
  start();
  const auto request = client_->send(FrameType::put_pull,
                                     encode(client_->pull_request(bytes_of("k"), pattern(900, 1))));
  ASSERT_TRUE(world_->until([&] { return count("slots_sealed") == 1; }));
  world_->valkey.set_down(true);
  const auto reply = decode_put_reply(client_->receive(request)->body);
  EXPECT_EQ(reply->outcome, Outcome::control_down);
  EXPECT_EQ(client_->put(bytes_of("k2"), pattern(1, 1)).outcome, Outcome::control_down);
  world_->valkey.set_down(false);
  world_->pass(40s);
  const auto got = client_->get(bytes_of("k"));
  EXPECT_TRUE(!got || *got == pattern(900, 1));
  EXPECT_EQ(count("slots_published"), got ? 1u : 0u);
}

TEST_F(KvNodeFailure, K032_R047_a_descriptor_of_a_dead_incarnation_blocks_nobody) {
  start();
  const Bytes key = bytes_of("k");
  const PutReply old = client_->put(key, pattern(900, 1));
  ASSERT_EQ(old.outcome, Outcome::ok);
  const Incarnation before = world_->node().incarnation();
  const std::uint16_t port = world_->node().port();
  world_->crash(NodeId(1));
  world_->start(world_->options());
  EXPECT_NE(world_->node().incarnation(), before);
  EXPECT_NE(world_->node().port(), port) << "no address comes back";
  ASSERT_EQ(client_->greet(), Outcome::ok);
  EXPECT_FALSE(client_->get(key).has_value());
  const PutReply put = client_->put(key, pattern(900, 2));
  ASSERT_EQ(put.outcome, Outcome::ok);
  EXPECT_EQ(put.version.rev(), 2u);
  EXPECT_EQ(client_->get(key), pattern(900, 2));
  EXPECT_EQ(count("repairs"), 1u);
}

TEST_F(KvNodeFailure, K032_neither_does_one_of_a_retired_generation) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  const auto pair = world_->stored("t1", key);
  world_->node().rotate_all();
  ASSERT_TRUE(world_->until([&] { return world_->see().arenas()[0].gen == ArenaGen(2); }));
  ASSERT_TRUE(until_count("purges_waiting", 0));
  world_->valkey.write(descriptor_name("t1", key),
                       *pair->descriptor);  // a failover brought it back
  world_->valkey.write(tag_name("t1", key), *pair->tag);
  EXPECT_EQ(client_->put(key, pattern(900, 2)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(key), pattern(900, 2));
}

// What readers reject for ever and no condition can name (found by the simulation).
TEST_F(KvNodeFailure, K032_R047_nor_one_without_a_version) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  const auto pair = world_->stored("t1", key);
  Bytes no_version = *pair->descriptor, last_version = *pair->descriptor;
  std::fill(no_version.begin() + 48, no_version.begin() + 56, std::byte{0});
  std::fill(last_version.begin() + 48, last_version.begin() + 56, std::byte{0xff});
  const Bytes cut(pair->descriptor->begin(), pair->descriptor->begin() + 52);
  const Bytes stub(pair->descriptor->begin(), pair->descriptor->begin() + 20);
  std::uint64_t seed = 2;
  for (const Bytes& forged : {no_version, last_version, cut, stub, Bytes()}) {
    for (const PutMode mode : {PutMode::if_absent, PutMode::replace}) {
      world_->valkey.write(descriptor_name("t1", key), forged);
      EXPECT_EQ(client_->put(key, pattern(900, ++seed), mode).outcome, Outcome::ok)
          << forged.size() << " bytes";
      EXPECT_EQ(client_->get(key), pattern(900, seed));
    }
  }
}

TEST_F(KvNodeFailure, a_retired_generation_brought_back_is_removed_when_a_reader_says_so) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  const auto pair = world_->stored("t1", key);
  const auto location = world_->stored_descriptor("t1", key)->location;
  EXPECT_EQ(client_->simple(FrameType::stale_seen, encode(StaleSeenRequest{key, location})),
            Outcome::bad_arg)
      << "it lives";
  world_->node().rotate_all();
  ASSERT_TRUE(world_->until([&] { return world_->see().arenas()[0].gen == ArenaGen(2); }));
  ASSERT_TRUE(until_count("purges_waiting", 0));
  world_->valkey.write(descriptor_name("t1", key), *pair->descriptor);
  world_->valkey.write(tag_name("t1", key), *pair->tag);
  EXPECT_EQ(client_->simple(FrameType::stale_seen, encode(StaleSeenRequest{key, location})),
            Outcome::ok);
  EXPECT_FALSE(world_->stored("t1", key)->descriptor.has_value());
}

TEST_F(KvNodeFailure, K032_nor_one_of_a_node_that_is_gone) {
  start();
  world_->start(world_->options(2));
  RawClient two(*world_, "c2");
  ASSERT_EQ(two.greet(2), Outcome::ok);
  const Bytes key = bytes_of("k");
  ASSERT_EQ(two.put(key, pattern(900, 2)).outcome, Outcome::ok);
  EXPECT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::exists) << "it lives";
  world_->crash(NodeId(2));
  world_->pass(6s);
  EXPECT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(key), pattern(900, 1));
}

TEST_F(KvNodeFailure, K069_half_a_pair_is_repaired_by_the_next_put) {
  start();
  const Bytes a = bytes_of("a"), b = bytes_of("b");
  ASSERT_EQ(client_->put(a, pattern(90, 1)).outcome, Outcome::ok);
  ASSERT_EQ(client_->put(b, pattern(90, 2)).outcome, Outcome::ok);
  world_->valkey.evict(tag_name("t1", a));
  world_->valkey.evict(descriptor_name("t1", b));
  EXPECT_FALSE(client_->get(a).has_value());
  EXPECT_FALSE(client_->get(b).has_value());
  EXPECT_EQ(client_->put(a, pattern(90, 3)).outcome, Outcome::ok);
  EXPECT_EQ(client_->put(b, pattern(90, 4)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(a), pattern(90, 3));
  EXPECT_EQ(client_->get(b), pattern(90, 4));
}

TEST_F(KvNodeFailure, K066_flushall) {
  start();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(client_->put(bytes_of("k" + std::to_string(i)), pattern(900, 1)).outcome,
              Outcome::ok);
  }
  world_->valkey.flush_all();
  EXPECT_FALSE(client_->get(bytes_of("k1")).has_value());
  EXPECT_EQ(client_->put(bytes_of("k1"), pattern(900, 2)).outcome, Outcome::ok);
  ASSERT_TRUE(until_count("slots_quarantined", 20)) << "reconcile, in two passes";
  EXPECT_EQ(count("slots_published"), 1u);
  world_->node().rotate_all();
  ASSERT_TRUE(until_count("slots_quarantined", 0));
}

TEST_F(KvNodeFailure, K068_an_old_node_record_is_written_over) {
  start();
  ASSERT_EQ(client_->put(bytes_of("k"), pattern(9, 1)).outcome, Outcome::ok);
  NodeRecord forged;
  forged.node = NodeId(1);
  forged.incarnation = Incarnation(77);
  forged.host = "elsewhere";
  forged.port = 1;
  forged.rails.push_back({"sim"});
  const std::string text = encode_node_record(forged);
  world_->valkey.write(node_name(NodeId(1)), bytes_of(text));
  world_->pass(1500ms);
  const auto directory = world_->valkey.open_directory("reader");
  std::optional<NodeRecord> found;
  directory->find_node(NodeId(1), [&](Result<std::optional<NodeRecord>> record) {
    if (record.ok()) found = *record;
  });
  ASSERT_TRUE(world_->until([&] {
    directory->step();
    return found.has_value();
  }));
  EXPECT_EQ(found->incarnation, world_->node().incarnation());
  EXPECT_EQ(client_->get(bytes_of("k")), pattern(9, 1));
}

TEST_F(KvNodeFailure, stale_seen_removes_what_an_earlier_self_published) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  const Location live = world_->stored_descriptor("t1", key)->location;
  EXPECT_EQ(client_->simple(FrameType::stale_seen, encode(StaleSeenRequest{key, live})),
            Outcome::bad_arg)
      << "not of an earlier incarnation";
  EXPECT_EQ(client_->get(key), pattern(900, 1));
  world_->crash(NodeId(1));
  world_->start(world_->options());
  ASSERT_EQ(client_->greet(), Outcome::ok);
  EXPECT_EQ(client_->simple(FrameType::stale_seen, encode(StaleSeenRequest{key, live})),
            Outcome::ok);
  EXPECT_FALSE(world_->stored_descriptor("t1", key).has_value());
}

TEST_F(KvNodeFailure, an_overwrite_on_another_node_is_told_to_the_owner) {
  start();
  world_->start(world_->options(2));
  RawClient two(*world_, "c2");
  ASSERT_EQ(two.greet(2), Outcome::ok);
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  ASSERT_EQ(two.put(key, pattern(900, 2), PutMode::replace).outcome, Outcome::ok);
  ASSERT_TRUE(until_count("superseded_received", 1));
  ASSERT_TRUE(until_count("slots_quarantined", 1));
  EXPECT_EQ(two.get(key), pattern(900, 2));
}

// A quarantined slot that its key still names is unpublished by the next reconcile, so a word of a
// client alone would delete the value.
TEST_F(KvNodeFailure, superseded_is_believed_only_if_the_directory_shows_it) {
  start();
  const Bytes key = bytes_of("k");
  ASSERT_EQ(client_->put(key, pattern(900, 1)).outcome, Outcome::ok);
  const Descriptor live = *world_->stored_descriptor("t1", key);
  const Bytes lie = encode(SupersededRequest{live.location, live.version, key});
  EXPECT_EQ(client_->simple(FrameType::superseded, lie), Outcome::bad_arg);
  EXPECT_EQ(count("slots_quarantined"), 0u);
  world_->valkey.set_down(true);  // nobody to ask: nothing happens
  EXPECT_EQ(client_->simple(FrameType::superseded, lie), Outcome::control_down);
  EXPECT_EQ(count("slots_quarantined"), 0u);
  world_->valkey.set_down(false);
  world_->pass(70s);  // two rounds of reconcile
  EXPECT_EQ(client_->get(key), pattern(900, 1));
  // Missing, as at a replica that lags: left to reconcile, which looks twice.
  const Pair pair = *world_->stored("t1", key);
  world_->valkey.evict(descriptor_name("t1", key));
  EXPECT_EQ(client_->simple(FrameType::superseded, lie), Outcome::bad_arg);
  EXPECT_EQ(count("slots_quarantined"), 0u);
  world_->valkey.write(descriptor_name("t1", key), *pair.descriptor);
  EXPECT_EQ(client_->get(key), pattern(900, 1));
}

TEST_F(KvNodeFailure, K057_R047_hot_values_move_and_nothing_moved_is_purged) {
  start();
  std::vector<Bytes> keys;
  TouchRequest touch;
  const auto ring = keyring_of(1);
  for (std::uint64_t i = 0; i < 30; ++i) {
    keys.push_back(bytes_of("k" + std::to_string(i)));
    ASSERT_EQ(client_->put(keys.back(), pattern(30000, i)).outcome, Outcome::ok);
    if (i % 3 == 0) touch.key_hashes.push_back(ring.signing().key_hash(keys.back()));
  }
  (void)client_->send(FrameType::touch, encode(touch));
  world_->pass(100ms);
  for (std::uint64_t i = 0; i < 30; ++i) {
    if (i % 3 == 0) continue;
    ASSERT_EQ(client_->remove(keys[i]), Outcome::ok);
  }
  // Somewhere to go: another arena of the tenant.
  for (std::uint64_t i = 0; i < 3; ++i) {
    ASSERT_EQ(client_->put(bytes_of("big" + std::to_string(i)), pattern(200000, i)).outcome,
              Outcome::ok);
  }
  const Version version = world_->stored_descriptor("t1", keys[0])->version;
  const Descriptor held = *world_->stored_descriptor("t1", keys[0]);
  world_->node().rotate(ArenaId(1));
  ASSERT_TRUE(world_->until([&] { return world_->see().arenas()[0].state == ArenaState::grace; }));
  EXPECT_EQ(client_->read(held).value(), pattern(30000, 0)) << "the old copy stays readable";
  EXPECT_EQ(client_->remove(keys[3]), Outcome::ok);
  EXPECT_EQ(client_->put(keys[3], pattern(10, 3)).outcome, Outcome::ok);
  ASSERT_TRUE(world_->until([&] { return world_->see().arenas()[0].gen == ArenaGen(2); }));
  ASSERT_TRUE(until_count("purges_waiting", 0));
  EXPECT_EQ(count("migrated"), 10u);
  EXPECT_EQ(world_->stored_descriptor("t1", keys[0])->version, version) << "P15";
  for (std::uint64_t i = 0; i < 30; i += 3) {
    EXPECT_EQ(client_->get(keys[i]), i == 3 ? pattern(10, 3) : pattern(30000, i)) << i;
  }
}

TEST_F(KvNodeFailure, drain_moves_hot_values_to_another_node_and_leaves) {
  start();
  world_->start(world_->options(2));
  const auto ring = keyring_of(1);
  TouchRequest touch;
  for (std::uint64_t i = 0; i < 12; ++i) {
    const Bytes key = bytes_of("k" + std::to_string(i));
    ASSERT_EQ(client_->put(key, pattern(5000, i)).outcome, Outcome::ok);
    if (i < 6) touch.key_hashes.push_back(ring.signing().key_hash(key));
  }
  (void)client_->send(FrameType::touch, encode(touch));
  world_->pass(10ms);
  EXPECT_EQ(client_->simple(FrameType::drain, {}), Outcome::ok);
  EXPECT_EQ(client_->put(bytes_of("x"), pattern(1, 1)).outcome, Outcome::full);
  ASSERT_TRUE(world_->until([&] { return world_->node(1).drained(); }));
  EXPECT_EQ(count("moved_away"), 6u);
  RawClient two(*world_, "c2");
  ASSERT_EQ(two.greet(2), Outcome::ok);
  for (std::uint64_t i = 0; i < 12; ++i) {
    const auto got = two.get(bytes_of("k" + std::to_string(i)));
    EXPECT_EQ(got, i < 6 ? std::optional(pattern(5000, i)) : std::nullopt);
  }
  EXPECT_EQ(count("slots_published") + count("slots_quarantined"), 0u);
  world_->pass(10s);
  const auto directory = world_->valkey.open_directory("reader");
  std::optional<std::size_t> nodes;
  directory->list_nodes([&](Result<std::vector<NodeRecord>> list) { nodes = list->size(); });
  ASSERT_TRUE(world_->until([&] {
    directory->step();
    return nodes.has_value();
  }));
  EXPECT_EQ(*nodes, 1u);
}

TEST_F(KvNodeFailure, R048_nothing_is_visible_before_it_is_published) {
  start();
  const Bytes key = bytes_of("k");
  const auto request =
      client_->send(FrameType::put_pull, encode(client_->pull_request(key, pattern(90000, 1))));
  const auto arena_bytes = [&] { return world_->see().counter("slots_published"); };
  int looks = 0;
  while (!client_->poll(request)) {
    world_->turn();
    const bool there = world_->valkey.state().get(descriptor_name("t1", key)).has_value();
    for (const SlotView& slot : world_->see().slots(ArenaId(1))) {
      // Whoever could see it, sees a sealed slot with its header.
      EXPECT_TRUE(!there || slot.state >= SlotState::sealed);
      if (slot.state >= SlotState::sealed) {
        const auto header = decode_header(slot.header.first<kHeaderBytes>());
        ASSERT_TRUE(header.has_value());
        EXPECT_EQ(header->crc, digest::crc32c(slot.payload));
      }
    }
    ++looks;
  }
  EXPECT_GT(looks, 10);
  EXPECT_EQ(arena_bytes(), 1u);
}

TEST_F(KvNodeFailure, R046_R058_arenas_adapt_to_what_the_rail_takes) {
  stub_.registration_max = Length(256u << 10);
  start({.wrap = stub_.wrap()});
  EXPECT_EQ(count("bytes_capacity"), 256u << 10);
  for (int i = 0; i < 12; ++i) {
    const Bytes key = bytes_of("k" + std::to_string(i)), value = pattern(120000, 1);
    ASSERT_EQ(client_->put(key, value).outcome, Outcome::ok);
    EXPECT_EQ(client_->get(key), value);
  }
  EXPECT_EQ(client_->put(bytes_of("k"), pattern(300000, 1)).outcome, Outcome::too_large);
}

TEST_F(KvNodeFailure, R058_a_rail_that_takes_nothing_is_said_in_words) {
  stub_.room = Length(100);
  world_ = std::make_unique<World>(WorldOptions{.wrap = stub_.wrap()});
  std::string why;
  EXPECT_FALSE(world_->try_start(world_->options(), why).ok());
  EXPECT_NE(why.find("registration limit"), std::string::npos) << why;
}

TEST_F(KvNodeFailure, K084_a_registration_cache_is_found_and_refused) {
  stub_.cache = true;
  world_ = std::make_unique<World>(WorldOptions{.wrap = stub_.wrap()});
  NodeOptions options = world_->options();
  options.self_test = true;
  std::string why;
  EXPECT_FALSE(world_->try_start(std::move(options), why).ok());
  EXPECT_NE(why.find("self-test"), std::string::npos) << why;
  stub_.cache = false;
  options = world_->options();
  options.self_test = true;
  EXPECT_TRUE(world_->try_start(std::move(options), why).ok()) << why;
}

TEST_F(KvNodeFailure, options_that_cannot_be_are_said_in_words) {
  world_ = std::make_unique<World>();
  std::string why;
  NodeOptions options = world_->options();
  options.arena_size = Length(3u << 20);
  EXPECT_EQ(world_->try_start(std::move(options), why).code(), Errc::invalid_argument);
  options = world_->options();
  options.tenants[0].quota = Length(1);
  EXPECT_FALSE(world_->try_start(std::move(options), why).ok());
  EXPECT_NE(why.find("quota"), std::string::npos);
  options = world_->options();
  options.tenants[0].keys = Keyring();
  EXPECT_FALSE(world_->try_start(std::move(options), why).ok());
  options = world_->options();
  options.tenants.clear();
  EXPECT_FALSE(world_->try_start(std::move(options), why).ok());
}

}  // namespace
}  // namespace farlift::kv::node::testing
