// The simulated disk loses what may be lost and nothing else; otherwise the tests that stand on it
// would prove nothing.
#include "core/disk/sim/sim.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace farlift::disk::sim {
namespace {

std::vector<std::byte> filled(std::size_t size, unsigned value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

TEST(SimDisk, what_was_synced_survives_and_the_rest_tears_by_sector) {
  std::set<int> outcomes;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SimDisk disk(seed);
    auto directory = disk.directory();
    auto file = directory->open("f", OpenMode::create_new).value();
    ASSERT_TRUE(file->write_at(filled(4 * kSector, 1), Offset(0)).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(directory->sync().ok());
    ASSERT_TRUE(file->write_at(filled(2 * kSector, 2), Offset(kSector)).ok());
    disk.crash();
    EXPECT_EQ(file->sync().error().code, Errc::closed);
    EXPECT_EQ(directory->list().code(), Errc::closed);
    const auto after = disk.contents("f").value();
    ASSERT_EQ(after.size(), 4 * kSector);
    int seen = 0;
    for (std::size_t s = 0; s < 4; ++s) {
      const auto first = after[s * kSector];
      for (std::size_t i = 0; i < kSector; ++i) ASSERT_EQ(after[s * kSector + i], first);
      if (s == 0 || s == 3) {
        ASSERT_EQ(first, std::byte{1});
      }
      if (first == std::byte{2}) seen |= 1 << s;
    }
    outcomes.insert(seen);
  }
  EXPECT_EQ(outcomes, (std::set<int>{0, 2, 4, 6}));
}

TEST(SimDisk, a_file_that_grew_ends_anywhere_between) {
  std::set<std::size_t> lengths;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk(seed);
    auto directory = disk.directory();
    auto file = directory->open("f", OpenMode::create_new).value();
    ASSERT_TRUE(directory->sync().ok());
    ASSERT_TRUE(file->write_at(filled(100, 1), Offset(0)).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(file->write_at(filled(2000, 2), Offset(100)).ok());
    disk.crash();
    const auto after = disk.contents("f").value();
    ASSERT_GE(after.size(), 100u);
    ASSERT_LE(after.size(), 2100u);
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(after[i], std::byte{1});
    lengths.insert(after.size());
  }
  EXPECT_TRUE(lengths.contains(100));
  EXPECT_TRUE(lengths.contains(2100));
  EXPECT_GT(lengths.size(), 10u);
}

TEST(SimDisk, names_survive_each_on_its_own_until_the_directory_was_synced) {
  std::set<std::vector<std::string>> seen;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SimDisk disk(seed);
    auto directory = disk.directory();
    ASSERT_TRUE(directory->open("old", OpenMode::create_new).ok());
    ASSERT_TRUE(directory->sync().ok());
    ASSERT_TRUE(directory->open("a", OpenMode::create_new).ok());
    ASSERT_TRUE(directory->rename("old", "new").ok());
    disk.crash();
    seen.insert(disk.directory()->list().value());
  }
  EXPECT_EQ(seen,
            (std::set<std::vector<std::string>>{{"old"}, {"a", "old"}, {"new"}, {"a", "new"}}));
}

TEST(SimDisk, a_killed_process_loses_nothing) {
  SimDisk disk(1);
  auto file = disk.directory()->open("f", OpenMode::create_new).value();
  ASSERT_TRUE(file->write_at(filled(10, 9), Offset(0)).ok());
  disk.kill();
  EXPECT_EQ(file->write_at(filled(1, 1), Offset(0)).error().code, Errc::closed);
  EXPECT_EQ(disk.contents("f").value(), filled(10, 9));
}

TEST(SimDisk, failures_come_when_they_were_ordered) {
  SimDisk disk(2);
  auto file = disk.directory()->open("f", OpenMode::create_new).value();
  const std::uint64_t before = disk.changes();
  disk.fail_after(1, Error::make(Errc::io, "planted", 5), false);
  EXPECT_TRUE(file->write_at(filled(10, 1), Offset(0)).ok());
  EXPECT_EQ(file->sync().error().code, Errc::io);
  EXPECT_TRUE(file->sync().ok());
  EXPECT_EQ(disk.changes() - before, 3u);
  disk.fail_after(0, Error::make(Errc::io, "planted", 5), true);
  EXPECT_FALSE(file->sync().ok());
  EXPECT_FALSE(file->resize(Length(1)).ok());
  disk.heal();
  EXPECT_TRUE(file->sync().ok());
  disk.set_free_space(Length(5));
  EXPECT_EQ(file->write_at(filled(10, 1), Offset(10)).error().code, Errc::exhausted);
  disk.cut_power_after(0);
  EXPECT_EQ(file->sync().error().code, Errc::closed);
}

TEST(SimDisk, damage_at_rest_stays) {
  SimDisk disk(3);
  disk.put("f", filled(10, 0));
  ASSERT_TRUE(disk.flip("f", Offset(3), 0x80).ok());
  disk.crash();
  EXPECT_EQ(disk.contents("f").value()[3], std::byte{0x80});
  EXPECT_EQ(disk.flip("f", Offset(10), 1).error().code, Errc::out_of_range);
  EXPECT_EQ(disk.flip("g", Offset(0), 1).error().code, Errc::not_found);
}

}  // namespace
}  // namespace farlift::disk::sim
