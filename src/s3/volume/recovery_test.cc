// A start after every kind of end: at any byte, with any byte wrong, in the middle of anything.
#include "s3/volume/recovery.h"

#include "s3/volume/volume_test_base.h"

#include <map>
#include <set>

namespace farlift::s3::volume {
namespace {

// A volume of three needles, the last of which is the tail under test, as bytes.
struct Scene {
  std::vector<std::byte> bytes;
  std::size_t tail_at = 0;
  std::vector<std::vector<std::byte>> data;
};

Scene scene(std::size_t tail_length, bool tail_is_deletion = false) {
  Bench bench;
  auto volume = bench.open();
  Scene out;
  out.data = {made_up(700, 1), made_up(300, 2), made_up(tail_length, 3)};
  EXPECT_TRUE(volume->append(key_of(1), {}, out.data[0], {}).ok());
  EXPECT_TRUE(volume->append(key_of(2), {0, "name", "mime"}, out.data[1], {}).ok());
  out.tail_at = volume->stats().size.raw();
  if (tail_is_deletion) {
    EXPECT_TRUE(volume->remove(key_of(2)).ok());
  } else {
    EXPECT_TRUE(volume->append(key_of(3), {}, out.data[2], {}).ok());
  }
  out.bytes = bench.disk.contents("3.dat").value();
  return out;
}

std::vector<std::byte> first(const std::vector<std::byte>& bytes, std::size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count)};
}

TEST(Recovery, a_file_cut_at_any_byte_of_its_tail_keeps_what_stands_before) {
  const Scene s = scene(900);
  for (std::size_t cut = s.tail_at; cut <= s.bytes.size(); ++cut) {
    Bench bench;
    bench.disk.put("3.dat", first(s.bytes, cut));
    auto volume = bench.open();
    ASSERT_TRUE(holds(*volume, key_of(1), s.data[0])) << cut;
    ASSERT_TRUE(holds(*volume, key_of(2), s.data[1])) << cut;
    if (cut == s.bytes.size()) {
      ASSERT_TRUE(holds(*volume, key_of(3), s.data[2]));
    } else {
      ASSERT_EQ(volume->find(key_of(3)).code(), Errc::not_found) << cut;
      // It can be written anew, and is there after yet another start.
      ASSERT_TRUE(volume->append(key_of(3), {}, s.data[2], {}).ok());
      bench.disk.crash();
      volume = bench.open();
      ASSERT_TRUE(holds(*volume, key_of(3), s.data[2])) << cut;
      ASSERT_TRUE(holds(*volume, key_of(2), s.data[1])) << cut;
    }
    ASSERT_EQ(volume->stats().damaged, 0u);
  }
}

TEST(Recovery, a_file_cut_anywhere_never_gives_wrong_bytes) {
  const Scene s = scene(100);
  for (std::size_t cut = 0; cut < s.bytes.size(); ++cut) {
    Bench bench;
    bench.disk.put("3.dat", first(s.bytes, cut));
    bench.directory = bench.disk.directory();
    const auto volume = Volume::open(*bench.directory, VolumeId(3), {}, true);
    if (cut < kSuperBytes) {
      ASSERT_EQ(volume.code(), Errc::corrupt) << cut;
      continue;
    }
    for (std::uint64_t id = 1; id <= 3; ++id) {
      const auto got = fetch(**volume, key_of(id));
      if (got.ok()) {
        ASSERT_EQ(*got, s.data[id - 1]) << cut;
      } else {
        ASSERT_EQ(got.code(), Errc::not_found) << cut;
      }
    }
  }
}

// The sector that holds byte i was not written, or was written wrongly: any value may stand there.
TEST(Recovery, any_wrong_byte_in_the_tail_is_cut_off_or_harmless) {
  for (const bool deletion : {false, true}) {
    const Scene s = scene(200, deletion);
    for (std::size_t i = s.tail_at; i < s.bytes.size(); ++i) {
      for (const unsigned mask : {0x01u, 0x80u, 0xffu}) {
        Bench bench;
        auto bytes = s.bytes;
        bytes[i] ^= static_cast<std::byte>(mask);
        bench.disk.put("3.dat", bytes);
        auto volume = bench.open();
        ASSERT_TRUE(holds(*volume, key_of(1), s.data[0])) << i;
        // Nothing comes up under a name that nobody gave.
        ASSERT_LE(volume->stats().needles + volume->stats().deletions, 3u);
        if (!deletion) {
          ASSERT_TRUE(holds(*volume, key_of(2), s.data[1])) << i;
          const auto tail = fetch(*volume, key_of(3));
          // Only in the padding behind the check does a wrong byte mean nothing.
          ASSERT_EQ(tail.ok(), i + 4 >= s.bytes.size() && tail.ok()) << i;
          if (tail.ok()) {
            ASSERT_EQ(*tail, s.data[2]);
          }
        } else {
          const auto second = fetch(*volume, key_of(2));
          if (second.ok()) {
            ASSERT_EQ(*second, s.data[1]);
          }
        }
      }
    }
  }
}

