// Many clients against the real node: what holds when a hundred of them want the same keys at once
// (spec kv 7, 8.2, 9). One simulated world, one thread, a manual clock.
#include "core/base/prng.h"
#include "core/fabric/sim/sim.h"
#include "kvcache/client/client.h"
#include "kvcache/client/testing/world.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"
#include "kvcache/node/node.h"
#include "kvcache/node/node_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "tests/support/long_run.h"

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;
using farlift::testing::repeats;

constexpr std::size_t kValueMax = 8192;

// Says of itself who wrote it, and every byte depends on that.
Bytes value_of(std::uint64_t writer, std::uint64_t number) {
  Bytes value = pattern(200 + (writer * 37 + number * 101) % 3000, writer << 20 | number);
  std::memcpy(value.data(), &writer, sizeof writer);
  std::memcpy(value.data() + sizeof writer, &number, sizeof number);
  return value;
}
bool is_a_value(std::span<const std::byte> bytes) {
  std::uint64_t writer = 0, number = 0;
  if (bytes.size() < 16) return false;
  std::memcpy(&writer, bytes.data(), sizeof writer);
  std::memcpy(&number, bytes.data() + sizeof writer, sizeof number);
  return std::ranges::equal(bytes, value_of(writer, number));
}

struct Member {
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<Environment> environment;
  Bytes memory = Bytes(2 * kValueMax);
  std::unique_ptr<Client> client;
  std::unique_ptr<LandingMemory> landing;

  std::span<std::byte> source(const Bytes& value) {
    std::copy(value.begin(), value.end(), memory.begin());
    return std::span(memory).first(value.size());
  }
  std::span<std::byte> dest() { return std::span(memory).last(kValueMax); }
};

class KvCrowd : public ::testing::Test {
 protected:
  ~KvCrowd() override {
    for (Member& member : members_) {
      member.landing.reset();
      member.client.reset();
    }
  }

  Environment environment(const std::string& name, Directory& directory, Transport& transport) {
    Environment made{clock_,
                     [this](std::span<std::byte> out) {
                       for (std::byte& b : out)
                         b = static_cast<std::byte>(prng_.next() >> 24 & 0xFF);
                     },
                     directory,
                     transport,
                     {}};
    Rail rail;
    rail.provider = "sim";
    rail.open_domain = [this, name]() -> Result<std::unique_ptr<fabric::Domain>> {
      return network_.open_domain(name);
    };
    made.rails.push_back(std::move(rail));
    return made;
  }

  void start(std::size_t clients, Length arena, Length quota) {
    clock_.advance(1s);
    node_transport_ = links_.open_transport("n1");
    node_directory_ = valkey_.open_directory("n1");
    node_environment_ =
        std::make_unique<Environment>(environment("n1", *node_directory_, *node_transport_));
    NodeOptions options;
    options.listen_ip = "n1";
    options.tenants.push_back({"t1", ring_of(1, 0x11), quota});
    options.arena_size = arena;
    options.hash_threads = 0;
    options.self_test = false;
    options.grace = 500ms;
    std::string why;
    auto node = Node::create(*node_environment_, std::move(options), &why);
    ASSERT_TRUE(node.ok()) << why;
    node_ = std::move(node).value();
    members_.resize(clients);
    for (std::size_t i = 0; i < clients; ++i) {
      Member& member = members_[i];
      const std::string name = "c" + std::to_string(i);
      member.transport = links_.open_transport(name);
      member.directory = valkey_.open_directory(name);
      member.environment =
          std::make_unique<Environment>(environment(name, *member.directory, *member.transport));
      ClientOptions client;
      client.tenant = "t1";
      client.keys = ring_of(1, 0x11);
      client.cache_entries_max = 0;  // every read asks
      member.client = Client::create(*member.environment, std::move(client), &why).value();
      member.landing = member.client->register_memory(member.memory).value();
    }
    ASSERT_TRUE(until([&] { return valkey_.state().get(node_name(NodeId(1))).has_value(); }));
  }

  // In the world's time.
  void after(Duration time, std::function<void()> call) {
    later_.emplace(clock_.now() + time, std::move(call));
  }

