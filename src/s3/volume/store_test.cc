#include "s3/volume/store.h"

#include "s3/volume/volume_test_base.h"

#include "tests/support/valkey_server.h"

namespace farlift::s3::volume {
namespace {

StoreOptions by_hand() {
  StoreOptions options;
  options.upkeep_every = Duration::zero();
  return options;
}

TEST(Store, makes_volumes_when_asked_and_finds_them_again) {
  disk::sim::SimDisk disk(1);
  auto store = Store::open(disk.directory(), by_hand()).value();
  EXPECT_EQ(store->find(VolumeId(1)).code(), Errc::not_found);
  auto volume = store->assign(VolumeId(1)).value();
  EXPECT_EQ(store->assign(VolumeId(1)).value(), volume);
  ASSERT_TRUE(store->assign(VolumeId(77)).ok());
  ASSERT_TRUE(volume->append(key_of(1), {}, made_up(10, 1), {}).ok());
  volume.reset();
  store.reset();
  disk.crash();
  store = Store::open(disk.directory(), by_hand()).value();
  ASSERT_EQ(store->volumes().size(), 2u);
  EXPECT_EQ(store->volumes()[1]->id(), VolumeId(77));
  EXPECT_TRUE(holds(**store->find(VolumeId(1)), key_of(1), made_up(10, 1)));
}

TEST(Store, a_broken_volume_does_not_keep_the_others_from_serving) {
  disk::sim::SimDisk disk(1);
  {
    auto store = Store::open(disk.directory(), by_hand()).value();
    ASSERT_TRUE((*store->assign(VolumeId(1)))->append(key_of(1), {}, made_up(10, 1), {}).ok());
  }
  set_log_sink([](LogLevel, std::string_view) noexcept {});
  disk.put("2.dat", made_up(100, 2));
  disk.put("notes.txt", made_up(100, 2));
  disk.put("007.dat", made_up(100, 2));  // not how we write 7
  disk.put("9.dat.new", made_up(100, 2));
  auto store = Store::open(disk.directory(), by_hand()).value();
  EXPECT_EQ(store->volumes().size(), 1u);
  EXPECT_EQ(store->broken(), 1u);
  EXPECT_TRUE(holds(**store->find(VolumeId(1)), key_of(1), made_up(10, 1)));
  // What it could not read is not overwritten either.
  EXPECT_EQ(store->assign(VolumeId(2)).code(), Errc::corrupt);
  EXPECT_EQ(disk.contents("2.dat").value(), made_up(100, 2));
  EXPECT_EQ(store->find(VolumeId(9)).code(), Errc::not_found);
  EXPECT_EQ(disk.directory()->list().value(),
            (std::vector<std::string>{"007.dat", "1.dat", "1.fli", "2.dat", "notes.txt"}));
}

TEST(Store, upkeep_compacts_indexes_and_heals) {
  disk::sim::SimDisk disk(1);
  set_log_sink([](LogLevel, std::string_view) noexcept {});
  StoreOptions options = by_hand();
  options.compact_min = Length(10'000);
  options.index_every = Length(50'000);
  auto store = Store::open(disk.directory(), options).value();
  auto volume = store->assign(VolumeId(1)).value();
  ASSERT_TRUE(volume->append(key_of(1), {}, made_up(40'000, 1), {}).ok());
  store->upkeep();
  EXPECT_GT(volume->stats().unindexed, 0u);
  ASSERT_TRUE(volume->append(key_of(2), {}, made_up(40'000, 2), {}).ok());
  store->upkeep();
  EXPECT_EQ(volume->stats().unindexed, 0u);
  EXPECT_EQ(volume->stats().revision, 0);
  ASSERT_TRUE(volume->remove(key_of(1)).ok());
  store->upkeep();
  EXPECT_EQ(volume->stats().revision, 1);
  EXPECT_LT(volume->stats().size, Length(45'000));
  disk.fail_after(1, Error::make(Errc::io, "planted", 5), false);
  EXPECT_FALSE(volume->append(key_of(3), {}, made_up(10, 3), {}).ok());
  EXPECT_TRUE(volume->stats().sync_failed);
  store->upkeep();
  EXPECT_FALSE(volume->stats().sync_failed);
  EXPECT_TRUE(volume->append(key_of(4), {}, made_up(10, 4), {}).ok());
  EXPECT_TRUE(holds(*volume, key_of(2), made_up(40'000, 2)));
}

TEST(Store, its_thread_does_the_upkeep) {
  disk::sim::SimDisk disk(1);
  StoreOptions options;
  options.upkeep_every = std::chrono::milliseconds(5);
  options.index_every = Length(1);
  auto store = Store::open(disk.directory(), options).value();
  auto volume = store->assign(VolumeId(1)).value();
  ASSERT_TRUE(volume->append(key_of(1), {}, made_up(10, 1), {}).ok());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (volume->stats().unindexed > 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::yield();
  EXPECT_EQ(volume->stats().unindexed, 0u);
}

TEST(Store, a_real_directory_belongs_to_one_process) {
  testing::TempDir temp;
  disk::DirectoryOptions exclusive;
  exclusive.exclusive = true;
  auto store =
      Store::open(disk::open_directory(temp.file("d"), exclusive).value(), by_hand()).value();
  EXPECT_EQ(disk::open_directory(temp.file("d"), exclusive).code(), Errc::busy);
}

}  // namespace
}  // namespace farlift::s3::volume
