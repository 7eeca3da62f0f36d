// The three disks by one list of expectations, and what is true of the real ones only.
#include "core/disk/disk.h"

#include "core/base/prng.h"
#include "core/disk/posix.h"
#include "core/disk/sim/sim.h"
#include "core/disk/uring/uring.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::disk {
namespace {

std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> out(size);
  Prng prng(seed);
  for (auto& b : out) b = static_cast<std::byte>(prng.next());
  return out;
}

class Disk : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "sim") {
      directory_ = machine_.directory();
      return;
    }
    if (GetParam() == "uring" && !uring::probe().ok())
      GTEST_SKIP() << "no io_uring here: " << uring::probe().error().describe();
    DirectoryOptions options;
    options.backend = GetParam() == "uring" ? Backend::uring : Backend::posix;
    directory_ = open_directory(temp_.file("d"), options).value();
    EXPECT_EQ(directory_->info().backend, GetParam());
  }
  testing::TempDir temp_;
  sim::SimDisk machine_{7};
  std::unique_ptr<Directory> directory_;
};
INSTANTIATE_TEST_SUITE_P(Every, Disk, ::testing::Values("posix", "uring", "sim"),
                         [](const auto& which) { return which.param; });

TEST_P(Disk, writes_and_reads_back_every_length_and_offset) {
  auto file = directory_->open("f", OpenMode::create_new).value();
  const auto bytes = pattern(9u << 20, 1);
  ASSERT_TRUE(file->write_at(bytes, Offset(0)).ok());
  ASSERT_TRUE(file->sync().ok());
  EXPECT_EQ(file->size().value(), Length(bytes.size()));
  for (const std::size_t length :
       {std::size_t{0}, std::size_t{1}, std::size_t{4095}, uring::kLongRead - 1, uring::kLongRead,
        uring::kLongRead + 1, uring::kPieceBytes * (uring::kPiecesInFlight + 1) + 7}) {
    for (const std::uint64_t offset : {0u, 1u, 4096u, 1234567u}) {
      std::vector<std::byte> back(length);
      ASSERT_EQ(file->read_at(back, Offset(offset)).value(), length);
      EXPECT_TRUE(std::equal(back.begin(), back.end(),
                             bytes.begin() + static_cast<std::ptrdiff_t>(offset)));
    }
  }
}

TEST_P(Disk, a_read_over_the_end_is_short_and_an_exact_one_refused) {
  auto file = directory_->open("f", OpenMode::create_new).value();
  const auto bytes = pattern((3u << 20) + 5, 2);
  ASSERT_TRUE(file->write_at(bytes, Offset(0)).ok());
  std::vector<std::byte> back(4u << 20);
  EXPECT_EQ(file->read_at(back, Offset(0)).value(), bytes.size());
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), back.begin()));
  EXPECT_EQ(file->read_at(back, Offset(bytes.size())).value(), 0u);
  EXPECT_EQ(file->read_at(back, Offset(bytes.size() + 100)).value(), 0u);
  EXPECT_EQ(file->read_exactly_at(back, Offset(0)).code(), Errc::corrupt);
}

TEST_P(Disk, many_pieces_go_one_after_the_other) {
  auto file = directory_->open("f", OpenMode::create_new).value();
  const auto bytes = pattern(100'000, 3);
  std::vector<std::span<const std::byte>> pieces;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = std::min<std::size_t>(bytes.size() - at, at % 7 == 0 ? 0 : 700);
    pieces.push_back(std::span(bytes).subspan(at, n));
    at += n == 0 ? 1 : n;
    if (n == 0) pieces.back() = std::span(bytes).subspan(at - 1, 1);
  }
  pieces.insert(pieces.begin(), std::span<const std::byte>());
  ASSERT_TRUE(file->write_at(pieces, Offset(11)).ok());
  std::vector<std::byte> back(bytes.size());
  ASSERT_TRUE(file->read_exactly_at(back, Offset(11)).ok());
  EXPECT_EQ(back, bytes);
  std::vector<std::byte> before(11);
  ASSERT_TRUE(file->read_exactly_at(before, Offset(0)).ok());
  EXPECT_EQ(before, std::vector<std::byte>(11));
}

