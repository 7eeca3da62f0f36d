// The io_uring implementation: a long read is cut into pieces that are in flight together, so that
// a device with many queues works on all of them; everything else is done by plain system calls, as
// posix.h does it. Chosen by probing: a kernel may lack io_uring or forbid it.
//
// Threads and errors: as core/disk/disk.h. A thread that reads borrows a ring for the time of one
// call; there are as many rings as threads ever read at once, at most kRingsMax (beyond that plain
// reads serve).
#pragma once

#include "core/base/unique_fd.h"
#include "core/disk/disk.h"

#include <cstddef>
#include <memory>

namespace farlift::disk::uring {

inline constexpr std::size_t kRingsMax = 64;
inline constexpr std::size_t kPieceBytes = 256u << 10;
inline constexpr unsigned kPiecesInFlight = 16;  // of one call
// Shorter reads gain nothing from being cut.
inline constexpr std::size_t kLongRead = 2 * kPieceBytes;

// Makes a ring and reads through it; the error says why this cannot be used.
Status probe();

// `fd` is the open directory.
std::unique_ptr<Directory> make_directory(UniqueFd fd);

}  // namespace farlift::disk::uring
