// The write path of the client: placement, pull, push, repeats, removal (spec kv 7, 8.1).
#include "kvcache/client/placement.h"
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

WorldOptions with_nodes(std::size_t nodes) {
  WorldOptions options;
  options.nodes = nodes;
  return options;
}

TEST(KvWrite, K016_K017_modes_are_carried_and_their_answers_reported) {
  World world;
  const Bytes one = pattern(2000, 1);
  const Bytes two = pattern(1000, 2);
  const PutResult first = world.put(key_of(1), one);
  ASSERT_EQ(first.outcome, Outcome::ok);
  EXPECT_EQ(first.version.rev(), 1u);
  EXPECT_EQ(first.node, NodeId(1));
  EXPECT_EQ(world.put(key_of(1), two).outcome, Outcome::exists);
  EXPECT_EQ(world.put(key_of(1), two, PutMode::if_version, Version(9, 9)).outcome,
            Outcome::conflict);
  EXPECT_EQ(world.put(key_of(1), two, PutMode::if_version, Version()).outcome, Outcome::conflict);
  ASSERT_EQ(world.get(key_of(1), world.dest(2000)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(2000), one));
  ASSERT_EQ(world.put(key_of(1), two, PutMode::if_version, first.version).outcome, Outcome::ok);
  ASSERT_EQ(world.get(key_of(1), world.dest(2000)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(1000), two));
}

TEST(KvWrite, K030_sizes_round_trip_by_pull_and_push) {
  World world;
  std::uint64_t number = 0;
  for (const bool push : {false, true}) {
    for (const std::size_t size : {0u, 1u, 31u, 32u, 33u, 4095u, 4096u, 4097u, 70000u}) {
      const Bytes value = pattern(size, ++number);
      ASSERT_EQ(world.put(key_of(number), value, PutMode::if_absent, {}, push).outcome, Outcome::ok)
          << size;
      ASSERT_EQ(world.get(key_of(number), world.dest(size)).outcome, Outcome::ok);
      EXPECT_TRUE(same(world.dest(size), value));
    }
  }
  EXPECT_EQ(world.node().seen.seals, 9u);
}

TEST(KvWrite, K024_a_push_is_refused_where_a_grant_cannot_be_taken_back) {
  World world;
  world.node().mischief.fence_mode = FenceWord::endpoint;
  const PutResult put = world.put(key_of(1), pattern(100, 1), PutMode::if_absent, {}, true);
  EXPECT_EQ(put.outcome, Outcome::bad_arg);
  EXPECT_FALSE(put.why.empty());
  EXPECT_EQ(world.node().seen.allocs, 0u);
}

TEST(KvWrite, a_full_node_is_followed_by_the_next_three_at_most) {
  World world(with_nodes(5));
  world.pass(10ms);
  std::size_t full = 0;
  for (auto& node : world.nodes) {
    node->mischief.full = true;
    ++full;
  }
  EXPECT_EQ(world.put(key_of(1), pattern(100, 1)).outcome, Outcome::full);
  std::uint64_t asked = 0;
  for (auto& node : world.nodes) asked += node->seen.pulls;
  EXPECT_EQ(asked, 3u);
  for (auto& node : world.nodes) {
    if (node->seen.pulls == 0) continue;
    node->mischief.full = false;  // one of the three has room again
    break;
  }
  EXPECT_EQ(world.put(key_of(1), pattern(100, 1)).outcome, Outcome::ok);
}

TEST(KvWrite, a_node_that_cannot_be_reached_is_passed_over) {
  World world(with_nodes(3));
  world.pass(10ms);
  for (std::uint64_t i = 0; i < 6; ++i) {
    world.links->crash("n2");  // its record is still there
    world.node(1).announcing = false;
    EXPECT_EQ(world.put(key_of(i), pattern(100, i)).outcome, Outcome::ok);
  }
}

