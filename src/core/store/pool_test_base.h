// A pool without rails and values to keep in it.
//
// Threads: as used by one test. Errors: none; what cannot fail in a test is taken.
#pragma once

#include "core/base/prng.h"
#include "core/store/pool.h"

#include <memory>
#include <utility>
#include <vector>

namespace farlift::store {

inline constexpr std::uint64_t kPage = kExtentAlign;

inline std::vector<std::byte> pattern(std::size_t length, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(length);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next());
  return bytes;
}

struct Fixture {
  memory::PinnedBudget budget{memory::PinnedBudget::kUnlimited};
  std::unique_ptr<Pool> pool;
  bool grow = true;

  Fixture(std::uint64_t segment_pages, std::uint64_t chunk_pages) {
    PoolOptions options;
    options.segment_size = Length(segment_pages * kPage);
    options.chunk_size = Length(chunk_pages * kPage);
    options.mapping.huge_pages = false;
    options.may_grow = [this](Length) { return grow; };
    pool = Pool::create({}, options, budget).value();
  }
  ObjectRef store(std::span<const std::byte> bytes) {
    Draft draft = pool->reserve(Length(bytes.size())).value();
    const Crc32c crc = draft.fill(bytes);
    return std::move(draft).seal(crc);
  }
  ObjectRef store_pages(std::uint64_t pages) { return store(pattern(pages * kPage, pages)); }
};

inline std::vector<std::byte> read(const Object& object) {
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < object.extents(); ++i)
    all.insert(all.end(), object.span(i).begin(), object.span(i).end());
  return all;
}

}  // namespace farlift::store
