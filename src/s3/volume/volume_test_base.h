// What the tests of needle files share: made-up data and a disk that crashes.
#pragma once

#include "core/base/log.h"
#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/disk/sim/sim.h"
#include "s3/volume/volume.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

namespace farlift::s3::volume {

inline std::vector<std::byte> made_up(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> out(size);
  Prng prng(seed);
  for (auto& b : out) b = static_cast<std::byte>(prng.next());
  return out;
}

inline NeedleKey key_of(std::uint64_t id) {
  return {id, static_cast<std::uint32_t>(id * 2654435761u)};
}

// A volume on a simulated disk.
struct Bench {
  explicit Bench(std::uint64_t seed = 1) : disk(seed), directory(disk.directory()) {
    set_log_sink([](LogLevel, std::string_view) noexcept {});  // damage is what these tests make
  }
  std::shared_ptr<Volume> open(VolumeOptions options = {}) {
    directory = disk.directory();
    auto volume = Volume::open(*directory, VolumeId(3), options, true);
    EXPECT_TRUE(volume.ok()) << volume.error().describe();
    return volume.ok() ? *volume : nullptr;
  }
  disk::sim::SimDisk disk;
  std::unique_ptr<disk::Directory> directory;
};

// The whole needle, or the error.
inline Result<std::vector<std::byte>> fetch(Volume& volume, const NeedleKey& key) {
  TRY_ASSIGN(const Needle needle, volume.find(key));
  std::vector<std::byte> bytes(needle.length().raw());
  TRY_ASSIGN(const Crc32c crc, needle.read(Offset(0), bytes));
  EXPECT_EQ(crc, digest::crc32c(bytes));
  return bytes;
}

inline ::testing::AssertionResult holds(Volume& volume, const NeedleKey& key,
                                        const std::vector<std::byte>& bytes) {
  const auto got = fetch(volume, key);
  if (!got.ok()) return ::testing::AssertionFailure() << got.error().describe();
  if (*got != bytes) return ::testing::AssertionFailure() << "other bytes";
  return ::testing::AssertionSuccess();
}

}  // namespace farlift::s3::volume