TEST(KvWrite, without_nodes_or_room_a_put_says_so) {
  World world;
  world.node().announcing = false;
  world.pass(6s);
  EXPECT_EQ(world.put(key_of(1), pattern(10, 1)).outcome, Outcome::unreachable);
}

TEST(KvWrite, K029_a_lost_answer_is_asked_for_again_with_the_same_put_id) {
  World world;
  world.node().mischief.lose_next_put = true;
  const PutResult put = world.put(key_of(1), pattern(500, 1));
  EXPECT_EQ(put.outcome, Outcome::ok);
  EXPECT_EQ(put.version.rev(), 1u);
  EXPECT_EQ(world.node().seen.pulls, 2u);
  EXPECT_EQ(world.counter("puts_resent"), 1u);
}

TEST(KvWrite, an_unanswered_put_ends_in_time_with_its_source_out_of_reach) {
  World world;
  ASSERT_EQ(world.put(key_of(1), pattern(100, 1)).outcome, Outcome::ok);
  world.node().mischief.never_answer_puts = true;
  const Instant begun = world.clock().now();
  EXPECT_EQ(world.put(key_of(2), pattern(100, 2)).outcome, Outcome::timeout);
  EXPECT_LE(world.clock().now() - begun, 6500ms);
  // The endpoint through which the node would pull is gone with the report.
  world.node().mischief.never_answer_puts = false;
  EXPECT_EQ(world.put(key_of(3), pattern(100, 3)).outcome, Outcome::ok) << "over a new link";
  EXPECT_EQ(world.node().seen.hellos, 2u);
}

// The node takes puts and never answers: those under way end at their limit and take the link with
// them, and those that wait for their turn end with the batch, not one round after the other.
TEST(KvWrite, a_batch_of_puts_ends_in_time_however_long_it_is) {
  WorldOptions options;
  options.tune = [](ClientOptions& client) { client.puts_active_max = 4; };
  World world(options);
  world.node().mischief.never_answer_puts = true;
  std::vector<PutRequest> requests;
  for (std::uint64_t i = 0; i < 64; ++i) {
    requests.push_back({key_of(i), world.dest(100, 100 * i), PutMode::if_absent, {}, false});
  }
  const Instant before = world.clock().now();
  std::optional<std::vector<PutResult>> results;
  world.client->mput(std::move(requests),
                     [&](std::vector<PutResult> r) { results = std::move(r); });
  ASSERT_TRUE(world.run([&] { return results.has_value(); }, 300s));
  EXPECT_LE(world.clock().now() - before, 2 * kOperationLimit + kControlTimeout + 100ms);
  ASSERT_EQ(results->size(), 64u);
  for (const PutResult& result : *results) {
    EXPECT_TRUE(result.outcome == Outcome::timeout || result.outcome == Outcome::unreachable)
        << outcome_name(result.outcome);
  }
  EXPECT_LT(world.node().seen.pulls, 32u) << "nothing is sent for those whose time is over";
  world.node().mischief.never_answer_puts = false;
  EXPECT_EQ(world.put(key_of(100), pattern(100, 1)).outcome, Outcome::ok) << "and it goes on";
}

TEST(KvWrite, a_batch_that_is_longer_than_what_may_be_under_way) {
  WorldOptions options;
  options.tune = [](ClientOptions& client) { client.puts_active_max = 4; };
  World world(options);
  std::vector<PutRequest> requests;
  for (std::uint64_t i = 0; i < 300; ++i) {
    requests.push_back({key_of(i), world.dest(64, 64 * i), PutMode::if_absent, {}, false});
  }
  std::optional<std::vector<PutResult>> results;
  world.client->mput(std::move(requests),
                     [&](std::vector<PutResult> r) { results = std::move(r); });
  ASSERT_TRUE(world.run([&] { return results.has_value(); }));
  for (const PutResult& result : *results) ASSERT_EQ(result.outcome, Outcome::ok);
  EXPECT_EQ(world.node().seen.pulls, 300u);
}