  void turn() {
    bool any = valkey_.step();
    while (!later_.empty() && later_.begin()->first <= clock_.now()) {
      const auto call = later_.extract(later_.begin());
      call.mapped()();
      any = true;
    }
    any = node_->step() || any;
    for (Member& member : members_) any = member.client->step() || any;
    any = (network_.moving() > 0 && network_.step()) || any;
    if (any) return;
    Instant next = std::min({links_.next_due(), valkey_.next_due(), node_->next_deadline(),
                             clock_.now() + Duration(10ms)});
    for (Member& member : members_) next = std::min(next, member.client->next_deadline());
    if (!later_.empty()) next = std::min(next, later_.begin()->first);
    clock_.advance(std::max<Duration>(next - clock_.now(), 1ms));  // events of many at once
  }
  bool until(const std::function<bool()>& so, Duration limit = 600s) {
    const Instant end = clock_.now() + limit;
    while (!so()) {
      if (clock_.now() >= end) return false;
      turn();
    }
    return true;
  }
  std::uint64_t count(const char* name) { return node::probe(*node_).counter(name); }
  Version stored(const Bytes& key) {
    const auto bytes = valkey_.state().get(descriptor_name("t1", key));
    return bytes ? decode_descriptor(*bytes).value().version : Version();
  }

  ManualClock clock_;
  fabric::sim::SimNetwork network_{clock_, {.seed = 5, .faults = {}}};
  sim::SimLinks links_{clock_, {.seed = 5, .faults = {}}};
  sim::SimValkey valkey_{clock_, {.seed = 5, .faults = {}}};
  Prng prng_{5};
  std::multimap<Instant, std::function<void()>> later_;
  std::unique_ptr<Transport> node_transport_;
  std::unique_ptr<Directory> node_directory_;
  std::unique_ptr<Environment> node_environment_;
  std::unique_ptr<Node> node_;
  std::vector<Member> members_;
};

TEST_F(KvCrowd, K018_a_hundred_writers_and_a_hundred_readers_of_one_key) {
  constexpr std::size_t kWriters = 100, kReaders = 100;
  const std::uint64_t puts_each = repeats<std::uint64_t>(2, 40);
  start(kWriters + kReaders, Length(4u << 20), Length(64u << 20));
  const Bytes key = key_of(1);
  std::set<std::uint32_t> revs;  // that somebody was given
  std::size_t writing = kWriters, reading = kReaders;
  std::function<void(std::size_t, std::uint64_t)> write = [&](std::size_t w, std::uint64_t number) {
    if (number == puts_each) {
      --writing;
      return;
    }
    members_[w].client->put(
        {key, members_[w].source(value_of(w, number)), PutMode::replace, {}},
        [&, w, number](const PutResult& put) {
          // Eight tries, then the key is too contended.
          EXPECT_TRUE(put.outcome == Outcome::ok || put.outcome == Outcome::conflict)
              << outcome_name(put.outcome);
          if (put.outcome == Outcome::ok) {
            EXPECT_TRUE(revs.insert(put.version.rev()).second) << "given twice";
          }
          write(w, number + 1);
        });
  };
  std::uint64_t reads = 0;
  std::function<void(std::size_t, std::uint32_t)> read = [&](std::size_t r, std::uint32_t seen) {
    Member& member = members_[r];
    member.client->get(
        {key, member.dest(), ReadMode::framed, 0}, [&, r, seen](const GetResult& got) {
          if (got.outcome == Outcome::ok) {
            ++reads;
            EXPECT_TRUE(is_a_value(members_[r].dest().first(got.length.raw())));
            EXPECT_GE(got.version.rev(), seen) << "went back";
          } else {
            EXPECT_EQ(got.outcome, Outcome::miss);
            EXPECT_EQ(seen, 0u) << "was there before";
          }
          const std::uint32_t now = got.outcome == Outcome::ok ? got.version.rev() : seen;
          if (writing > 0) {
            read(r, now);
          } else {
            --reading;
          }
        });
  };
  for (std::size_t w = 0; w < kWriters; ++w) write(w, 0);
  for (std::size_t r = 0; r < kReaders; ++r) read(kWriters + r, 0);
  ASSERT_TRUE(until([&] { return writing == 0 && reading == 0; }));
  EXPECT_GE(revs.size(), puts_each);
  EXPECT_GT(reads, kReaders);
  EXPECT_EQ(stored(key).rev(), *revs.rbegin()) << "the last one given is the one that stands";
  EXPECT_EQ(*revs.begin(), 1u);
  EXPECT_EQ(*revs.rbegin(), revs.size()) << "one after the other, none left out";
  EXPECT_EQ(count("slots_published"), 1u);
  EXPECT_EQ(count("slots_reserved") + count("slots_sealed"), 0u);
}