TEST(Recovery, zeros_and_garbage_behind_the_end_are_cut_off) {
  const Scene s = scene(100);
  for (const std::size_t extra :
       {std::size_t{1}, std::size_t{8}, std::size_t{4096}, std::size_t{3u << 20}}) {
    for (const bool zeros : {true, false}) {
      Bench bench;
      auto bytes = s.bytes;
      const auto behind = zeros ? std::vector<std::byte>(extra) : made_up(extra, 9);
      bytes.insert(bytes.end(), behind.begin(), behind.end());
      bench.disk.put("3.dat", bytes);
      auto volume = bench.open();
      EXPECT_EQ(volume->stats().size, Length(s.bytes.size()));
      EXPECT_EQ(bench.disk.contents("3.dat")->size(), s.bytes.size());
      EXPECT_TRUE(holds(*volume, key_of(3), s.data[2]));
      EXPECT_EQ(volume->stats().damaged, 0u);
    }
  }
}

TEST(Recovery, damage_in_the_middle_costs_one_needle_and_is_told) {
  const Scene s = scene(400);
  for (std::size_t i = kSuperBytes; i < s.tail_at; i += 3) {
    Bench bench;
    auto bytes = s.bytes;
    bytes[i] ^= std::byte{0x20};
    bench.disk.put("3.dat", bytes);
    auto volume = bench.open();
    ASSERT_TRUE(holds(*volume, key_of(3), s.data[2])) << i;
    ASSERT_EQ(volume->stats().size, Length(s.bytes.size()));
    int lost = 0;
    for (std::uint64_t id = 1; id <= 2; ++id) {
      const auto got = fetch(*volume, key_of(id));
      if (got.ok()) {
        ASSERT_EQ(*got, s.data[id - 1]);
      } else {
        ++lost;
      }
    }
    ASSERT_LE(lost, 1) << i;
    ASSERT_EQ(volume->stats().damaged > 0, lost > 0) << i;
  }
}

// A needle inside somebody's data must not come up when the record around it is damaged.
TEST(Recovery, a_needle_within_data_is_not_taken_for_one) {
  const Scene inner = scene(100);
  Bench bench;
  auto volume = bench.open();
  // At every alignment, so that one of them would be found.
  std::vector<std::byte> data;
  for (std::size_t shift = 0; shift < 8; ++shift) {
    data.resize(data.size() + shift);
    data.insert(data.end(), inner.bytes.begin(), inner.bytes.end());
  }
  ASSERT_TRUE(volume->append(key_of(50), {}, data, {}).ok());
  ASSERT_TRUE(volume->append(key_of(51), {}, made_up(10, 1), {}).ok());
  ASSERT_TRUE(bench.disk.flip("3.dat", Offset(kSuperBytes), 1).ok());
  volume = bench.open();
  EXPECT_EQ(volume->stats().needles, 1u);
  EXPECT_TRUE(holds(*volume, key_of(51), made_up(10, 1)));
  for (std::uint64_t id = 1; id <= 3; ++id)
    EXPECT_EQ(volume->find(key_of(id)).code(), Errc::not_found);
}

