#include "blob/client/verify.h"

#include "core/digest/crc32c.h"

#include <algorithm>
#include <system_error>
#include <thread>

namespace farlift::client {
namespace {

// Below this a second thread costs more than it saves.
constexpr std::size_t kTwoThreadsMin = std::size_t{4} << 20;

std::uint64_t end_of(Offset offset, Length length) { return offset.raw() + length.raw(); }

bool touches(const fabric::LandedRun& run, Extent extent) {
  return run.offset.raw() < end_of(extent.offset, extent.length) &&
         extent.offset.raw() < end_of(run.offset, run.length);
}

std::vector<Extent> sorted(std::span<const Extent> extents) {
  std::vector<Extent> out(extents.begin(), extents.end());
  std::sort(out.begin(), out.end(), [](Extent a, Extent b) { return a.offset < b.offset; });
  return out;
}

}  // namespace

std::optional<Crc32c> combine_landed(std::span<const fabric::LandedRun> runs, Extent extent) {
  std::vector<fabric::LandedRun> inside;
  inside.reserve(runs.size());
  for (const fabric::LandedRun& run : runs) {
    if (run.length.raw() > 0 && touches(run, extent)) inside.push_back(run);
  }
  std::sort(inside.begin(), inside.end(),
            [](const auto& a, const auto& b) { return a.offset < b.offset; });
  Offset next = extent.offset;
  Crc32c crc{};
  for (const fabric::LandedRun& run : inside) {
    if (run.offset != next) return std::nullopt;  // a gap, an overlap, or a start before the extent
    crc = digest::crc32c_combine(crc, run.crc, run.length);
    next = run.offset + run.length;
  }
  if (next.raw() != end_of(extent.offset, extent.length)) return std::nullopt;
  return crc;
}

bool within_extents(std::span<const fabric::LandedRun> runs, std::span<const Extent> extents) {
  std::vector<Extent> merged;
  for (const Extent one : sorted(extents)) {
    if (!merged.empty() && end_of(merged.back().offset, merged.back().length) >= one.offset.raw()) {
      const std::uint64_t end = std::max(end_of(merged.back().offset, merged.back().length),
                                         end_of(one.offset, one.length));
      merged.back().length = Length(end - merged.back().offset.raw());
    } else {
      merged.push_back(one);
    }
  }
  return std::all_of(runs.begin(), runs.end(), [&](const fabric::LandedRun& run) {
    auto after = std::upper_bound(merged.begin(), merged.end(), run.offset,
                                  [](Offset at, Extent extent) { return at < extent.offset; });
    if (after == merged.begin()) return run.length.raw() == 0;
    const Extent& home = *std::prev(after);
    return end_of(run.offset, run.length) <= end_of(home.offset, home.length);
  });
}

Crc32c hash_memory(std::span<const std::byte> bytes) {
  if (bytes.size() < kTwoThreadsMin || std::thread::hardware_concurrency() < 2) {
    return digest::crc32c(bytes);
  }
  const std::span<const std::byte> front = bytes.first(bytes.size() / 2);
  const std::span<const std::byte> back = bytes.subspan(front.size());
  Crc32c crc_back{};
  std::thread second;
  try {
    second = std::thread([&crc_back, back] { crc_back = digest::crc32c(back); });
  } catch (const std::system_error&) {  // no thread to be had
    return digest::crc32c(bytes);
  }
  const Crc32c crc_front = digest::crc32c(front);
  second.join();
  return digest::crc32c_combine(crc_front, crc_back, Length(back.size()));
}

bool overlapping(std::span<const Extent> extents) {
  const std::vector<Extent> all = sorted(extents);
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (end_of(all[i - 1].offset, all[i - 1].length) > all[i].offset.raw()) return true;
  }
  return false;
}

}  // namespace farlift::client
