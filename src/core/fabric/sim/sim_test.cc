// The simulated fabric itself: the contract of fabric.h, the faults that can be asked for, and that
// a seed decides everything.
#include "core/fabric/sim/sim.h"

#include "core/base/prng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace farlift::fabric::sim {
namespace {

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.below(256));
  return bytes;
}

template <class Change>
SimOptions with(Change change) {
  SimOptions options;
  change(options);
  return options;
}

// Two hosts, one link.
struct World {
  explicit World(const SimOptions& options) : network(clock, options) {
    server = network.open_domain("server");
    client = network.open_domain("client");
    target = server->open_target(TargetOptions{}).value();
    initiator = client->open_initiator(InitiatorOptions{}).value();
    peer = initiator->add_peer(target->address()).value();
  }

  std::unique_ptr<Registration> lend(std::span<std::byte> bytes, Access access) {
    return server->register_memory(MemoryRef{bytes, -1, 0}, access).value();
  }

  Status post(OpKind kind, const Registration& remote, std::span<std::byte> local,
              std::uint64_t context, Offset from = Offset(0)) {
    Operation op;
    op.kind = kind;
    op.peer = peer;
    op.key = remote.key();
    op.addr = remote.addr() + from;
    op.local = local;
    op.context = context;
    return initiator->post(op);
  }

  // Polls until nothing is in flight, or nothing can happen any more.
  std::map<std::uint64_t, Status> drain() {
    std::map<std::uint64_t, Status> got;
    for (int idle = 0; initiator->in_flight() > 0 && idle < 2;) {
      Completion out[4];
      const std::size_t n = initiator->poll(out);
      for (std::size_t i = 0; i < n; ++i) {
        EXPECT_TRUE(got.emplace(out[i].context, out[i].status).second);
      }
      const std::size_t before = network.trace().size();
      if (n == 0) initiator->wait(1);
      idle = n == 0 && network.trace().size() == before ? idle + 1 : 0;
    }
    return got;
  }

  ManualClock clock;
  SimNetwork network;
  std::unique_ptr<Domain> server;
  std::unique_ptr<Domain> client;
  std::unique_ptr<TargetEndpoint> target;
  std::unique_ptr<Initiator> initiator;
  PeerId peer;
};

// Steps until some bytes of the operation moved.
void step_into_the_middle(World& world) {
  const auto moved = [&] {
    return std::ranges::any_of(world.network.trace(),
                               [](const SimEvent& e) { return e.what == SimEvent::What::move; });
  };
  while (!moved()) ASSERT_TRUE(world.network.step());
}

