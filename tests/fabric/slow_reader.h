// Readers that stop in the middle of a read while the node rotates and refills the arena below them
// (spec kv, T53 and T54).
//
// Threads: the rig's. Errors: expectations of GoogleTest.
#pragma once

#include "tests/fabric/rig.h"

namespace farlift::kv::rig {

struct SlowReads {
  std::uint64_t done = 0;
  std::uint64_t caught = 0;  // the rotation began while the read was under way
  std::uint64_t whole = 0;   // reported ok, and the bytes are the committed ones
  std::uint64_t wrong = 0;   // reported ok, and they are not
  std::uint64_t none = 0;    // reported as anything else
};

// User 0 writes, user 1 reads values of `size` bytes. Ends after `rounds`, or with the first wrong
// read when `until_wrong`.
SlowReads slow_reads(Rig& rig, std::size_t size, std::uint64_t rounds, bool until_wrong = false);

}  // namespace farlift::kv::rig