TEST_P(Disk, names_are_made_renamed_listed_and_removed) {
  EXPECT_EQ(directory_->open("a", OpenMode::read_only).code(), Errc::not_found);
  ASSERT_TRUE(directory_->open("b", OpenMode::create_new).ok());
  EXPECT_EQ(directory_->open("b", OpenMode::create_new).code(), Errc::already_exists);
  auto a = directory_->open("a", OpenMode::create_new).value();
  ASSERT_TRUE(a->write_at(pattern(10, 4), Offset(0)).ok());
  EXPECT_EQ(directory_->list().value(), (std::vector<std::string>{"a", "b"}));
  ASSERT_TRUE(directory_->rename("a", "b").ok());
  EXPECT_EQ(directory_->list().value(), (std::vector<std::string>{"b"}));
  auto b = directory_->open("b", OpenMode::read_only).value();
  EXPECT_EQ(b->size().value(), Length(10));
  EXPECT_FALSE(b->write_at(pattern(1, 5), Offset(0)).ok());
  ASSERT_TRUE(directory_->sync().ok());
  ASSERT_TRUE(directory_->remove("b").ok());
  EXPECT_EQ(directory_->remove("b").code(), Errc::not_found);
  EXPECT_EQ(directory_->rename("b", "c").code(), Errc::not_found);
  // Whoever holds it open goes on reading.
  std::vector<std::byte> back(10);
  EXPECT_TRUE(b->read_exactly_at(back, Offset(0)).ok());
  EXPECT_GT(directory_->free_space().value(), Length(0));
}

TEST_P(Disk, a_file_is_cut_grown_with_zeros_and_emptied) {
  auto file = directory_->open("f", OpenMode::create_new).value();
  const auto bytes = pattern(1000, 6);
  ASSERT_TRUE(file->write_at(bytes, Offset(0)).ok());
  ASSERT_TRUE(file->resize(Length(10)).ok());
  ASSERT_TRUE(file->resize(Length(20)).ok());
  std::vector<std::byte> back(20);
  ASSERT_TRUE(file->read_exactly_at(back, Offset(0)).ok());
  EXPECT_TRUE(std::equal(back.begin(), back.begin() + 10, bytes.begin()));
  EXPECT_EQ(std::vector<std::byte>(back.begin() + 10, back.end()), std::vector<std::byte>(10));
  auto again = directory_->open("f", OpenMode::create_empty).value();
  EXPECT_EQ(again->size().value(), Length(0));
}

TEST_P(Disk, threads_read_different_places_at_once) {
  auto file = directory_->open("f", OpenMode::create_new).value();
  const auto bytes = pattern(8u << 20, 8);
  ASSERT_TRUE(file->write_at(bytes, Offset(0)).ok());
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 8; ++i) {
        const std::size_t at = (t * 8 + i) * 1000;
        std::vector<std::byte> back(2u << 20);
        if (file->read_exactly_at(back, Offset(at)).ok() &&
            std::equal(back.begin(), back.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at)))
          right.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 32);
}

TEST(RealDisk, names_that_leave_the_directory_are_refused) {
  testing::TempDir temp;
  auto directory = open_directory(temp.file("d"), {}).value();
  for (const std::string name : {"", ".", "..", "a/b", "../x"}) {
    EXPECT_EQ(directory->open(name, OpenMode::create_new).code(), Errc::invalid_argument) << name;
    EXPECT_EQ(directory->remove(name).error().code, Errc::invalid_argument) << name;
    EXPECT_EQ(directory->rename("x", name).error().code, Errc::invalid_argument) << name;
  }
}

TEST(RealDisk, only_one_opens_it_exclusively) {
  testing::TempDir temp;
  DirectoryOptions options;
  options.exclusive = true;
  auto first = open_directory(temp.file("d"), options).value();
  EXPECT_EQ(open_directory(temp.file("d"), options).code(), Errc::busy);
  first.reset();
  EXPECT_TRUE(open_directory(temp.file("d"), options).ok());
}

TEST(RealDisk, a_missing_parent_and_a_file_in_the_way_are_told) {
  testing::TempDir temp;
  EXPECT_EQ(open_directory(temp.file("no/such"), {}).code(), Errc::not_found);
  ASSERT_TRUE(open_directory(temp.path(), {}).value()->open("f", OpenMode::create_new).ok());
  EXPECT_FALSE(open_directory(temp.file("f"), {}).ok());
  DirectoryOptions options;
  options.create = false;
  EXPECT_EQ(open_directory(temp.file("absent"), options).code(), Errc::not_found);
}

TEST(RealDisk, a_full_device_is_exhausted) {
  PosixFile full(UniqueFd(::open("/dev/full", O_RDWR | O_CLOEXEC)));
  EXPECT_EQ(static_cast<File&>(full).write_at(pattern(10, 1), Offset(0)).error().code,
            Errc::exhausted);
}

}  // namespace
}  // namespace farlift::disk
