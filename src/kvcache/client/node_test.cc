// The client against the real node, in one process over the software provider.
#include "kvcache/node/node.h"

#include "core/base/prng.h"
#include "core/fabric/soft/soft.h"
#include "core/memory/mapping.h"
#include "kvcache/client/client.h"
#include "kvcache/client/testing/world.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <thread>

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kArena = 4u << 20;

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

class KvNodeAndClient : public ::testing::Test {
 protected:
  KvNodeAndClient()
      : links_(clock_, {}),
        valkey_(clock_, {}),
        memory_(memory::Mapping::create(Length(16u << 20), {.huge_pages = false}).value()) {
    node_transport_ = links_.open_transport("127.0.0.1");
    node_directory_ = valkey_.open_directory("n1");
    node_environment_ = environment(*node_directory_, *node_transport_);
    NodeOptions node;
    TenantOptions tenant;
    tenant.name = "t1";
    tenant.keys = ring_of(1, 0x11);
    tenant.quota = Length(8 * kArena);
    node.tenants.push_back(std::move(tenant));
    node.arena_size = Length(kArena);
    node.hash_threads = 0;
    node.grace = Duration(0);
    std::string why;
    auto made = Node::create(*node_environment_, std::move(node), &why);
    EXPECT_TRUE(made.ok()) << why;
    node_ = std::move(made).value();

    client_transport_ = links_.open_transport("c1");
    client_directory_ = valkey_.open_directory("c1");
    client_environment_ = environment(*client_directory_, *client_transport_);
    ClientOptions client;
    client.tenant = "t1";
    client.keys = ring_of(1, 0x11);
    client_ = Client::create(*client_environment_, std::move(client), &why).value();
    landing_ = client_->register_memory(memory_.bytes()).value();
    EXPECT_TRUE(run([&] { return valkey_.state().get(node_name(NodeId(1))).has_value(); }));
  }
  ~KvNodeAndClient() override {
    landing_.reset();
    client_.reset();
    node_.reset();
  }

  std::unique_ptr<Environment> environment(Directory& directory, Transport& transport) {
    auto made = std::make_unique<Environment>(Environment{
        clock_, [](std::span<std::byte> out) { secure_random(out); }, directory, transport, {}});
    Rail rail;
    rail.provider = "soft";
    rail.open_domain = [this] {
      fabric::soft::SoftOptions soft;
      soft.host_lane = false;  // both ends are one process: the sockets are the harder lane
      return fabric::soft::open_domain(soft, clock_);
    };
    made->rails.push_back(std::move(rail));
    return made;
  }

  bool run(const std::function<bool()>& so) {
    const Instant until = clock_.now() + 30s;
    while (!so()) {
      if (clock_.now() > until) return false;
      const bool moved = node_->step();
      if (!(client_ != nullptr && client_->step()) && !moved) std::this_thread::yield();
    }
    return true;
  }
  PutResult put(const Bytes& key, const Bytes& value, bool push = false,
                PutMode mode = PutMode::if_absent) {
    const auto source = memory_.bytes().last(8u << 20).first(value.size());
    std::copy(value.begin(), value.end(), source.begin());
    std::optional<PutResult> result;
    client_->put({key, source, mode, {}, push}, [&](PutResult r) { result = std::move(r); });
    EXPECT_TRUE(run([&] { return result.has_value(); }));
    return result.value_or(PutResult{});
  }
  GetResult get(const Bytes& key, std::size_t cap, ReadMode mode) {
    std::optional<GetResult> result;
    client_->get({key, memory_.bytes().first(cap), mode, 0}, [&](GetResult r) { result = r; });
    EXPECT_TRUE(run([&] { return result.has_value(); }));
    return result.value_or(GetResult{});
  }

  SystemClock clock_;
  sim::SimLinks links_;
  sim::SimValkey valkey_;
  memory::Mapping memory_;
  std::unique_ptr<Transport> node_transport_;
  std::unique_ptr<Directory> node_directory_;
  std::unique_ptr<Environment> node_environment_;
  std::unique_ptr<Node> node_;
  std::unique_ptr<Transport> client_transport_;
  std::unique_ptr<Directory> client_directory_;
  std::unique_ptr<Environment> client_environment_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<LandingMemory> landing_;
};