TEST(Sim, writes_and_reads_move_the_right_bytes) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    World world(with([&](SimOptions& o) {
      o.seed = seed;
      o.step_bytes_max = 1000;
    }));
    auto memory = pattern(20'000, 1);
    auto expected = memory;
    auto local = pattern(10'000, 2);
    auto lent = world.lend(memory, Access::remote_read_write);
    ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1, Offset(5'000)).ok());
    EXPECT_TRUE(world.drain().at(1).ok());
    std::copy(local.begin(), local.end(), expected.begin() + 5'000);
    EXPECT_EQ(memory, expected);
    std::vector<std::byte> back(20'000);
    ASSERT_TRUE(world.post(OpKind::read, *lent, back, 2).ok());
    EXPECT_TRUE(world.drain().at(2).ok());
    EXPECT_EQ(back, expected);
    EXPECT_EQ(world.network.moving(), 0u);
  }
}

std::vector<SimEvent> busy_trace(std::uint64_t seed) {
  SimOptions options = with([&](SimOptions& o) {
    o.seed = seed;
    o.step_bytes_max = 512;
  });
  options.faults = {.connection_lost = 50, .not_quiet = 50, .spurious_error = 50};
  World world(options);
  std::vector<std::byte> memory(64 << 10);
  auto local = pattern(64 << 10, 3);
  auto lent = world.lend(memory, Access::remote_read_write);
  for (std::uint64_t i = 0; i < 32; ++i) {
    EXPECT_TRUE(world
                    .post(i % 3 == 0 ? OpKind::read : OpKind::write, *lent,
                          std::span(local).subspan(i * 2048, 2048), i, Offset(i * 2048))
                    .ok());
  }
  world.drain();
  while (world.network.step()) {
  }
  return world.network.trace();
}

TEST(Sim, the_same_seed_gives_the_same_trace) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto trace = busy_trace(seed);
    EXPECT_GT(trace.size(), 100u);
    EXPECT_EQ(trace, busy_trace(seed));
    EXPECT_NE(trace, busy_trace(seed + 1000));
  }
}

TEST(Sim, bytes_land_in_any_order_unless_asked_otherwise) {
  const auto offsets = [](bool in_order) {
    World world(with([&](SimOptions& o) {
      o.seed = 5;
      o.in_order = in_order;
      o.step_bytes_max = 100;
    }));
    std::vector<std::byte> memory(10'000);
    auto local = pattern(10'000, 4);
    auto lent = world.lend(memory, Access::remote_write);
    EXPECT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
    world.drain();
    std::vector<std::uint64_t> at;
    for (const SimEvent& e : world.network.trace()) {
      if (e.what == SimEvent::What::move) at.push_back(e.offset);
    }
    return at;
  };
  EXPECT_FALSE(std::ranges::is_sorted(offsets(false)));
  EXPECT_TRUE(std::ranges::is_sorted(offsets(true)));
}

TEST(Sim, rights_ranges_and_keys_are_enforced) {
  World world(with([&](SimOptions& o) {
    o.seed = 6;
    o.refusal_flushes = false;
  }));
  std::vector<std::byte> memory(1000);
  auto local = pattern(1000, 5);
  const auto untouched = memory;
  auto read_only = world.lend(memory, Access::remote_read);
  ASSERT_TRUE(world.post(OpKind::write, *read_only, local, 1).ok());
  EXPECT_EQ(world.drain().at(1).code(), Errc::access);
  auto lent = world.lend(memory, Access::remote_write);
  std::vector<std::byte> sink(1000);
  ASSERT_TRUE(world.post(OpKind::read, *lent, sink, 2).ok());
  EXPECT_EQ(world.drain().at(2).code(), Errc::access);
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 3, Offset(1)).ok());
  EXPECT_EQ(world.drain().at(3).code(), Errc::access);
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 4, Offset(UINT64_MAX)).ok());
  EXPECT_EQ(world.drain().at(4).code(), Errc::access);
  ASSERT_TRUE(lent->close().ok());
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 5).ok());
  EXPECT_EQ(world.drain().at(5).code(), Errc::access);
  EXPECT_EQ(memory, untouched);
  EXPECT_EQ(sink, untouched);
}