TEST(KvWrite, a_pull_that_hangs_is_cut_off_before_the_put_is_reported) {
  World world;
  ASSERT_EQ(world.put(key_of(1), pattern(100, 1)).outcome, Outcome::ok);
  std::optional<PutResult> put;
  const auto source = world.landing_bytes().last(60000);
  world.client->put({key_of(2), source}, [&](PutResult r) { put = std::move(r); });
  ASSERT_TRUE(world.run([&] { return world.network->moving() > 0; }));
  world.network->stop(world.node().client_target(), true);
  bool moving_at_report = true;
  ASSERT_TRUE(world.run([&] {
    if (put) moving_at_report = world.network->moving() > 0;
    return put.has_value();
  }));
  EXPECT_TRUE(put->outcome == Outcome::timeout) << outcome_name(put->outcome);
  EXPECT_FALSE(moving_at_report);
  EXPECT_EQ(world.get(key_of(2), world.dest(60000)).outcome, Outcome::miss);
}

TEST(KvWrite, a_refused_push_is_aborted_on_the_node) {
  World world;
  world.node().mischief.max_read = Length(1000);
  ASSERT_EQ(world.put(key_of(1), pattern(5000, 1), PutMode::if_absent, {}, true).outcome,
            Outcome::ok);
  for (const auto& event : world.network->trace()) {
    if (event.what == fabric::sim::SimEvent::What::post) {
      EXPECT_LE(event.length, 1000u);
    }
  }
}

TEST(KvWrite, many_puts_share_one_source_registration) {
  World world;
  std::vector<PutRequest> requests;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const auto source = world.dest(100, i * 100);
    const Bytes value = pattern(100, i);
    std::copy(value.begin(), value.end(), source.begin());
    requests.push_back({key_of(i), source});
  }
  std::optional<std::vector<PutResult>> results;
  world.client->mput(std::move(requests), [&](auto r) { results = std::move(r); });
  ASSERT_TRUE(world.run([&] { return results.has_value(); }));
  for (const PutResult& put : *results) EXPECT_EQ(put.outcome, Outcome::ok);
  EXPECT_EQ(world.counter("source_registrations"), 1u);
  EXPECT_EQ(world.counter("landing_registrations"), 1u);
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_EQ(world.get(key_of(i), world.dest(100, 50000)).outcome, Outcome::ok);
    EXPECT_TRUE(same(world.dest(100, 50000), pattern(100, i)));
  }
}

TEST(KvWrite, a_remove_goes_to_the_owner_and_to_anybody_when_that_is_gone) {
  World world(with_nodes(2));
  world.node(0).publish(key_of(1), pattern(100, 1), Version(1, 1));
  world.node(1).publish(key_of(2), pattern(100, 2), Version(1, 2));
  EXPECT_EQ(world.remove(key_of(1)), Outcome::ok);
  EXPECT_EQ(world.node(0).seen.removes, 1u);
  EXPECT_EQ(world.remove(key_of(1)), Outcome::miss);
  EXPECT_EQ(world.remove(key_of(2), Version(7, 7)), Outcome::conflict);
  world.links->crash("n2");
  world.node(1).announcing = false;
  world.pass(6s);
  EXPECT_EQ(world.remove(key_of(2)), Outcome::ok);
  EXPECT_EQ(world.node(0).seen.removes, 2u);
  EXPECT_EQ(world.get(key_of(2), world.dest(100)).outcome, Outcome::miss);
}

TEST(KvWrite, a_forged_descriptor_can_be_removed) {
  World world;
  world.valkey->write(descriptor_name("t1", key_of(1)), Bytes(80, std::byte{3}));
  EXPECT_EQ(world.remove(key_of(1)), Outcome::ok);
  EXPECT_EQ(world.get(key_of(1), world.dest(10)).outcome, Outcome::miss);
}

