// Registered memory of the caller: regions, windows into them, receipts, and what this machine can
// do.
//
//   auto buffer = farlift::RdmaBuffer::allocate(64 << 20);
//   auto region = client->register_rdma_region(*buffer);
//   auto receipt = client->rdma_get("weights", *region->window());
//
// Invariants (spec blob 10.2)
//   A region is Open, Busy with one transfer, or Closed for good. When closed() is true, or when a
//   transfer returned, no later byte appears in its memory.
//   A window lies inside its region; it outlives the region but does not revive it.
// Threads: handles are cheap to copy; each copy belongs to one thread at a time.
// Errors:  ErrorKind::rdma unless stated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "farlift/expected.h"
#include "farlift/options.h"

namespace farlift {

class RdmaWindow;
namespace client {
class Region;
class BufferState;
}  // namespace client

// A Registered stretch of the caller's memory. Dropping the last handle closes it (after the
// transfer that uses it).
class FARLIFT_API RdmaRegion {
 public:
  std::size_t capacity() const noexcept;  // bytes
  bool closed() const noexcept;

  // [offset, offset + length) of the region; no length: to its end. Past the end, or a closed
  // region: rdma.
  Expected<RdmaWindow> window(std::size_t offset = 0,
                              std::optional<std::size_t> length = std::nullopt) const;
  // The whole region. A closed region: rdma.
  Expected<std::span<std::byte>> memory() const;

  // Ends remote access, then gives the memory back. Idempotent. While a transfer uses the region:
  // rdma, and nothing changes.
  Expected<void> close();

  friend bool operator==(const RdmaRegion&, const RdmaRegion&) = default;

 private:
  friend class Client;
  friend class RdmaWindow;
  explicit RdmaRegion(std::shared_ptr<client::Region> state) noexcept : state_(std::move(state)) {}
  std::shared_ptr<client::Region> state_;
};

class FARLIFT_API RdmaWindow {
 public:
  RdmaRegion region() const { return RdmaRegion(state_); }
  std::size_t offset() const noexcept { return offset_; }
  std::size_t length() const noexcept { return length_; }
  // The window's bytes. A closed region: rdma.
  Expected<std::span<std::byte>> memory() const;

 private:
  friend class Client;
  friend class RdmaRegion;
  RdmaWindow(std::shared_ptr<client::Region> state, std::size_t offset, std::size_t length) noexcept
      : state_(std::move(state)), offset_(offset), length_(length) {}
  std::shared_ptr<client::Region> state_;
  std::size_t offset_ = 0;
  std::size_t length_ = 0;
};

struct RdmaReadReceipt {
  std::uint64_t bytes_written = 0;  // length of the value, from the start of the (first) window
  std::uint32_t checksum =
      0;  // CRC-32C of those bytes; compared with what landed unless verify is off
};

// What `BLOB.INFO` says about a large value.
struct BlobInfo {
  std::uint64_t length = 0;
  std::uint32_t checksum = 0;
  std::string tier;  // "dram" or "disk"
};

struct RdmaBufferOptions {
  bool huge_pages = true;  // 2 MiB pages where the host has free ones, ordinary pages else
  int numa_node = -1;      // preferred node, -1: none
};

// Page-aligned, zero-filled memory that registers well. A copy shares the memory; regions made from
// it keep it alive.
class FARLIFT_API RdmaBuffer {
 public:
  static Expected<RdmaBuffer> allocate(std::size_t length, const RdmaBufferOptions& options = {});
  std::span<std::byte> bytes() const noexcept;  // exactly the length asked for
  bool huge_pages() const noexcept;

 private:
  friend class Client;
  explicit RdmaBuffer(std::shared_ptr<client::BufferState> state) noexcept
      : state_(std::move(state)) {}
  std::shared_ptr<client::BufferState> state_;
};

// True: this build has RDMA support.
FARLIFT_API bool rdma_available() noexcept;

struct RdmaUsability {
  bool usable = false;
  std::string version;  // of the library that would serve, empty when none was found
  std::string reason;   // why not, empty when usable
};
// Whether libfabric loads here and is at least 2.4 and below 3. This call loads it.
FARLIFT_API RdmaUsability rdma_usable();
// The same for one provider, with that provider's version rule; soft is always usable and loads
// nothing.
FARLIFT_API RdmaUsability rdma_usable(RdmaProvider provider);

// CRC-32C (Castagnoli), as the server stores it.
FARLIFT_API std::uint32_t rdma_checksum(std::span<const std::byte> data) noexcept;

}  // namespace farlift
