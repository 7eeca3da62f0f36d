// Writes: how needles come and go, whichever port they come by: on this volume and on its named
// peers.
//
// A needle is first written to the peers and then here, so that a peer that is down costs nothing:
// what a failed write left on other peers is deleted again. An outcome is `committed` only when all
// hold it durably, `not_committed` only when certainly nobody holds it because of this write, else
// `unknown`. What an earlier write has committed is never taken back.
//
// Threads: any. Errors: see WriteOutcome; remove(): as Volume::remove, unreachable and the like of
// a
//          peer (the needle is then deleted here).
#pragma once

#include "core/base/result.h"
#include "s3/volume/store.h"
#include "s3/volume/uploads.h"

#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace farlift::s3::volume {

// Another volume server that holds the same volumes.
class Peer {
 public:
  virtual ~Peer() = default;
  // ok: the peer holds it durably; true: it did so before. `sent`: set when the peer may hold it
  // although this failed.
  virtual Result<bool> put(const NeedleRef& needle, const NeedleMeta& meta,
                           std::span<const std::byte> data, Crc32c crc, bool* sent) = 0;
  // ok: the peer does not hold it any more, or never did.
  virtual Status remove(const NeedleRef& needle) = 0;
};

class Writes {
 public:
  // `uploads` may be set later: it needs write() itself.
  Writes(Store& store, std::vector<std::shared_ptr<Peer>> peers)
      : store_(store), peers_(std::move(peers)) {}
  void set_uploads(Uploads* uploads) noexcept { uploads_ = uploads; }

  // `replicate` false: a peer sent it, which sees to the others itself.
  WriteOutcome write(const NeedleRef& needle, const NeedleMeta& meta,
                     std::span<const std::byte> data, std::optional<Crc32c> expected,
                     bool replicate);
  Result<Length> remove(const NeedleRef& needle, bool replicate);
  // Whether a needle of that length could be written now.
  Status check(const NeedleRef& needle, Length length);

 private:
  WriteOutcome write_with_peers(Volume& volume, const NeedleRef& needle, const NeedleMeta& meta,
                                std::span<const std::byte> data, std::optional<Crc32c> expected);
  Status put_to_peers(const NeedleRef& needle, const NeedleMeta& meta,
                      std::span<const std::byte> data, Crc32c crc, std::span<bool> may_hold);
  bool take_back(const NeedleRef& needle, std::span<const bool> may_hold);

  Store& store_;
  const std::vector<std::shared_ptr<Peer>> peers_;
  Uploads* uploads_ = nullptr;
};

}  // namespace farlift::s3::volume
