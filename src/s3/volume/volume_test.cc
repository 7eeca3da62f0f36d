#include "s3/volume/volume.h"

#include "s3/volume/volume_test_base.h"

#include <atomic>
#include <thread>

#include "tests/support/valkey_server.h"

namespace farlift::s3::volume {
namespace {

TEST(Volume, gives_back_what_was_appended_in_every_range) {
  Bench bench;
  auto volume = bench.open();
  for (const std::size_t length :
       {std::size_t{1}, std::size_t{kBlockBytes - 1}, std::size_t{kBlockBytes},
        std::size_t{kBlockBytes + 1}, std::size_t{(3u << 20) + 17}}) {
    const auto data = made_up(length, length);
    const NeedleKey key = key_of(length);
    const auto stored = volume->append(key, {}, data, digest::crc32c(data));
    ASSERT_TRUE(stored.ok()) << stored.error().describe();
    EXPECT_EQ(stored->crc, digest::crc32c(data));
    EXPECT_FALSE(stored->was_there);
    EXPECT_TRUE(holds(*volume, key, data));
  }
  // Once with the checks known from the append, once with those of a restart.
  for (int round = 0; round < 2; ++round) {
    for (const std::size_t length :
         {std::size_t{1}, std::size_t{kBlockBytes + 1}, std::size_t{(3u << 20) + 17}}) {
      const auto data = made_up(length, length);
      const Needle needle = volume->find(key_of(length)).value();
      Prng prng(length);
      for (int i = 0; i < 60; ++i) {
        const std::uint64_t from = prng.below(length + 1);
        const std::uint64_t count = i == 0 ? length - from : prng.below(length - from + 1);
        std::vector<std::byte> into(count);
        const auto crc = needle.read(Offset(from), into);
        ASSERT_TRUE(crc.ok());
        const auto begin = data.begin() + static_cast<std::ptrdiff_t>(from);
        ASSERT_TRUE(std::equal(into.begin(), into.end(), begin));
        ASSERT_EQ(*crc, digest::crc32c(into));
      }
      std::vector<std::byte> two(2);
      EXPECT_EQ(needle.read(Offset(length - 1), two).code(), Errc::out_of_range);
      EXPECT_EQ(needle.read(Offset(UINT64_MAX), two).code(), Errc::out_of_range);
    }
    volume = nullptr;
    volume = bench.open();
  }
}

TEST(Volume, the_same_bytes_again_are_the_first_append_and_others_are_refused) {
  Bench bench;
  auto volume = bench.open();
  const auto data = made_up(200'000, 1);
  ASSERT_TRUE(volume->append(key_of(1), {}, data, {}).ok());
  const Length size = volume->stats().size;
  const auto again = volume->append(key_of(1), {}, data, {});
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(volume->stats().size, size);
  auto other = data;
  other[150'000] ^= std::byte{1};
  EXPECT_EQ(volume->append(key_of(1), {}, other, {}).code(), Errc::already_exists);
  EXPECT_EQ(volume->append({1, 0}, {}, data, {}).code(), Errc::already_exists);
  EXPECT_EQ(volume->append(key_of(1), {kFlagCompressed, {}, {}}, data, {}).code(),
            Errc::already_exists);
  EXPECT_TRUE(holds(*volume, key_of(1), data));
}

TEST(Volume, refuses_nothing_too_much_and_data_of_another_crc) {
  Bench bench;
  auto volume = bench.open();
  EXPECT_EQ(volume->append(key_of(1), {}, {}, {}).code(), Errc::invalid_argument);
  const auto data = made_up(10, 1);
  EXPECT_EQ(volume->append(key_of(1), {0, std::string(256, 'x'), {}}, data, {}).code(),
            Errc::invalid_argument);
  EXPECT_EQ(volume->append(key_of(1), {}, data, Crc32c(1)).code(), Errc::checksum);
  EXPECT_EQ(volume->find(key_of(1)).code(), Errc::not_found);
}

TEST(Volume, a_wrong_cookie_never_gives_or_deletes) {
  Bench bench;
  auto volume = bench.open();
  const auto data = made_up(10, 1);
  ASSERT_TRUE(volume->append({1, 5}, {}, data, {}).ok());
  EXPECT_EQ(volume->find({1, 6}).code(), Errc::permission);
  EXPECT_EQ(volume->remove({1, 6}).code(), Errc::permission);
  EXPECT_TRUE(holds(*volume, {1, 5}, data));
}

TEST(Volume, a_deleted_needle_is_gone_for_good_but_its_readers_finish) {
  Bench bench;
  auto volume = bench.open();
  const auto data = made_up(100'000, 1);
  ASSERT_TRUE(volume->append(key_of(1), {}, data, {}).ok());
  const Needle reader = volume->find(key_of(1)).value();
  EXPECT_EQ(volume->remove(key_of(1)).value(), Length(100'000));
  EXPECT_EQ(volume->find(key_of(1)).code(), Errc::not_found);
  EXPECT_EQ(volume->remove(key_of(1)).code(), Errc::not_found);
  std::vector<std::byte> into(data.size());
  EXPECT_TRUE(reader.read(Offset(0), into).ok());
  EXPECT_EQ(into, data);
  // A late writer does not bring it back, neither now nor after a restart.
  EXPECT_EQ(volume->append(key_of(1), {}, data, {}).code(), Errc::already_exists);
  volume = bench.open();
  EXPECT_EQ(volume->find(key_of(1)).code(), Errc::not_found);
  EXPECT_EQ(volume->append(key_of(1), {}, data, {}).code(), Errc::already_exists);
  EXPECT_EQ(volume->stats().needles, 0u);
  EXPECT_EQ(volume->stats().deletions, 1u);
}

TEST(Volume, name_and_type_come_back) {
  Bench bench;
  auto volume = bench.open();
  ASSERT_TRUE(
      volume->append(key_of(1), {kFlagManifest, "a name", "text/x"}, made_up(5, 1), {}).ok());
  volume = bench.open();
  const Needle needle = volume->find(key_of(1)).value();
  EXPECT_FALSE(needle.plain());
  EXPECT_EQ(needle.meta().value().name, "a name");
  EXPECT_EQ(needle.meta().value().mime, "text/x");
}

TEST(Volume, every_damaged_byte_of_data_is_told_and_not_given) {
  Bench bench;
  auto volume = bench.open();
  const auto data = made_up(3 * kBlockBytes, 1);
  ASSERT_TRUE(volume->append(key_of(1), {}, data, {}).ok());
  const std::uint64_t data_at = kSuperBytes + kHeaderBytes + kDataSizeBytes;
  Prng prng(5);
  for (int i = 0; i < 30; ++i) {
    const std::uint64_t at = prng.below(data.size());
    ASSERT_TRUE(bench.disk.flip("3.dat", Offset(data_at + at), 0x04).ok());
    for (const bool restart : {false, true}) {
      if (restart) {
        ASSERT_TRUE(volume->save().ok());
        volume = bench.open();  // by its index: the block checks are not known any more
      }
      EXPECT_EQ(fetch(*volume, key_of(1)).code(), Errc::checksum);
      std::vector<std::byte> one(1);
      EXPECT_EQ(volume->find(key_of(1))->read(Offset(at), one).code(), Errc::checksum);
      EXPECT_GT(volume->stats().damaged, 0u);
    }
    ASSERT_TRUE(bench.disk.flip("3.dat", Offset(data_at + at), 0x04).ok());
    EXPECT_TRUE(holds(*volume, key_of(1), data));
  }
}

TEST(Volume, a_full_disk_refuses_appends_lets_deletions_through_and_recovers) {
  Bench bench;
  VolumeOptions options;
  options.keep_free = Length(10'000);
  auto volume = bench.open(options);
  const auto data = made_up(50'000, 1);
  ASSERT_TRUE(volume->append(key_of(1), {}, data, {}).ok());
  bench.disk.set_free_space(Length(40'000));
  EXPECT_EQ(volume->append(key_of(2), {}, data, {}).code(), Errc::exhausted);
  EXPECT_EQ(volume->check_writable(Length(50'000)).error().code, Errc::exhausted);
  EXPECT_FALSE(volume->stats().writable);
  EXPECT_TRUE(volume->remove(key_of(1)).ok());
  bench.disk.set_free_space(Length(1u << 30));
  EXPECT_TRUE(volume->append(key_of(2), {}, data, {}).ok());
  EXPECT_TRUE(volume->check_writable(Length(1)).ok());
  EXPECT_TRUE(volume->stats().writable);
}

TEST(Volume, an_append_that_fails_half_way_leaves_no_trace) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Bench bench(seed);
    auto volume = bench.open();
    const auto first = made_up(3000, 1);
    const auto second = made_up(5000, 2);
    ASSERT_TRUE(volume->append(key_of(1), {}, first, {}).ok());
    bench.disk.fail_after(0, Error::make(Errc::exhausted, "planted", 28), false);
    EXPECT_EQ(volume->append(key_of(2), {}, second, {}).code(), Errc::exhausted);
    EXPECT_EQ(bench.disk.contents("3.dat")->size(), volume->stats().size.raw());
    EXPECT_EQ(volume->find(key_of(2)).code(), Errc::not_found);
    EXPECT_TRUE(volume->append(key_of(2), {}, second, {}).ok());
    bench.disk.crash();
    volume = bench.open();
    EXPECT_TRUE(holds(*volume, key_of(1), first));
    EXPECT_TRUE(holds(*volume, key_of(2), second));
  }
}

TEST(Volume, a_failed_sync_is_not_known_stops_writes_and_heals_by_rewriting) {
  Bench bench;
  auto volume = bench.open();
  const auto data = made_up(3000, 1);
  ASSERT_TRUE(volume->append(key_of(1), {}, data, {}).ok());
  bench.disk.fail_after(1, Error::make(Errc::io, "planted", 5), false);
  EXPECT_EQ(volume->append(key_of(2), {}, data, {}).code(), Errc::aborted);
  // The next sync would work: it proves nothing about the bytes of the failed one.
  EXPECT_EQ(volume->append(key_of(3), {}, data, {}).code(), Errc::io);
  EXPECT_EQ(volume->remove(key_of(1)).code(), Errc::io);
  EXPECT_FALSE(volume->stats().writable);
  EXPECT_TRUE(holds(*volume, key_of(1), data));
  ASSERT_TRUE(volume->compact().ok());
  EXPECT_TRUE(volume->append(key_of(3), {}, data, {}).ok());
  EXPECT_TRUE(volume->stats().writable);
  bench.disk.crash();
  volume = bench.open();
  EXPECT_TRUE(holds(*volume, key_of(1), data));
  EXPECT_TRUE(holds(*volume, key_of(3), data));
}

TEST(Volume, a_full_volume_and_a_read_only_one_say_so) {
  Bench bench;
  VolumeOptions options;
  options.size_max = Length(10'000);
  auto volume = bench.open(options);
  ASSERT_TRUE(volume->append(key_of(1), {}, made_up(6'000, 1), {}).ok());
  EXPECT_EQ(volume->append(key_of(2), {}, made_up(6'000, 2), {}).code(), Errc::exhausted);
  volume->set_read_only(true);
  EXPECT_EQ(volume->append(key_of(2), {}, made_up(60, 2), {}).code(), Errc::unsupported);
  EXPECT_EQ(volume->remove(key_of(1)).code(), Errc::unsupported);
  volume->set_read_only(false);
  EXPECT_TRUE(volume->append(key_of(2), {}, made_up(60, 2), {}).ok());
}

TEST(Volume, a_file_that_is_not_ours_is_refused) {
  Bench bench;
  bench.disk.put("3.dat", made_up(4096, 1));
  bench.directory = bench.disk.directory();
  EXPECT_EQ(Volume::open(*bench.directory, VolumeId(3), {}, true).code(), Errc::corrupt);
  const auto super = encode_superblock({VolumeId(4), 1, 0});
  bench.disk.put("3.dat", {super.begin(), super.end()});
  EXPECT_EQ(Volume::open(*bench.directory, VolumeId(3), {}, true).code(), Errc::corrupt);
  EXPECT_EQ(Volume::open(*bench.directory, VolumeId(5), {}, false).code(), Errc::not_found);
}

// Writers of a real file: fewer syncs than appends by the batch rule, one each by the other.
TEST(Volume, syncs_are_shared_by_the_batch_rule_only) {
  for (const SyncRule rule : {SyncRule::batch, SyncRule::always}) {
    testing::TempDir temp;
    auto directory = disk::open_directory(temp.file("v"), {}).value();
    VolumeOptions options;
    options.sync = rule;
    options.keep_free = Length(0);
    auto volume = Volume::open(*directory, VolumeId(1), options, true).value();
    constexpr unsigned kThreads = 8;
    constexpr unsigned kEach = 20;
    std::atomic<unsigned> right{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (unsigned i = 0; i < kEach; ++i) {
          const std::uint64_t id = 1 + t * kEach + i;
          const auto data = made_up(20'000 + id, id);
          if (volume->append(key_of(id), {}, data, {}).ok() && holds(*volume, key_of(id), data))
            right.fetch_add(1);
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(right.load(), kThreads * kEach);
    EXPECT_EQ(volume->stats().needles, kThreads * kEach);
    if (rule == SyncRule::always) {
      EXPECT_EQ(volume->stats().syncs, kThreads * kEach);
    } else {
      EXPECT_LE(volume->stats().syncs, kThreads * kEach);
    }
  }
}

}  // namespace
}  // namespace farlift::s3::volume
