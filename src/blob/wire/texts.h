// Every error text of the blob door (spec blob 4), word for word. Clients classify by the leading
// words, so a text is never changed, only followed by ": detail".
//
// Threads: constants. Errors: none.
#pragma once

#include <cstddef>

namespace farlift::blob::wire::text {

inline constexpr const char kTriples[] = "ERR memory address args must be rkey, addr, len triples";
inline constexpr const char kTooManyRegions[] = "ERR too many memory addresses (max 256)";
inline constexpr const char kInvalidRkey[] = "ERR invalid rkey";
inline constexpr const char kInvalidAddr[] = "ERR invalid memory address";
inline constexpr const char kInvalidRegionLen[] = "ERR invalid memory address len";
inline constexpr const char kInvalidLen[] = "ERR invalid len";
inline constexpr const char kInvalidCrc[] = "ERR invalid crc";
inline constexpr const char kEmptyObject[] = "ERR object length must be > 0";
inline constexpr const char kTooLarge[] = "ERR max object size exceeded";
inline constexpr const char kNoSession[] = "ERR no RDMA session (call BLOB.RDMA_HELLO first)";
inline constexpr const char kSessionExists[] = "ERR RDMA session already established";
inline constexpr const char kNoProvider[] = "ERR RDMA provider unavailable on this instance";
inline constexpr const char kInvalidHex[] = "ERR invalid rdma address hex";
inline constexpr const char kEmptyAddress[] = "ERR rdma address must not be empty";
inline constexpr const char kAddressLengthEfa[] = "ERR rdma address must be 32 bytes";
inline constexpr const char kAddressLengthSocket[] = "ERR rdma address must be 16 or 28 bytes";
inline constexpr const char kAddressLengthAny[] = "ERR rdma address must be 16, 28 or 32 bytes";
inline constexpr const char kSessionCreate[] = "ERR session create";  // + ": detail"
inline constexpr const char kCoverage[] = "ERR client address space smaller than object length";
inline constexpr const char kCrcMismatch[] = "ERR CRC32C mismatch";
inline constexpr const char kWriteFailed[] = "ERR RDMA write failed";  // + ": fabric text"
inline constexpr const char kReadFailed[] = "ERR RDMA read failed";    // + ": fabric text"
inline constexpr const char kOutOfMemory[] =
    "OOM command not allowed when used memory > 'maxmemory'.";
inline constexpr const char kOutOfDisk[] =
    "OOM command not allowed when used disk space > 'disk-maxmemory'.";
inline constexpr const char kStagingExhausted[] =
    "ERR disk staging buffer pool exhausted; retry later";
inline constexpr const char kDiskReadFailed[] = "ERR disk read failed";
inline constexpr const char kDiskWriteFailed[] = "ERR disk write failed";
inline constexpr const char kCommitFailed[] = "ERR failed to set key";
inline constexpr const char kInvalidField[] = "ERR invalid information field";
inline constexpr const char kWrongType[] =
    "WRONGTYPE Operation against a key holding the wrong kind of value";
inline constexpr const char kInTransaction[] =
    "ERR Blocking module command called from transaction";
inline constexpr const char kShuttingDown[] = "ERR server is shutting down";
// Configuration (spec blob 9).
inline constexpr const char kSegmentBelowChunk[] = "ERR segment-size must be >= chunk-size";
inline constexpr const char kBuffersMaxBelowMin[] =
    "ERR max-buffers-per-op must be >= min-buffers-per-op";
inline constexpr const char kSegmentBelowObject[] =
    "ERR segment-size is insufficient for max-object-size";
inline constexpr const char kSegmentBelowPromote[] =
    "ERR segment-size is insufficient for max-promote-size";
inline constexpr const char kStagingBelowSegment[] =
    "ERR disk-staging-size must be >= segment-size";
inline constexpr const char kDiskBelowObject[] =
    "ERR disk-maxmemory must be >= max-object-size in Tiered mode";

// A whole reply stays within this many bytes (spec blob 2 rule 4).
inline constexpr std::size_t kReplyBytesMax = 128;

}  // namespace farlift::blob::wire::text