TEST(Sim, a_refusal_flushes_its_neighbours_but_not_other_links) {
  World world(with([&](SimOptions& o) { o.seed = 7; }));
  std::vector<std::byte> memory(100'000);
  auto local = pattern(100'000, 6);
  auto lent = world.lend(memory, Access::remote_write);
  auto refused = world.lend(memory, Access::remote_read);
  auto other = world.client->open_initiator(InitiatorOptions{}).value();
  Operation op;
  op.peer = other->add_peer(world.target->address()).value();
  op.key = lent->key();
  op.addr = lent->addr();
  op.local = local;
  ASSERT_TRUE(other->post(op).ok());
  for (std::uint64_t i = 0; i < 8; ++i) {
    ASSERT_TRUE(world.post(OpKind::write, i == 3 ? *refused : *lent, local, i).ok());
  }
  const auto got = world.drain();
  EXPECT_EQ(got.at(3).code(), Errc::access);
  int flushed = 0;
  for (const auto& [context, status] : got) {
    if (status.ok() || context == 3) continue;
    EXPECT_EQ(status.code(), Errc::flushed);
    ++flushed;
  }
  EXPECT_GT(flushed, 0);
  Completion out;
  while (other->poll(std::span(&out, 1)) == 0) {
  }
  EXPECT_TRUE(out.status.ok());
}

TEST(Sim, closing_a_registration_fences_only_in_mode_mr) {
  for (const FenceMode mode : {FenceMode::mr, FenceMode::endpoint}) {
    World world(with([&](SimOptions& o) {
      o.seed = 8;
      o.fence_mode = mode;
      o.step_bytes_max = 100;
    }));
    std::vector<std::byte> memory(10'000);
    auto local = pattern(10'000, 7);
    auto lent = world.lend(memory, Access::remote_write);
    ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
    step_into_the_middle(world);
    ASSERT_TRUE(lent->close().ok());
    const auto at_close = memory;
    const auto got = world.drain();
    if (mode == FenceMode::mr) {
      EXPECT_EQ(memory, at_close);
      EXPECT_EQ(got.at(1).code(), Errc::access);
    } else {
      EXPECT_EQ(memory, local);  // late, and reported as a success
      EXPECT_TRUE(got.at(1).ok());
    }
  }
}

TEST(Sim, closing_the_endpoint_fences_in_every_mode) {
  for (const FenceMode mode : {FenceMode::mr, FenceMode::endpoint}) {
    World world(with([&](SimOptions& o) {
      o.seed = 9;
      o.fence_mode = mode;
      o.step_bytes_max = 100;
    }));
    std::vector<std::byte> memory(10'000);
    auto local = pattern(10'000, 8);
    auto lent = world.lend(memory, Access::remote_write);
    ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
    step_into_the_middle(world);
    ASSERT_TRUE(world.target->close().ok());
    const auto at_close = memory;
    EXPECT_EQ(world.drain().at(1).code(), Errc::connection_lost);
    while (world.network.step()) {
    }
    EXPECT_EQ(memory, at_close);
    EXPECT_EQ(world.target->progress(0).code(), Errc::closed);
  }
}

TEST(Sim, an_error_that_is_not_quiet_moves_on_until_the_initiator_closes) {
  SimOptions options = with([&](SimOptions& o) {
    o.seed = 10;
    o.step_bytes_max = 100;
  });
  options.faults.not_quiet = 1000;
  World world(options);
  std::vector<std::byte> memory(10'000);
  auto local = pattern(10'000, 9);
  auto lent = world.lend(memory, Access::remote_write);
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
  const auto got = world.drain();
  ASSERT_FALSE(got.at(1).ok());
  EXPECT_FALSE(got.at(1).error().quiet);
  EXPECT_EQ(world.initiator->in_flight(), 0u);
  ASSERT_EQ(world.network.moving(), 1u);
  const auto before = memory;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(world.network.step());
  EXPECT_NE(memory, before);  // the planted trouble is there
  world.initiator->close();
  const auto fenced = memory;
  EXPECT_EQ(world.network.moving(), 0u);
  EXPECT_FALSE(world.network.step());
  EXPECT_EQ(memory, fenced);
}

TEST(Sim, keys_repeat_only_when_asked) {
  for (const std::uint32_t chance : {0u, 1000u}) {
    SimOptions options = with([&](SimOptions& o) { o.seed = 11; });
    options.faults.repeated_key = chance;
    World world(options);
    std::vector<std::byte> memory(64);
    std::vector<RKey> seen;
    int repeated = 0;
    for (int i = 0; i < 20; ++i) {
      auto lent = world.lend(memory, Access::remote_read);
      repeated += std::ranges::find(seen, lent->key()) != seen.end();
      seen.push_back(lent->key());
    }
    EXPECT_EQ(repeated > 0, chance > 0);
  }
}

TEST(Sim, abort_stops_the_bytes_and_says_so) {
  World world(with([&](SimOptions& o) {
    o.seed = 12;
    o.step_bytes_max = 100;
  }));
  auto memory = pattern(10'000, 10);
  std::vector<std::byte> local(10'000);
  auto lent = world.lend(memory, Access::remote_read);
  ASSERT_TRUE(world.post(OpKind::read, *lent, local, 1).ok());
  step_into_the_middle(world);
  world.initiator->abort(world.peer);
  const auto at_abort = local;
  const auto got = world.drain();
  EXPECT_EQ(got.at(1).code(), Errc::aborted);
  EXPECT_TRUE(got.at(1).error().quiet);
  EXPECT_EQ(local, at_abort);
}

TEST(Sim, a_stopped_target_answers_when_it_goes_on) {
  World world(with([&](SimOptions& o) { o.seed = 13; }));
  std::vector<std::byte> memory(1000);
  auto local = pattern(1000, 11);
  auto lent = world.lend(memory, Access::remote_write);
  world.network.stop(world.target->address(), true);
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
  EXPECT_TRUE(world.drain().empty());
  EXPECT_EQ(world.initiator->in_flight(), 1u);
  world.network.stop(world.target->address(), false);
  EXPECT_TRUE(world.drain().at(1).ok());
  EXPECT_EQ(memory, local);
}

TEST(Sim, an_unreachable_peer_ends_at_the_connect_deadline) {
  World world(with([&](SimOptions& o) { o.seed = 14; }));
  std::vector<std::byte> memory(64);
  std::vector<std::byte> local(64);
  auto lent = world.lend(memory, Access::remote_write);
  ASSERT_TRUE(world.target->close().ok());
  const Instant start = world.clock.now();
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
  Completion out;
  while (world.initiator->poll(std::span(&out, 1)) == 0)
    ASSERT_LT(world.clock.now() - start, std::chrono::seconds(10));
  EXPECT_EQ(out.status.code(), Errc::unreachable);
  EXPECT_GE(world.clock.now() - start, InitiatorOptions{}.connect_deadline);
}

TEST(Sim, a_dropped_connection_ends_what_is_on_it) {
  World world(with([&](SimOptions& o) {
    o.seed = 15;
    o.step_bytes_max = 100;
  }));
  std::vector<std::byte> memory(10'000);
  auto local = pattern(10'000, 12);
  auto lent = world.lend(memory, Access::remote_write);
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
  step_into_the_middle(world);
  world.network.drop(world.target->address());
  EXPECT_EQ(world.drain().at(1).code(), Errc::connection_lost);
  ASSERT_TRUE(world.post(OpKind::write, *lent, local, 2).ok());
  EXPECT_TRUE(world.drain().at(2).ok());
}

TEST(Sim, limits_and_addresses) {
  World world(with([&](SimOptions& o) {
    o.seed = 16;
    o.in_flight_max = 2;
  }));
  std::vector<std::byte> memory(64);
  std::vector<std::byte> local(64);
  auto lent = world.lend(memory, Access::remote_write);
  EXPECT_TRUE(world.post(OpKind::write, *lent, local, 1).ok());
  EXPECT_TRUE(world.post(OpKind::write, *lent, local, 2).ok());
  EXPECT_EQ(world.post(OpKind::write, *lent, local, 3).code(), Errc::again);
  EXPECT_EQ(world.post(OpKind::write, *lent, {}, 4).code(), Errc::invalid_argument);
  world.drain();
  EXPECT_EQ(world.initiator->add_peer(world.target->address()).value(), world.peer);
  world.initiator->remove_peer(world.peer);
  EXPECT_TRUE(world.post(OpKind::write, *lent, local, 5).ok());
  world.drain();
  world.initiator->remove_peer(world.peer);
  EXPECT_EQ(world.post(OpKind::write, *lent, local, 6).code(), Errc::invalid_argument);
  const std::byte three[3] = {};
  EXPECT_EQ(world.client->admit_peer(Address::from_bytes(three).value()).code(), Errc::unsupported);
  const std::byte zeros[16] = {std::byte{2}};
  EXPECT_EQ(world.client->admit_peer(Address::from_bytes(zeros).value()).code(), Errc::permission);
}

}  // namespace
}  // namespace farlift::fabric::sim