TEST(Recovery, an_index_saves_the_reading_and_a_bad_one_costs_only_that) {
  Bench bench;
  auto volume = bench.open();
  for (std::uint64_t id = 1; id <= 20; ++id)
    ASSERT_TRUE(volume->append(key_of(id), {}, made_up(100 * id, id), {}).ok());
  ASSERT_TRUE(volume->remove(key_of(7)).ok());
  ASSERT_TRUE(volume->save().ok());
  ASSERT_TRUE(volume->append(key_of(21), {}, made_up(77, 21), {}).ok());
  const auto index = bench.disk.contents("3.fli").value();
  const auto check = [&](const char* what) {
    volume = bench.open();
    SCOPED_TRACE(what);
    EXPECT_EQ(volume->stats().needles, 20u);
    for (std::uint64_t id = 1; id <= 20; ++id) {
      if (id == 7) {
        EXPECT_EQ(volume->find(key_of(7)).code(), Errc::not_found);
      } else {
        EXPECT_TRUE(holds(*volume, key_of(id), made_up(100 * id, id)));
      }
    }
    EXPECT_TRUE(holds(*volume, key_of(21), made_up(77, 21)));
    EXPECT_EQ(volume->stats().damaged, 0u);
  };
  check("good index");
  bench.disk.put("3.fli", first(index, index.size() / 2));
  check("half an index");
  bench.disk.put("3.fli", {});
  check("empty index");
  ASSERT_TRUE(bench.disk.directory()->remove("3.fli").ok());
  check("no index");
}

TEST(Recovery, a_file_shorter_than_its_index_is_read_and_told) {
  Bench bench;
  auto volume = bench.open();
  ASSERT_TRUE(volume->append(key_of(1), {}, made_up(100, 1), {}).ok());
  const auto before = bench.disk.contents("3.dat").value();
  ASSERT_TRUE(volume->append(key_of(2), {}, made_up(100, 2), {}).ok());
  ASSERT_TRUE(volume->save().ok());
  bench.disk.put("3.dat", before);
  volume = bench.open();
  EXPECT_TRUE(holds(*volume, key_of(1), made_up(100, 1)));
  EXPECT_EQ(volume->find(key_of(2)).code(), Errc::not_found);
  EXPECT_EQ(volume->stats().damaged, 1u);
}

// The promise itself: power is cut at a random operation of a random history; what was acknowledged
// is there and right, what was deleted stays deleted, and nothing has wrong bytes.
TEST(Recovery, whatever_was_acknowledged_survives_a_crash_at_any_operation) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Prng prng(seed);
    Bench bench(seed);
    VolumeOptions options;
    options.sync = seed % 2 == 0 ? SyncRule::batch : SyncRule::always;
    std::map<std::uint64_t, std::vector<std::byte>> acknowledged;  // empty: deleted
    std::map<std::uint64_t, std::vector<std::byte>> offered;
    std::set<std::uint64_t> unsure;  // a deletion that was not answered
    std::uint64_t next_id = 1;
    ASSERT_NE(bench.open(options), nullptr);
    for (int life = 0; life < 3; ++life) {
      bench.disk.heal();
      auto volume = bench.open(options);
      ASSERT_NE(volume, nullptr) << "seed " << seed;
      for (const auto& [id, bytes] : offered) {
        const auto got = fetch(*volume, key_of(id));
        if (got.ok()) {
          ASSERT_EQ(*got, bytes) << "seed " << seed << " id " << id;
          ASSERT_FALSE(acknowledged.contains(id) && acknowledged[id].empty())
              << "deleted needle is back, seed " << seed;
        } else {
          ASSERT_EQ(got.code(), Errc::not_found) << "seed " << seed << " id " << id;
          ASSERT_TRUE(!acknowledged.contains(id) || acknowledged[id].empty() || unsure.contains(id))
              << "lost, seed " << seed << " id " << id;
          seen.insert(acknowledged.contains(id) ? "gone" : "never there");
        }
      }
      ASSERT_EQ(volume->stats().damaged, 0u) << "seed " << seed;
      bench.disk.cut_power_after(prng.below(40));
      for (int i = 0; i < 30; ++i) {
        const std::uint64_t what = prng.below(10);
        if (what < 6) {
          const std::uint64_t id = next_id++;
          offered[id] = made_up(1 + prng.below(4000), seed * 1000 + id);
          if (volume->append(key_of(id), {}, offered[id], {}).ok()) acknowledged[id] = offered[id];
        } else if (what < 8 && next_id > 1) {
          const std::uint64_t id = 1 + prng.below(next_id - 1);
          const auto removed = volume->remove(key_of(id));
          if (removed.ok()) {
            acknowledged[id] = {};
          } else if (removed.code() != Errc::not_found) {
            unsure.insert(id);
          }
        } else if (what == 8) {
          volume->save().ignore();
        } else {
          volume->compact().ignore();
        }
      }
      bench.disk.crash();
    }
  }
  EXPECT_EQ(seen.size(), 2u);
}

}  // namespace
}  // namespace farlift::s3::volume
