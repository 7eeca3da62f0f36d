// The kvcache door over real verbs (spec kv, the cases marked HW): between two cards of this host
// that reach each other. Soft-RoCE in a throw-away VM is enough (tools/roce_tests.sh); it is
// emulated and slow, hence one node for many cases, small sizes, generous deadlines. Without such
// cards every test skips and says why.
#include "kvcache/node/testing/world.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "tests/fabric/rig.h"

namespace {

// While it is set, who turns the registration cache off talks to a wall.
std::atomic<bool> cache_forced{false};

}  // namespace

// In front of libc's.
extern "C" int setenv(const char* name, const char* value, int replace) noexcept {
  using Setenv = int (*)(const char*, const char*, int);
  static const auto real = reinterpret_cast<Setenv>(::dlsym(RTLD_NEXT, "setenv"));
  if (cache_forced && std::strncmp(name, "FI_MR_CACHE", std::strlen("FI_MR_CACHE")) == 0) return 0;
  return real(name, value, replace);
}

namespace farlift::kv {
namespace {

using namespace std::chrono_literals;
using node::testing::bytes_of;
using node::testing::pattern;
using node::testing::RawClient;
using node::testing::World;
using node::testing::WorldOptions;

WorldOptions world_of(const lane::Lane& lane) {
  WorldOptions with;
  with.open = [lane](const std::string& party) {
    return (party == "c1" ? lane.client() : lane.node()).value();
  };
  with.provider = lane.provider;
  return with;
}

NodeOptions slow_node(const World& world) {
  NodeOptions options = world.options();
  options.grace = Duration(0);
  options.operation_limit = 60s;
  options.self_test = true;
  return options;
}

// Why the cards are not there; empty: they are.
std::string absent() {
  const lane::Lane lane = lane::verbs();
  if (!lane.missing.empty() && lane::in_soft_roce_vm()) ADD_FAILURE() << lane.missing;
  return lane.missing;
}

// The exit status of a process in which libfabric caches registrations: 0, the node refused to
// start and named its self-test.
int start_with_cache() {
  ::setenv("FI_MR_CACHE_MONITOR", "memhooks", 1);
  ::setenv("FI_MR_CACHE_MAX_COUNT", "1024", 1);
  cache_forced = true;
  const lane::Lane lane = lane::verbs();
  if (!lane.missing.empty()) return 77;
  World world(world_of(lane));
  std::string why;
  const Status started = world.try_start(slow_node(world), why);
  std::fprintf(stderr, "%s\n", started.ok() ? "it started" : why.c_str());
  return !started.ok() && why.find("self-test") != std::string::npos ? 0 : 1;
}

// Suites of this name come first: this process must not have met libfabric yet, whose settings are
// read once.
TEST(KvVerbsDeathTest, K084_a_registration_cache_that_was_forced_on_refuses_the_start) {
  if (!lane::in_soft_roce_vm()) GTEST_SKIP() << "not in a Soft-RoCE VM (tools/roce_tests.sh)";
  EXPECT_EXIT(std::_Exit(start_with_cache()), ::testing::ExitedWithCode(0), "self-test");
}

// A node whose self-test proved fence_mode mr, and a client by hand.
class KvVerbs : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const lane::Lane lane = lane::verbs();
    if (!lane.missing.empty()) return;
    world_ = std::make_unique<World>(world_of(lane));
    world_->start(slow_node(*world_));
    client_ = std::make_unique<RawClient>(*world_, "c1");
    EXPECT_EQ(client_->greet(), Outcome::ok);
  }
  static void TearDownTestSuite() {
    client_.reset();
    world_.reset();
  }
  void SetUp() override {
    if (const std::string why = absent(); !why.empty()) GTEST_SKIP() << why;
    ASSERT_NE(client_, nullptr);
    if (!client_->connected()) {
      ASSERT_EQ(client_->greet(), Outcome::ok);
    }
  }
  static std::unique_ptr<World> world_;
  static std::unique_ptr<RawClient> client_;
};
std::unique_ptr<World> KvVerbs::world_;
std::unique_ptr<RawClient> KvVerbs::client_;

TEST_F(KvVerbs, the_fence_is_the_registration) {
  EXPECT_EQ(client_->welcome().fence_mode, FenceWord::mr);
  EXPECT_TRUE(client_->welcome().virtual_address);
  EXPECT_EQ(client_->welcome().rails.at(0).provider, "verbs;ofi_rxm");
}

