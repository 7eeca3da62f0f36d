// What landed: the checksum of a value from the runs that the fabric reported, without reading the
// memory again.
//
// Threads: pure functions. Errors: none; nullopt means "read the memory to know".
#pragma once

#include "core/base/types.h"
#include "core/fabric/fabric.h"

#include <optional>
#include <span>
#include <vector>

namespace farlift::client {

// The part of a registration that a transfer may touch.
struct Extent {
  Offset offset;
  Length length;
};

// The CRC-32C of `extent`, when `runs` (in any order) contain it exactly: every byte once, and no
// run across its borders. A byte that landed twice was overwritten after it was hashed: nullopt.
std::optional<Crc32c> combine_landed(std::span<const fabric::LandedRun> runs, Extent extent);

// True when every run lies inside the union of the extents: nothing landed where nothing was
// granted.
bool within_extents(std::span<const fabric::LandedRun> runs, std::span<const Extent> extents);

// The CRC-32C of memory; a long stretch is hashed by two threads where there are two cores.
Crc32c hash_memory(std::span<const std::byte> bytes);

// True when two of the extents share a byte.
bool overlapping(std::span<const Extent> extents);

}  // namespace farlift::client
