// HashLane: the digests of a body, taken by a thread of their own while the same bytes go to a
// volume.
//
//   HashLane lane(wanted, slots);
//   lane.wait_free(slot);  fill slot;  lane.push(slot bytes);  send the same bytes;  ...
//   const BodyDigests digests = lane.finish();
//
// Invariants: a slot that was pushed is not touched by its owner until wait_free() returned for it;
// slots
//             are pushed in turn. Bodies that fit one slot are hashed by finish(), without a
//             thread.
// Threads:    one owner. Errors: none.
#pragma once

#include "core/base/mutex.h"
#include "s3/gateway/checksum.h"

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace farlift::s3::gateway {

struct WantedDigests {
  bool md5 = true;
  bool sha256 = false;
  std::vector<Algorithm> checksums;
};

struct BodyDigests {
  std::optional<digest::Md5Digest> md5;
  std::optional<digest::Sha256Digest> sha256;
  std::vector<std::pair<Algorithm, std::string>> checksums;  // base64
};

class HashLane {
 public:
  // `slots`: how many buffers take turns.
  HashLane(const WantedDigests& wanted, std::size_t slots);
  HashLane(const HashLane&) = delete;
  HashLane& operator=(const HashLane&) = delete;
  ~HashLane();

  // Until the slot that is to be filled next is not being hashed any more.
  void wait_free();
  void push(std::span<const std::byte> bytes);
  BodyDigests finish();

 private:
  void run();
  void update(std::span<const std::byte> bytes);

  const std::size_t slots_;
  std::optional<digest::Md5> md5_;
  std::optional<digest::Sha256> sha256_;
  std::vector<ChecksumStream> checksums_;

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::span<const std::byte>> queue_ GUARDED_BY(mutex_);
  std::size_t pushed_ GUARDED_BY(mutex_) = 0;
  std::size_t hashed_ GUARDED_BY(mutex_) = 0;
  bool ending_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace farlift::s3::gateway