TEST_F(KvVerbs, K023_a_write_after_seal_fails) {
  const Bytes key = bytes_of("k23"), value = pattern(20'000, 1);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(key, value.size(), id);
  ASSERT_EQ(grant.outcome, Outcome::ok);
  ASSERT_TRUE(client_->write(grant, value).ok());
  ASSERT_EQ(client_->seal(grant, id, digest::crc32c(value)).outcome, Outcome::ok);
  EXPECT_EQ(client_->write(grant, pattern(20'000, 2)).code(), Errc::access);
  EXPECT_EQ(client_->get(key), value);
}

TEST_F(KvVerbs, K033_a_grant_ends_where_the_payload_ends) {
  const Bytes before = pattern(640, 1), after = pattern(640, 2), value = pattern(640, 3);
  ASSERT_EQ(client_->put(bytes_of("before"), before).outcome, Outcome::ok);
  const PutId id = client_->new_put_id();
  const AllocReply grant = client_->alloc(bytes_of("k33"), value.size(), id);
  ASSERT_EQ(grant.outcome, Outcome::ok);
  ASSERT_EQ(client_->put(bytes_of("after"), after).outcome, Outcome::ok);
  AllocReply shifted = grant;
  shifted.payload = RemoteAddr(grant.payload.raw() - 1);
  EXPECT_EQ(client_->write(shifted, value).code(), Errc::access);
  shifted.payload = RemoteAddr(grant.payload.raw() + 1);
  EXPECT_EQ(client_->write(shifted, value).code(), Errc::access);
  ASSERT_TRUE(client_->write(grant, value).ok());
  ASSERT_EQ(client_->seal(grant, id, digest::crc32c(value)).outcome, Outcome::ok);
  EXPECT_EQ(client_->get(bytes_of("before")), before);
  EXPECT_EQ(client_->get(bytes_of("after")), after);
  EXPECT_EQ(client_->get(bytes_of("k33")), value);
}

TEST_F(KvVerbs, K085_an_arena_cannot_be_written) {
  ASSERT_EQ(client_->put(bytes_of("k85"), pattern(640, 1)).outcome, Outcome::ok);
  const Descriptor d = *world_->stored_descriptor("t1", bytes_of("k85"));
  Bytes junk = pattern(640, 2);
  EXPECT_EQ(client_->move(fabric::OpKind::write, d.rkeys[0], d.location.addr, junk).code(),
            Errc::access);
  EXPECT_EQ(client_->get(bytes_of("k85")), pattern(640, 1));
}

TEST_F(KvVerbs, K049_a_rotated_arena_refuses_and_is_refilled) {
  const Bytes value = pattern(30'000, 1);
  ASSERT_EQ(client_->put(bytes_of("k49"), value).outcome, Outcome::ok);
  const Descriptor held = *world_->stored_descriptor("t1", bytes_of("k49"));
  EXPECT_EQ(client_->read(held).value(), value);
  world_->node().rotate_all();
  ASSERT_TRUE(world_->until([&] { return world_->see().counter("arenas_rotating") == 0; }));
  EXPECT_TRUE(client_->connected()) << "no endpoint had to be closed";
  ASSERT_EQ(client_->put(bytes_of("fill"), pattern(200'000, 2)).outcome, Outcome::ok);
  EXPECT_EQ(client_->read(held).code(), Errc::access);
  EXPECT_FALSE(client_->get(bytes_of("k49")).has_value());
  EXPECT_EQ(client_->get(bytes_of("fill")), pattern(200'000, 2));
  EXPECT_EQ(world_->see().counter("endpoint_fences"), 0u);
}

// The real client, by pull and by push, and what it does when it is refused.
TEST(KvVerbsClient, K030_K049_puts_gets_and_a_rotation) {
  if (const std::string why = absent(); !why.empty()) GTEST_SKIP() << why;
  rig::RigOptions options;
  options.lane = lane::verbs();
  options.arena = Length(1u << 20);
  options.memory = 1u << 20;
  options.node = [](NodeOptions& node) {
    node.self_test = false;  // once is enough in an emulated machine
    node.operation_limit = 60s;
  };
  options.client = [](ClientOptions& client) {
    client.operation_limit = 60s;
    client.control_timeout = 60s;
  };
  rig::Rig rig(std::move(options));
  rig::User& user = rig.user();
  std::uint64_t number = 0;
  for (const bool push : {false, true}) {
    for (const std::size_t size : {0u, 1u, 33u, 4097u, 100'001u}) {
      const Bytes key = rig::key_of("k" + std::to_string(++number));
      const Bytes value = rig::pattern(size, number);
      const PutResult put = user.put(key, value, PutMode::if_absent, push);
      ASSERT_EQ(put.outcome, Outcome::ok) << size << ' ' << outcome_name(put.outcome) << put.why;
      for (const ReadMode mode : {ReadMode::framed, ReadMode::payload_only}) {
        ASSERT_EQ(user.get(key, size, mode).outcome, Outcome::ok) << size;
        EXPECT_TRUE(rig::same(user.dest(size), value)) << size;
      }
    }
  }
  const Bytes last = rig::key_of("k" + std::to_string(number));
  ASSERT_TRUE(rig.rotate());
  const Outcome held = user.get(last, 100'001).outcome;  // from its cache
  EXPECT_TRUE(held == Outcome::miss || held == Outcome::access) << outcome_name(held);
  const Bytes value = rig::pattern(50'000, 99);
  ASSERT_EQ(user.put(rig::key_of("again"), value).outcome, Outcome::ok);
  ASSERT_EQ(user.get(rig::key_of("again"), value.size()).outcome, Outcome::ok);
  EXPECT_TRUE(rig::same(user.dest(value.size()), value));
}

}  // namespace
}  // namespace farlift::kv
