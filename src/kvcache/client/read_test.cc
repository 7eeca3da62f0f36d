// The read path: resolve, verify, bounds, read, validate, cache (spec kv 9).
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

#include <sys/mman.h>
#include <unistd.h>

namespace farlift::kv::client::testing {
namespace {

using namespace std::chrono_literals;

const Version kFirst(1, 5);

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

constexpr ReadMode kModes[] = {ReadMode::framed, ReadMode::payload_only};

TEST(KvRead, a_published_value_is_read_in_both_modes) {
  World world;
  const Bytes value = pattern(10000, 1);
  world.node().publish(key_of(1), value, kFirst);
  for (const ReadMode mode : kModes) {
    const GetResult got = world.get(key_of(1), world.dest(20000), mode);
    ASSERT_EQ(got.outcome, Outcome::ok);
    EXPECT_EQ(got.length.raw(), value.size());
    EXPECT_EQ(got.version, kFirst);
    EXPECT_TRUE(same(world.dest(value.size()), value));
  }
  EXPECT_EQ(world.node().seen.hellos, 1u);
}

TEST(KvRead, an_absent_key_is_a_miss_and_nothing_is_posted) {
  World world;
  EXPECT_EQ(world.get(key_of(1), world.dest(10)).outcome, Outcome::miss);
  EXPECT_EQ(world.posts(), 0u);
}

TEST(KvRead, K013_keys_of_any_bytes_are_read_and_others_refused) {
  World world;
  Bytes all(256);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::byte>(i);
  const std::vector<Bytes> good = {Bytes(1),
                                   Bytes(1024, std::byte{'x'}),
                                   all,
                                   bytes_of_text("{}"),
                                   bytes_of_text("}{"),
                                   bytes_of_text("a{b}c")};
  for (std::size_t i = 0; i < good.size(); ++i) {
    const Bytes value = pattern(100 + i, i);
    ASSERT_EQ(world.put(good[i], value).outcome, Outcome::ok);
    ASSERT_EQ(world.get(good[i], world.dest(200)).outcome, Outcome::ok);
    EXPECT_TRUE(same(world.dest(value.size()), value));
  }
  for (const Bytes& bad : {Bytes(), Bytes(1025)}) {
    EXPECT_EQ(world.get(bad, world.dest(10)).outcome, Outcome::bad_arg);
    EXPECT_EQ(world.put(bad, Bytes(3)).outcome, Outcome::bad_arg);
    EXPECT_EQ(world.remove(bad), Outcome::bad_arg);
    EXPECT_EQ(world.exists({bad}), std::vector<bool>{false});
  }
}

TEST(KvRead, K014_keys_that_differ_by_encoding_only_are_independent) {
  World world;
  ASSERT_EQ(world.put(bytes_of_text("a%20b"), bytes_of_text("one")).outcome, Outcome::ok);
  ASSERT_EQ(world.put(bytes_of_text("a b"), bytes_of_text("two")).outcome, Outcome::ok);
  ASSERT_EQ(world.get(bytes_of_text("a%20b"), world.dest(3)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(3), bytes_of_text("one")));
  ASSERT_EQ(world.get(bytes_of_text("a b"), world.dest(3)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(3), bytes_of_text("two")));
}

TEST(KvRead, K034_each_corrupt_header_byte_is_named_by_its_field) {
  World world;
  const Bytes value = pattern(5000, 3);
  const Stored stored = world.node().publish(key_of(1), value, kFirst);
  const auto expected = [](std::size_t at) {
    return at < 4    ? Outcome::bad_magic
           : at < 8  ? Outcome::bad_crc
           : at < 16 ? Outcome::bad_key
           : at < 24 ? Outcome::bad_version
                     : Outcome::bad_length;
  };
  for (std::size_t at = 0; at < kHeaderBytes; ++at) {
    world.node().slot(stored.descriptor)[at] ^= std::byte{0x40};
    const std::uint64_t before = world.posts();
    EXPECT_EQ(world.get(key_of(1), world.dest(5000)).outcome, expected(at)) << at;
    EXPECT_EQ(world.posts() - before, 2u) << "one retry";
    world.node().slot(stored.descriptor)[at] ^= std::byte{0x40};
  }
  EXPECT_EQ(world.get(key_of(1), world.dest(5000)).outcome, Outcome::ok);
}

TEST(KvRead, K035_a_corrupt_payload_bit_is_bad_crc_in_both_modes) {
  World world;
  const Stored stored = world.node().publish(key_of(1), pattern(9001, 4), kFirst);
  for (const std::size_t at : {std::size_t{0}, std::size_t{4500}, std::size_t{9000}}) {
    world.node().slot(stored.descriptor)[kHeaderBytes + at] ^= std::byte{1};
    for (const ReadMode mode : kModes) {
      EXPECT_EQ(world.get(key_of(1), world.dest(9001), mode).outcome, Outcome::bad_crc) << at;
    }
    world.node().slot(stored.descriptor)[kHeaderBytes + at] ^= std::byte{1};
  }
}

// Each would be checked as it lands, and then the other would land upon it.
TEST(KvRead, destinations_that_overlap_are_refused_before_a_byte_moves) {
  World world;
  std::vector<Bytes> values;
  for (std::uint64_t i = 0; i < 6; ++i) {
    values.push_back(pattern(1000, 10 + i));
    world.node().publish(key_of(i), values.back(), Version(1, static_cast<std::uint32_t>(5 + i)));
  }
  const auto results = world.mget({{key_of(0), world.dest(1000, 0)},
                                   {key_of(1), world.dest(1000, 0)},     // the same
                                   {key_of(2), world.dest(1000, 999)},   // its last byte
                                   {key_of(3), world.dest(1000, 1000)},  // beside it
                                   {key_of(4), world.dest(3000, 1500)},  // into that
                                   {key_of(5), world.dest(1000, 2000)}});
  for (const std::size_t bad : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
    EXPECT_EQ(results[bad].outcome, Outcome::bad_arg) << bad;
    EXPECT_NE(results[bad].why.find("overlaps"), std::string::npos) << bad;
  }
  EXPECT_EQ(world.posts(), 3u);
  for (const std::size_t good : {std::size_t{0}, std::size_t{3}, std::size_t{5}}) {
    ASSERT_EQ(results[good].outcome, Outcome::ok) << good;
    EXPECT_TRUE(same(world.dest(1000, good == 0 ? 0 : good == 3 ? 1000 : 2000), values[good]));
  }
}

TEST(KvRead, a_destination_is_free_again_when_its_read_was_reported) {
  World world;
  world.node().publish(key_of(1), pattern(1000, 1), kFirst);
  std::vector<std::pair<int, Outcome>> ended;
  const auto begin = [&](int which, const Bytes& key, std::size_t at) {
    world.client->get({key, world.dest(1000, at)}, [&ended, which](const GetResult& got) {
      ended.emplace_back(which, got.outcome);
    });
  };
  begin(1, key_of(1), 0);
  begin(2, key_of(1), 500);  // of another call
  ASSERT_TRUE(world.run([&] { return ended.size() == 2; }));
  std::sort(ended.begin(), ended.end());
  EXPECT_EQ(ended[0].second, Outcome::ok);
  EXPECT_EQ(ended[1].second, Outcome::bad_arg);
  for (const auto& [key, at] : {std::pair(key_of(1), 500u), {key_of(9), 0u}, {Bytes(), 0u}}) {
    ended.clear();
    begin(3, key, at);  // read, absent, refused: each gives it back
    ASSERT_TRUE(world.run([&] { return ended.size() == 1; }));
  }
  EXPECT_EQ(world.get(key_of(1), world.dest(2000)).outcome, Outcome::ok);
}

// Two calls use the same bytes, and the registration of the one ends before the other begins.
TEST(KvRead, borrowed_memory_serves_the_requests_that_name_it_only) {
  World world;
  const Bytes value = pattern(5000, 3);
  Bytes source = value;
  auto first = world.client->borrow_memory(source).value();
  auto second = world.client->borrow_memory(std::span(source).first(3000)).value();
  EXPECT_FALSE(world.client->registered(source));
  std::vector<Outcome> ended(4, Outcome::stale);
  const auto put = [&](std::size_t which, std::span<const std::byte> part,
                       const LandingMemory* memory) {
    PutRequest request{key_of(which), part, PutMode::if_absent, {}, false};
    request.memory = memory;
    world.client->put(std::move(request),
                      [&ended, which](const PutResult& told) { ended[which] = told.outcome; });
  };
  put(0, source, first.get());
  put(1, std::span(source).first(2000), second.get());
  put(2, source, second.get());  // more than it covers
  put(3, source, nullptr);
  first.reset();
  ASSERT_TRUE(
      world.run([&] { return std::count(ended.begin(), ended.end(), Outcome::stale) == 0; }));
  EXPECT_EQ(ended, (std::vector{Outcome::ok, Outcome::ok, Outcome::bad_arg, Outcome::bad_arg}));
  ASSERT_EQ(world.get(key_of(0), world.dest(5000)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(5000), value));
}

TEST(KvRead, K036_no_byte_outside_the_destination_is_touched) {
  World world;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  auto* base = static_cast<std::byte*>(
      ::mmap(nullptr, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(base), MAP_FAILED);
  ASSERT_EQ(::mprotect(base, page, PROT_NONE), 0);
  ASSERT_EQ(::mprotect(base + 3 * page, page, PROT_NONE), 0);
  {
    auto landing = world.client->register_memory({base + page, 2 * page}).value();
    const Bytes value = pattern(2 * page - 64, 5);
    world.node().publish(key_of(1), value, kFirst);
    for (const std::size_t at : {std::size_t{0}, std::size_t{64}}) {  // at either guard page
      std::fill_n(base + page, 2 * page, std::byte{0xAB});
      const std::span<std::byte> dest(base + page + at, value.size());
      ASSERT_EQ(world.get(key_of(1), dest, ReadMode::payload_only).outcome, Outcome::ok);
      EXPECT_TRUE(same(dest, value));
      for (std::size_t i = 0; i < 64; ++i) {
        EXPECT_EQ(base[at == 0 ? 3 * page - 64 + i : page + i], std::byte{0xAB});
      }
    }
  }
  ::munmap(base, 4 * page);
}

TEST(KvRead, K037_a_value_that_does_not_fit_is_not_read) {
  World world;
  world.node().publish(key_of(1), pattern(1000, 6), kFirst);
  std::fill_n(world.dest(1000).begin(), 1000, std::byte{0xCD});
  const GetResult got = world.get(key_of(1), world.dest(999));
  EXPECT_EQ(got.outcome, Outcome::too_small);
  EXPECT_EQ(got.length.raw(), 1000u) << "so that the caller knows what would do";
  EXPECT_EQ(world.posts(), 0u);
  for (const std::byte b : world.dest(1000)) ASSERT_EQ(b, std::byte{0xCD});
  EXPECT_EQ(world.get(key_of(1), world.dest(1000)).outcome, Outcome::ok);
}

TEST(KvRead, a_destination_outside_registered_memory_is_refused) {
  World world;
  Bytes elsewhere(100);
  const GetResult got = world.get(key_of(1), elsewhere);
  EXPECT_EQ(got.outcome, Outcome::bad_arg);
  EXPECT_FALSE(got.why.empty());
}

TEST(KvRead, K041_an_entry_older_than_L_is_resolved_again) {
  World world({.tune = [](ClientOptions& o) { o.lease = 500ms; }});
  world.node().publish(key_of(1), pattern(100, 7), kFirst);
  const auto resolves = [&] { return world.valkey->counters().mgets; };
  ASSERT_EQ(world.get(key_of(1), world.dest(100)).outcome, Outcome::ok);
  EXPECT_EQ(resolves(), 1u);
  ASSERT_EQ(world.get(key_of(1), world.dest(100)).outcome, Outcome::ok);
  EXPECT_EQ(resolves(), 1u) << "from the cache";
  world.pass(600ms);
  ASSERT_EQ(world.get(key_of(1), world.dest(100)).outcome, Outcome::ok);
  EXPECT_EQ(resolves(), 2u);
}

TEST(KvRead, K040_a_cached_descriptor_reads_a_committed_value) {
  World world;
  const Bytes old_value = pattern(3000, 8);
  const Bytes new_value = pattern(3000, 9);
  world.node().publish(key_of(1), old_value, kFirst);
  ASSERT_EQ(world.get(key_of(1), world.dest(3000)).outcome, Outcome::ok);
  world.node().publish(key_of(1), new_value, Version(2, 6));  // elsewhere: this client is not told
  for (int i = 0; i < 20; ++i) {
    const GetResult got = world.get(key_of(1), world.dest(3000));
    ASSERT_EQ(got.outcome, Outcome::ok);
    EXPECT_TRUE(same(world.dest(3000), got.version == kFirst ? old_value : new_value));
    world.pass(1s);
  }
  EXPECT_EQ(world.get(key_of(1), world.dest(3000)).version, Version(2, 6)) << "L is over";
}

TEST(KvRead, K042_own_puts_and_removes_drop_the_cached_entry) {
  World world;
  ASSERT_EQ(world.put(key_of(1), bytes_of_text("old")).outcome, Outcome::ok);
  ASSERT_EQ(world.get(key_of(1), world.dest(3)).outcome, Outcome::ok);
  ASSERT_EQ(world.put(key_of(1), bytes_of_text("new"), PutMode::replace).outcome, Outcome::ok);
  ASSERT_EQ(world.get(key_of(1), world.dest(3)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(3), bytes_of_text("new")));
  ASSERT_EQ(world.remove(key_of(1)), Outcome::ok);
  EXPECT_EQ(world.get(key_of(1), world.dest(3)).outcome, Outcome::miss);
}

TEST(KvRead, K043_min_rev_above_the_current_one_is_a_miss_without_a_post) {
  World world;
  world.node().publish(key_of(1), pattern(100, 10), Version(3, 1));
  EXPECT_EQ(world.get(key_of(1), world.dest(100), ReadMode::framed, 4).outcome, Outcome::miss);
  EXPECT_EQ(world.posts(), 0u);
  EXPECT_EQ(world.get(key_of(1), world.dest(100), ReadMode::framed, 3).outcome, Outcome::ok);
  // Cached as revision 3: asked for 4, the directory has the last word.
  world.node().publish(key_of(1), pattern(100, 11), Version(4, 2));
  const GetResult got = world.get(key_of(1), world.dest(100), ReadMode::framed, 4);
  EXPECT_EQ(got.outcome, Outcome::ok);
  EXPECT_EQ(got.version.rev(), 4u);
}

TEST(KvRead, K044_split_and_striped_reads_are_right) {
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{31}, std::size_t{4096}, std::size_t{100001}}) {
    World world({.rails = 2, .tune = [](ClientOptions& o) { o.piece_max = Length(4096); }});
    world.node().mischief.max_read = Length(1000);
    const Bytes value = pattern(length, length);
    world.node().publish(key_of(1), value, kFirst);
    for (const ReadMode mode : kModes) {
      ASSERT_EQ(world.get(key_of(1), world.dest(length), mode).outcome, Outcome::ok) << length;
      EXPECT_TRUE(same(world.dest(length), value));
    }
    for (const auto& event : world.network->trace()) {
      if (event.what == fabric::sim::SimEvent::What::post) {
        EXPECT_LE(event.length, 1000u);
      }
    }
  }
}

TEST(KvRead, K044_a_rail_that_dies_midway_never_gives_a_partial_value) {
  World world({.rails = 2, .tune = [](ClientOptions& o) { o.piece_max = Length(4096); }});
  const Bytes value = pattern(200000, 12);
  world.node().publish(key_of(1), value, kFirst);
  ASSERT_EQ(world.get(key_of(1), world.dest(200000)).outcome, Outcome::ok);
  for (int round = 0; round < 20; ++round) {
    std::fill(world.dest(200000).begin(), world.dest(200000).end(), std::byte{0});
    std::optional<GetResult> got;
    world.client->get({key_of(1), world.dest(200000)}, [&](GetResult r) { got = r; });
    for (int i = 0; i < 3 + round * 20 && !got; ++i) world.step();
    world.network->drop(world.node().target(1));
    ASSERT_TRUE(world.run([&] { return got.has_value(); }));
    if (got->outcome == Outcome::ok) {
      EXPECT_TRUE(same(world.dest(200000), value));
    } else {
      EXPECT_TRUE(got->outcome == Outcome::timeout || got->outcome == Outcome::unreachable);
    }
  }
  EXPECT_GT(world.counter("reads_retried"), 0u);
}

TEST(KvRead, K045_a_lagging_replica_gives_an_older_value_or_a_miss) {
  World world({.tune = [](ClientOptions& o) { o.cache_entries_max = 1; }});
  const Bytes first = pattern(500, 13);
  const Bytes second = pattern(500, 14);
  sim::SimValkeyFaults faults;
  faults.lagging = 500;
  world.valkey->set_faults(faults);
  int seen[3] = {};
  for (int round = 0; round < 60; ++round) {
    const Bytes key = key_of(static_cast<std::uint64_t>(round));
    world.node().publish(key, first, kFirst);
    world.pass(1s);
    world.node().publish(key, second, Version(2, 9));
    const GetResult got = world.get(key, world.dest(500));
    ASSERT_TRUE(got.outcome == Outcome::ok || got.outcome == Outcome::miss);
    if (got.outcome == Outcome::miss) {
      ++seen[0];
    } else {
      EXPECT_TRUE(same(world.dest(500), got.version == kFirst ? first : second));
      ++seen[got.version == kFirst ? 1 : 2];
    }
  }
  EXPECT_GT(seen[1], 0) << "the fault was not met";
  EXPECT_GT(seen[2], 0);
}

TEST(KvRead, R049_an_empty_value_reads_its_header_in_both_modes) {
  World world;
  const Stored stored = world.node().publish(key_of(1), {}, kFirst);
  for (const ReadMode mode : kModes) {
    const std::uint64_t before = world.posts();
    EXPECT_EQ(world.get(key_of(1), {}, mode).outcome, Outcome::ok);
    EXPECT_EQ(world.posts(), before + 1);
  }
  world.node().slot(stored.descriptor)[8] ^= std::byte{1};
  EXPECT_EQ(world.get(key_of(1), {}, ReadMode::payload_only).outcome, Outcome::bad_key);
  EXPECT_EQ(world.client->register_memory({}).code(), Errc::invalid_argument);
  ASSERT_EQ(world.put(key_of(2), {}).outcome, Outcome::ok);
  EXPECT_EQ(world.get(key_of(2), {}).outcome, Outcome::ok);
}

TEST(KvRead, R053_many_small_reads_use_one_registration) {
  World world;
  for (std::uint64_t i = 0; i < 100; ++i) {
    world.node().publish(key_of(i), pattern(64, i), kFirst);
  }
  for (int round = 0; round < 100; ++round) {
    std::vector<GetRequest> requests;
    for (std::uint64_t i = 0; i < 100; ++i) requests.push_back({key_of(i), world.dest(64, i * 64)});
    for (const GetResult& got : world.mget(std::move(requests))) {
      ASSERT_EQ(got.outcome, Outcome::ok);
    }
  }
  EXPECT_EQ(world.counter("landing_registrations"), 1u);
  EXPECT_EQ(world.counter("source_registrations"), 0u);
}

TEST(KvRead, touches_are_sampled_and_at_least_a_second_apart) {
  World world;
  for (std::uint64_t i = 0; i < 20; ++i) {
    world.node().publish(key_of(i), pattern(64, i), kFirst);
  }
  for (int round = 0; round < 40; ++round) {
    for (std::uint64_t i = 0; i < 20; ++i) {
      ASSERT_EQ(world.get(key_of(i), world.dest(64)).outcome, Outcome::ok);
    }
    world.pass(100ms);
  }
  world.pass(2s);
  const auto& times = world.node().seen.touch_times;
  ASSERT_GE(times.size(), 2u);
  for (std::size_t i = 1; i < times.size(); ++i) EXPECT_GE(times[i] - times[i - 1], 950ms);
  const KeyHash hash = world.keys.signing().key_hash(key_of(3));
  const auto& touched = world.node().seen.touched;
  EXPECT_NE(std::find(touched.begin(), touched.end(), hash), touched.end());
}

TEST(KvRead, stat_and_exists_read_nothing) {
  World world;
  world.node().publish(key_of(1), pattern(777, 1), kFirst);
  std::optional<GetResult> got;
  world.client->stat(key_of(1), [&](GetResult r) { got = r; });
  ASSERT_TRUE(world.run([&] { return got.has_value(); }));
  EXPECT_EQ(got->outcome, Outcome::ok);
  EXPECT_EQ(got->length.raw(), 777u);
  EXPECT_EQ(world.exists({key_of(1), key_of(2)}), (std::vector<bool>{true, false}));
  EXPECT_EQ(world.posts(), 0u);
}

TEST(KvRead, development_mode_needs_no_tag) {
  World world({.development = true});
  ASSERT_EQ(world.put(key_of(1), pattern(100, 1)).outcome, Outcome::ok);
  EXPECT_EQ(world.get(key_of(1), world.dest(100)).outcome, Outcome::ok);
  EXPECT_TRUE(same(world.dest(100), pattern(100, 1)));
}

}  // namespace
}  // namespace farlift::kv::client::testing
