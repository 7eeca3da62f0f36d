#include "s3/volume/index.h"

#include "s3/volume/volume_test_base.h"

namespace farlift::s3::volume {
namespace {

constexpr Superblock kSuper{VolumeId(9), 77, 1};

IndexImage some() {
  IndexImage image;
  image.covered = 4096;
  image.garbage = 88;
  Entry live;
  live.offset = 32;
  live.cookie = 5;
  live.data_size = 100;
  live.size = 105;
  live.crc = Crc32c(123);
  live.append_s = 456;
  image.index[1] = live;
  Entry gone;
  gone.offset = 400;
  gone.cookie = 6;
  gone.deleted = true;
  image.index[2] = gone;
  return image;
}

TEST(IndexFile, comes_back) {
  disk::sim::SimDisk disk(1);
  const auto directory = disk.directory();
  ASSERT_TRUE(save_index(*directory, "9.fli", kSuper, some()).ok());
  const auto back = load_index(*directory, "9.fli", kSuper);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->covered, 4096u);
  EXPECT_EQ(back->garbage, 88u);
  ASSERT_EQ(back->index.size(), 2u);
  EXPECT_EQ(back->index.at(1).crc, Crc32c(123));
  EXPECT_EQ(back->index.at(1).append_s, 456u);
  EXPECT_TRUE(back->index.at(2).deleted);
  EXPECT_EQ(directory->list().value(), (std::vector<std::string>{"9.fli"}));
}

TEST(IndexFile, of_another_file_or_damaged_is_not_used) {
  disk::sim::SimDisk disk(1);
  const auto directory = disk.directory();
  ASSERT_TRUE(save_index(*directory, "9.fli", kSuper, some()).ok());
  for (Superblock other : {Superblock{VolumeId(8), 77, 1}, Superblock{VolumeId(9), 78, 1},
                           Superblock{VolumeId(9), 77, 2}}) {
    EXPECT_EQ(load_index(*directory, "9.fli", other).code(), Errc::corrupt);
  }
  EXPECT_EQ(load_index(*directory, "8.fli", kSuper).code(), Errc::not_found);
  const auto bytes = disk.contents("9.fli").value();
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto bad = bytes;
    bad[i] ^= std::byte{0x10};
    disk.put("bad", bad);
    EXPECT_FALSE(load_index(*directory, "bad", kSuper).ok()) << i;
    disk.put("bad",
             std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(i)));
    EXPECT_FALSE(load_index(*directory, "bad", kSuper).ok()) << i;
  }
}

TEST(IndexFile, entries_that_point_outside_are_refused) {
  disk::sim::SimDisk disk(1);
  const auto directory = disk.directory();
  for (int which = 0; which < 4; ++which) {
    IndexImage image = some();
    Entry& entry = image.index[1];
    if (which == 0) entry.offset = 4096;
    if (which == 1) entry.offset = 33;
    if (which == 2) entry.data_size = 0;
    if (which == 3) entry.offset = 4096 - 64;
    ASSERT_TRUE(save_index(*directory, "9.fli", kSuper, image).ok());
    EXPECT_EQ(load_index(*directory, "9.fli", kSuper).code(), Errc::corrupt) << which;
  }
}

}  // namespace
}  // namespace farlift::s3::volume
