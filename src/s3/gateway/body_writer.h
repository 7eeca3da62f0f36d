// BodyWriter: the body of a request into needles, hashed on the way.
//
// Invariants: memory per request is bounded by kSlots buffers, whatever the size. On failure every
// fid is
//             discarded before write() returns; on success they are the caller's to publish or
//             discard(). Bytes count as stored only when the volume's CRC-32C of each needle equals
//             ours.
// Threads:    one. Errors: those of the payload and of the cluster, as S3 names them.
#pragma once

#include "s3/gateway/hash_lane.h"
#include "s3/gateway/payload.h"
#include "s3/gateway/services.h"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace farlift::s3::gateway {

struct StoredBody {
  std::vector<catalog::Chunk> chunks;
  std::uint64_t size = 0;
  BodyDigests digests;
};

class BodyWriter {
 public:
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kSlotBytes = std::size_t{128} << 10;

  // 0: the end; called until then.
  using Source = std::function<S3Result<std::size_t>(std::span<std::byte>)>;

  explicit BodyWriter(Services& services) : services_(services) {}
  // `length`: what the source will give, when known.
  S3Result<StoredBody> write(const Source& source, std::optional<std::uint64_t> length,
                             const WantedDigests& wanted);
  // What was stored is not wanted after all.
  void discard(const StoredBody& body);

 private:
  struct Pending {
    std::unique_ptr<VolumeClient::Upload> upload;
    Crc32c crc;
    std::uint64_t length = 0;
  };
  struct Buffers {
    std::size_t slots = 0;
    std::size_t slot_bytes = 0;
    std::unique_ptr<std::byte[]> memory = {};  // outlives the lane, which may hash to the end
  };
  S3Status run(const Source& source, std::optional<std::uint64_t> length, const Buffers& buffers,
               HashLane& lane);
  S3Status begin_chunk(std::uint64_t length);
  S3Status take(std::span<const std::byte> bytes);
  S3Status end_oldest();
  void fail_all();

  Services& services_;
  std::vector<Place> places_;  // one a chunk begun
  std::vector<Place> spare_;
  std::vector<catalog::Chunk> chunks_;
  std::deque<Pending> pending_;
  std::uint64_t chunk_left_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace farlift::s3::gateway