TEST_F(KvNodeAndClient, K030_sizes_round_trip_in_both_modes) {
  std::uint64_t number = 0;
  for (const bool push : {false, true}) {
    for (const std::uint64_t size :
         {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{31}, std::uint64_t{32},
          std::uint64_t{33}, std::uint64_t{4095}, std::uint64_t{4096}, std::uint64_t{4097},
          std::uint64_t{(1u << 20) - 1}, std::uint64_t{1u << 20}, std::uint64_t{(1u << 20) + 1},
          kArena - 4096}) {
      const Bytes value = pattern(size, ++number);
      const PutResult put_result = put(key_of(number), value, push);
      ASSERT_EQ(put_result.outcome, Outcome::ok)
          << size << ' ' << outcome_name(put_result.outcome) << ' ' << put_result.why;
      for (const ReadMode mode : {ReadMode::framed, ReadMode::payload_only}) {
        const GetResult got = get(key_of(number), size, mode);
        ASSERT_EQ(got.outcome, Outcome::ok) << size << ' ' << outcome_name(got.outcome);
        EXPECT_EQ(got.version, put_result.version);
        EXPECT_TRUE(same(memory_.bytes().first(size), value)) << size;
      }
    }
    EXPECT_EQ(put(key_of(1000), pattern(kArena - 4095, 1), push).outcome, Outcome::too_large);
  }
}

TEST_F(KvNodeAndClient, K016_the_first_of_two_puts_stays) {
  ASSERT_EQ(put(key_of(1), pattern(100, 1)).outcome, Outcome::ok);
  EXPECT_EQ(put(key_of(1), pattern(100, 2)).outcome, Outcome::exists);
  ASSERT_EQ(get(key_of(1), 100, ReadMode::framed).outcome, Outcome::ok);
  EXPECT_TRUE(same(memory_.bytes().first(100), pattern(100, 1)));
  const PutResult replaced = put(key_of(1), pattern(100, 3), false, PutMode::replace);
  ASSERT_EQ(replaced.outcome, Outcome::ok);
  EXPECT_EQ(replaced.version.rev(), 2u);
  ASSERT_EQ(get(key_of(1), 100, ReadMode::framed).outcome, Outcome::ok);
  EXPECT_TRUE(same(memory_.bytes().first(100), pattern(100, 3)));
}

TEST_F(KvNodeAndClient, K047_K049_a_removed_value_is_a_miss_and_a_rotated_arena_refuses) {
  ASSERT_EQ(put(key_of(1), pattern(5000, 1)).outcome, Outcome::ok);
  ASSERT_EQ(get(key_of(1), 5000, ReadMode::framed).outcome, Outcome::ok);
  std::optional<Outcome> removed;
  client_->remove(key_of(1), std::nullopt, [&](Client::Removed r) { removed = r.outcome; });
  ASSERT_TRUE(run([&] { return removed.has_value(); }));
  EXPECT_EQ(*removed, Outcome::ok);
  EXPECT_EQ(get(key_of(1), 5000, ReadMode::framed).outcome, Outcome::miss);
  ASSERT_EQ(put(key_of(2), pattern(5000, 2)).outcome, Outcome::ok);
  ASSERT_EQ(get(key_of(2), 5000, ReadMode::framed).outcome, Outcome::ok);  // cached now
  node_->rotate_all();
  ASSERT_TRUE(run([&] { return !valkey_.state().get(descriptor_name("t1", key_of(2))); }));
  ASSERT_TRUE(run([&] {
    const Outcome outcome = get(key_of(2), 5000, ReadMode::framed).outcome;
    EXPECT_TRUE(outcome == Outcome::ok || outcome == Outcome::miss || outcome == Outcome::access);
    return outcome != Outcome::ok;
  })) << "the arena was never closed";
}

}  // namespace
}  // namespace farlift::kv::client::testing
