// Each planted bug of the node does what its name says (the simulation shows that it is found), and
// the invariant it breaks holds without it: this is the library with bugs on offer.
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::node::testing {
namespace {

using namespace std::chrono_literals;

struct Bugged {
  explicit Bugged(PlantedBug bug, WorldOptions with = {}) : world(std::move(with)) {
    NodeOptions options = world.options();
    options.planted = bug;
    options.planted_incarnation = 42;
    world.start(std::move(options));
    client = std::make_unique<RawClient>(world, "c1");
    EXPECT_EQ(client->greet(), Outcome::ok);
  }
  World world;
  std::unique_ptr<RawClient> client;
};

bool rotated(World& world) {
  world.node().rotate_all();
  return world.until([&] { return world.see().counter("arenas_rotating") == 0; });
}

TEST(KvPlanted, skip_grace_and_fence_leaves_old_keys_open) {
  for (const PlantedBug bug : {PlantedBug::none, PlantedBug::skip_grace_and_fence}) {
    Bugged b(bug);
    ASSERT_EQ(b.client->put(bytes_of("k"), pattern(900, 1)).outcome, Outcome::ok);
    const Descriptor held = *b.world.stored_descriptor("t1", bytes_of("k"));
    ASSERT_TRUE(rotated(b.world));
    ASSERT_EQ(b.client->put(bytes_of("n"), pattern(900, 2)).outcome, Outcome::ok);
    const auto read = b.client->read(held);
    EXPECT_EQ(read.ok(), bug != PlantedBug::none);
    if (read.ok()) {
      EXPECT_EQ(*read, pattern(900, 2)) << "wrong bytes";
    }
  }
}

TEST(KvPlanted, tag_without_key) {
  for (const PlantedBug bug : {PlantedBug::none, PlantedBug::tag_without_key}) {
    Bugged b(bug);
    ASSERT_EQ(b.client->put(bytes_of("k"), pattern(900, 1)).outcome, Outcome::ok);
    EXPECT_EQ(b.client->get(bytes_of("k")).has_value(), bug == PlantedBug::none);
  }
}

TEST(KvPlanted, constant_key) {
  for (const PlantedBug bug : {PlantedBug::none, PlantedBug::constant_key}) {
    Bugged b(
        bug,
        {.fabric_faults = {
             .connection_lost = 0, .not_quiet = 0, .spurious_error = 0, .repeated_key = 1000}});
    const RKey first = b.world.see().arenas()[0].keys[0];
    b.world.node().rotate_all();
    ASSERT_TRUE(b.world.until([&] {
      const auto state = b.world.see().arenas()[0].state;
      return state == ArenaState::lost || b.world.see().arenas()[0].gen == ArenaGen(2);
    }));
    const ArenaView arena = b.world.see().arenas()[0];
    if (bug == PlantedBug::none) {
      EXPECT_EQ(arena.state, ArenaState::lost);
    } else {
      EXPECT_EQ(arena.keys[0], first) << "the same key in two generations";
    }
  }
}

TEST(KvPlanted, restored_incarnation) {
  Bugged b(PlantedBug::restored_incarnation);
  EXPECT_EQ(b.world.node().incarnation(), Incarnation(42));
}

TEST(KvPlanted, free_on_unknown_publish) {
  for (const PlantedBug bug : {PlantedBug::none, PlantedBug::free_on_unknown_publish}) {
    Bugged b(bug);
    sim::SimValkeyFaults faults;
    faults.reply_lost = 1000;
    b.world.valkey.set_faults(faults);
    (void)b.client->send(FrameType::put_pull,
                         encode(b.client->pull_request(bytes_of("k"), pattern(900, 1))));
    ASSERT_TRUE(b.world.until([&] { return b.world.see().counter("publish_unknown") == 1; }));
    EXPECT_EQ(b.world.see().counter("slots_quarantined"), bug == PlantedBug::none ? 1u : 0u);
    EXPECT_EQ(b.world.see().counter("bytes_used") > 0, bug == PlantedBug::none);
  }
}

TEST(KvPlanted, crc_before_grant_close) {
  Bugged b(PlantedBug::crc_before_grant_close);
  const PutId id = b.client->new_put_id();
  const Bytes value = pattern(900, 1);
  const AllocReply grant = b.client->alloc(bytes_of("k"), value.size(), id);
  ASSERT_TRUE(b.client->write(grant, value).ok());
  const auto request = b.client->send(
      FrameType::seal,
      encode(SealRequest{id, grant.slot_id, digest::crc32c(value), PutMode::if_absent, Version()}));
  ASSERT_TRUE(b.world.until([&] { return b.world.see().open_grants() == 0; }));
  EXPECT_TRUE(b.client->write(grant, pattern(900, 2)).ok()) << "still open after the check";
  EXPECT_EQ(decode_put_reply(b.client->receive(request)->body)->outcome, Outcome::ok);
  EXPECT_FALSE(b.client->get(bytes_of("k")).has_value()) << "published, and not what was checked";
}

TEST(KvPlanted, fence_mr_everywhere) {
  for (const PlantedBug bug : {PlantedBug::none, PlantedBug::fence_mr_everywhere}) {
    Bugged b(bug, {.fence_mode = fabric::FenceMode::endpoint});
    ASSERT_TRUE(rotated(b.world));
    EXPECT_EQ(b.world.see().counter("endpoint_fences"), bug == PlantedBug::none ? 1u : 0u);
  }
}

TEST(KvPlanted, purge_by_version_deletes_what_was_moved) {
  for (const PlantedBug bug : {PlantedBug::none, PlantedBug::purge_by_version}) {
    Bugged b(bug);
    const auto ring = keyring_of(1);
    ASSERT_EQ(b.client->put(bytes_of("hot"), pattern(90000, 1)).outcome, Outcome::ok);
    ASSERT_EQ(b.client->put(bytes_of("fill"), pattern(700000, 2)).outcome, Outcome::ok);
    ASSERT_EQ(b.client->put(bytes_of("elsewhere"), pattern(400000, 3)).outcome, Outcome::ok);
    ASSERT_EQ(b.client->remove(bytes_of("fill")), Outcome::ok);
    (void)b.client->send(FrameType::touch,
                         encode(TouchRequest{{ring.signing().key_hash(bytes_of("hot"))}}));
    b.world.pass(10ms);
    ASSERT_TRUE(b.world.node().rotate(ArenaId(1)));
    ASSERT_TRUE(b.world.until([&] { return b.world.see().arenas()[0].gen == ArenaGen(2); }));
    EXPECT_EQ(b.world.see().counter("migrated"), 1u);
    EXPECT_EQ(b.client->get(bytes_of("hot")).has_value(), bug == PlantedBug::none);
  }
}

}  // namespace
}  // namespace farlift::kv::node::testing