// The record is renewed once a second, and a list of them kept as long: neither makes a put FULL
// when there is room by now.
TEST(KvWrite, full_is_not_said_from_an_old_record) {
  World world;
  world.pass(10ms);
  world.node().announcing = false;
  NodeRecord record = world.node().record();
  const auto room = [&](std::uint64_t bytes) {
    record.free_bytes = bytes;
    world.valkey->write(node_name(NodeId(1)), bytes_of_text(encode_node_record(record)));
  };
  for (std::uint64_t i = 0; i < 3; ++i) {
    room(100);
    world.pass(1100ms);
    const Instant begun = world.clock().now();
    EXPECT_EQ(world.put(key_of(2 * i), pattern(1000, i)).outcome, Outcome::full);
    room(10000);
    EXPECT_EQ(world.put(key_of(2 * i + 1), pattern(1000, i)).outcome, Outcome::ok);
    EXPECT_LT(world.clock().now() - begun, kNodeRenew) << "or nothing was shown";
  }
}

TEST(KvWrite, a_node_that_came_is_found_at_once) {
  World world;
  world.pass(10ms);
  world.node().announcing = false;
  const auto record = encode_node_record(world.node().record());
  world.valkey->evict(node_name(NodeId(1)));
  const Instant begun = world.clock().now();
  EXPECT_EQ(world.put(key_of(1), pattern(1000, 1)).outcome, Outcome::unreachable);
  world.valkey->write(node_name(NodeId(1)), bytes_of_text(record));
  EXPECT_EQ(world.put(key_of(1), pattern(1000, 1)).outcome, Outcome::ok);
  EXPECT_LT(world.clock().now() - begun, kNodeRenew) << "or nothing was shown";
}

std::vector<NodeRecord> three_nodes() {
  std::vector<NodeRecord> nodes(3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    nodes[i].node = NodeId(i + 1);
    nodes[i].free_bytes = 1 << 20;
    nodes[i].up_seconds = 1000;
  }
  return nodes;
}

TEST(KvPlacement, spreads_evenly_and_moves_little_when_a_node_goes) {
  const auto nodes = three_nodes();
  auto fewer = nodes;
  fewer.pop_back();
  std::map<std::uint64_t, int> share;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const auto order = place(key_of(i), Length(10), nodes, 30s);
    ASSERT_EQ(order.size(), 3u);
    ++share[order[0].node.raw()];
    const auto left = place(key_of(i), Length(10), fewer, 30s);
    EXPECT_EQ(left[0].node, order[0].node == NodeId(3) ? order[1].node : order[0].node);
  }
  for (const auto& [node, count] : share) {
    EXPECT_GT(count, 850);
    EXPECT_LT(count, 1150);
  }
}

TEST(KvPlacement, a_fresh_node_gets_its_share_by_and_by) {
  auto nodes = three_nodes();
  const auto share_of_third = [&](std::uint64_t age) {
    nodes[2].up_seconds = age;
    int count = 0;
    for (std::uint64_t i = 0; i < 3000; ++i) {
      count += place(key_of(i), Length(10), nodes, 30s)[0].node == NodeId(3) ? 1 : 0;
    }
    return count;
  };
  const int fresh = share_of_third(0);
  const int half = share_of_third(15);
  const int grown = share_of_third(30);
  EXPECT_GT(fresh, 80);
  EXPECT_LT(fresh, 250);
  EXPECT_GT(half, fresh);
  EXPECT_GT(grown, half);
  EXPECT_GT(grown, 850);
}

TEST(KvPlacement, draining_and_full_nodes_are_left_out) {
  auto nodes = three_nodes();
  nodes[0].state = NodeRecord::State::draining;
  nodes[1].free_bytes = 100;
  const auto order = place(key_of(1), Length(69), nodes, 30s);
  ASSERT_EQ(order.size(), 1u);
  EXPECT_EQ(order[0].node, NodeId(3));
  EXPECT_EQ(place(key_of(1), Length(68), nodes, 30s).size(), 2u);
}

}  // namespace
}  // namespace farlift::kv::client::testing
