#include "s3/volume/volume_test_base.h"

#include <atomic>
#include <thread>

namespace farlift::s3::volume {
namespace {

TEST(Compaction, gives_back_what_was_deleted_and_keeps_the_rest) {
  Bench bench;
  auto volume = bench.open();
  for (std::uint64_t id = 1; id <= 30; ++id)
    ASSERT_TRUE(volume->append(key_of(id), {0, "n", "m"}, made_up(10'000 * id, id), {}).ok());
  const Needle old_reader = volume->find(key_of(20)).value();
  for (std::uint64_t id = 1; id <= 30; id += 2) ASSERT_TRUE(volume->remove(key_of(id)).ok());
  const VolumeStats before = volume->stats();
  EXPECT_GT(before.garbage.raw(), before.size.raw() / 3);
  ASSERT_TRUE(volume->compact().ok());
  for (int round = 0; round < 2; ++round) {
    const VolumeStats after = volume->stats();
    EXPECT_EQ(after.needles, 15u);
    EXPECT_EQ(after.deletions, 15u) << "young deletions are remembered";
    EXPECT_LT(after.size.raw() + before.garbage.raw(), before.size.raw() + 2000);
    EXPECT_LT(after.garbage.raw(), 15u * 40);
    EXPECT_EQ(after.revision, 1);
    EXPECT_EQ(after.unindexed, 0u);
    for (std::uint64_t id = 2; id <= 30; id += 2) {
      EXPECT_TRUE(holds(*volume, key_of(id), made_up(10'000 * id, id)));
      EXPECT_EQ(volume->find(key_of(id))->meta()->mime, "m");
      EXPECT_EQ(volume->append(key_of(id - 1), {}, made_up(1, 1), {}).code(), Errc::already_exists);
    }
    volume = bench.open();
  }
  std::vector<std::byte> into(200'000);
  EXPECT_EQ(bench.disk.directory()->list().value(), (std::vector<std::string>{"3.dat", "3.fli"}));
}

TEST(Compaction, forgets_deletions_when_they_are_old) {
  Bench bench;
  std::uint64_t now = 1'000'000'000'000'000;
  VolumeOptions options;
  options.now = [&] { return now; };
  auto volume = bench.open(options);
  ASSERT_TRUE(volume->append(key_of(1), {}, made_up(10, 1), {}).ok());
  ASSERT_TRUE(volume->remove(key_of(1)).ok());
  now += 3'601'000'000'000;
  ASSERT_TRUE(volume->compact().ok());
  EXPECT_EQ(volume->stats().deletions, 0u);
  EXPECT_EQ(volume->stats().size, Length(kSuperBytes));
}

TEST(Compaction, damage_stays_damage_and_costs_no_neighbour) {
  Bench bench;
  auto volume = bench.open();
  for (std::uint64_t id = 1; id <= 3; ++id)
    ASSERT_TRUE(volume->append(key_of(id), {}, made_up(1000, id), {}).ok());
  // Once in the data, once in the head: the index still knows where the data is.
  ASSERT_TRUE(bench.disk.flip("3.dat", Offset(kSuperBytes + 500), 1).ok());
  ASSERT_TRUE(volume->compact().ok());
  EXPECT_EQ(fetch(*volume, key_of(1)).code(), Errc::checksum);
  EXPECT_TRUE(holds(*volume, key_of(2), made_up(1000, 2)));
  ASSERT_TRUE(bench.disk.flip("3.dat", Offset(volume->stats().size.raw() - 1000), 1).ok());
  volume = bench.open();
  EXPECT_FALSE(fetch(*volume, key_of(1)).ok());
  EXPECT_TRUE(holds(*volume, key_of(2), made_up(1000, 2)));
}

TEST(Compaction, writers_and_readers_go_on_meanwhile) {
  Bench bench;
  auto volume = bench.open();
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> written{0};
  std::atomic<int> wrong{0};
  std::thread writer([&] {
    for (std::uint64_t id = 1; id <= 400; ++id) {
      if (!volume->append(key_of(id), {}, made_up(500 + id, id), {}).ok()) wrong.fetch_add(1);
      written.store(id);
      if (id % 3 == 0 && !volume->remove(key_of(id - 1)).ok()) wrong.fetch_add(1);
    }
    stop.store(true);
  });
  std::thread reader([&] {
    Prng prng(3);
    while (!stop.load()) {
      const std::uint64_t top = written.load();
      if (top == 0) continue;
      const std::uint64_t id = 1 + prng.below(top);
      const auto got = fetch(*volume, key_of(id));
      if (got.ok() ? *got != made_up(500 + id, id) : got.code() != Errc::not_found)
        wrong.fetch_add(1);
    }
  });
  int compactions = 0;
  while (!stop.load()) {
    if (volume->compact().ok()) ++compactions;
  }
  writer.join();
  reader.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_GT(compactions, 0);
  bench.disk.crash();
  volume = bench.open();
  for (std::uint64_t id = 1; id <= 400; ++id) {
    if (id % 3 == 2 && id < 400) {
      EXPECT_EQ(volume->find(key_of(id)).code(), Errc::not_found) << id;
    } else {
      EXPECT_TRUE(holds(*volume, key_of(id), made_up(500 + id, id))) << id;
    }
  }
}

// Power is cut, or an operation fails, at every single step of a compaction.
TEST(Compaction, ends_at_any_step_without_a_loss) {
  for (const bool cut : {true, false}) {
    bool finished = false;
    for (std::uint64_t step = 0; !finished; ++step) {
      ASSERT_LT(step, 200u);
      Bench bench(step);
      auto volume = bench.open();
      for (std::uint64_t id = 1; id <= 6; ++id)
        ASSERT_TRUE(volume->append(key_of(id), {}, made_up(1000, id), {}).ok());
      ASSERT_TRUE(volume->remove(key_of(2)).ok());
      if (cut) {
        bench.disk.cut_power_after(step);
      } else {
        bench.disk.fail_after(step, Error::make(Errc::io, "planted", 5), false);
      }
      finished = volume->compact().ok();
      if (!cut) {
        bench.disk.heal();
        // It goes on at once, unless nobody can know which file the name stands for.
        const auto more = volume->append(key_of(7), {}, made_up(1000, 7), {});
        for (std::uint64_t id = 1; id <= 6; ++id) {
          if (id != 2) {
            ASSERT_TRUE(holds(*volume, key_of(id), made_up(1000, id))) << step;
          }
        }
        bench.disk.crash();
        volume = bench.open();
        if (more.ok()) {
          ASSERT_TRUE(holds(*volume, key_of(7), made_up(1000, 7))) << step;
        }
      }
      bench.disk.heal();
      volume = bench.open();
      for (std::uint64_t id = 1; id <= 6; ++id) {
        if (id == 2) {
          ASSERT_EQ(volume->find(key_of(2)).code(), Errc::not_found) << step;
        } else {
          ASSERT_TRUE(holds(*volume, key_of(id), made_up(1000, id))) << step;
        }
      }
      ASSERT_EQ(volume->stats().damaged, 0u);
    }
  }
}

}  // namespace
}  // namespace farlift::s3::volume