// Hot values are read and overwritten while their arenas are rotated again and again. Every read
// gets what was committed, or (where no room was left to move it) nothing; what the manifest calls
// published is what the directory names, so that no purge took a moved descriptor with it.
TEST_F(KvCrowd, K057_values_move_while_they_are_read_and_overwritten) {
  constexpr std::size_t kWriters = 2, kReaders = 4, kKeys = 24;
  start(kWriters + kReaders, Length(128u << 10), Length(1u << 20));
  std::map<Bytes, std::set<Bytes>> given;  // committed, or on its way to be
  bool stop = false;
  std::size_t busy = kWriters + kReaders;
  std::uint64_t numbers = 0, reads = 0, misses = 0;
  for (std::uint64_t k = 0; k < kKeys; ++k) {
    const Bytes value = value_of(100, k);
    given[key_of(k)].insert(value);
    std::optional<Outcome> put;
    members_[0].client->put({key_of(k), members_[0].source(value), PutMode::if_absent, {}},
                            [&](const PutResult& result) { put = result.outcome; });
    ASSERT_TRUE(until([&] { return put.has_value(); }));
    ASSERT_EQ(*put, Outcome::ok);
  }
  std::function<void(std::size_t)> write = [&](std::size_t w) {
    if (stop) {
      --busy;
      return;
    }
    const Bytes key = key_of(prng_.below(prng_.below(50) == 0 ? kKeys : kKeys / 2));  // some last
    const Bytes value = value_of(w, ++numbers);
    given[key].insert(value);
    members_[w].client->put(
        {key, members_[w].source(value), PutMode::replace, {}}, [&, w](const PutResult& put) {
          EXPECT_TRUE(put.outcome == Outcome::ok || put.outcome == Outcome::full ||
                      put.outcome == Outcome::conflict)
              << outcome_name(put.outcome);
          after(10ms, [&write, w] { write(w); });
        });
  };
  std::function<void(std::size_t)> read = [&](std::size_t r) {
    if (stop) {
      --busy;
      return;
    }
    const Bytes key = key_of(prng_.below(kKeys));
    Member& member = members_[r];
    member.client->get({key, member.dest(), ReadMode::framed, 0},
                       [&, r, key](const GetResult& got) {
                         if (got.outcome == Outcome::ok) {
                           const auto bytes = members_[r].dest().first(got.length.raw());
                           EXPECT_TRUE(given[key].contains(Bytes(bytes.begin(), bytes.end())));
                           ++reads;
                         } else {
                           EXPECT_EQ(got.outcome, Outcome::miss) << outcome_name(got.outcome);
                           ++misses;
                         }
                         after(4ms, [&read, r] { read(r); });
                       });
  };
  for (std::size_t w = 0; w < kWriters; ++w) write(w);
  for (std::size_t r = 0; r < kReaders; ++r) read(kWriters + r);
  for (std::uint32_t i = 0; i < repeats<std::uint32_t>(12, 400); ++i) {
    const Instant end = clock_.now() + 1200ms;
    ASSERT_TRUE(until([&] { return clock_.now() >= end; }));
    // Where one of those lies that last: it has to move.
    const auto lasting = valkey_.state().get(descriptor_name("t1", key_of(kKeys - 1 - i % 8)));
    if (lasting) (void)node_->rotate(decode_descriptor(*lasting).value().location.arena);
  }
  stop = true;
  ASSERT_TRUE(until([&] { return busy == 0; }));
  ASSERT_TRUE(until([&] { return count("arenas_rotating") == 0 && count("purges_waiting") == 0; }));
  EXPECT_GT(count("migrated"), 5u);
  EXPECT_GT(reads, 1000u);
  std::uint64_t published = 0;
  for (const node::ArenaView& arena : node::probe(*node_).arenas()) {
    for (const node::SlotView& slot : node::probe(*node_).slots(arena.id)) {
      if (slot.state != node::SlotState::published) continue;
      ++published;
      const auto bytes = valkey_.state().get(descriptor_name("t1", slot.key));
      ASSERT_TRUE(bytes.has_value()) << "a purge took a descriptor that had moved";
      EXPECT_EQ(decode_descriptor(*bytes).value().location, slot.location);
    }
  }
  EXPECT_EQ(published, valkey_.state().count_with_prefix("okv:d:t1:") / 2);
  EXPECT_LT(misses, reads);
}

}  // namespace
}  // namespace farlift::kv::client::testing
