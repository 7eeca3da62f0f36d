// Access: who may read and write which needle (spec s3 8.2, 8.3). Keys may change while requests
// run: each operation asks anew, also on connections that are open already.
//
// Invariants: without a key everybody may; with one, only who shows a valid JWT for exactly that
//             fid. No key is ever logged.
// Threads:    any. Errors: a verdict.
#pragma once

#include "core/base/mutex.h"
#include "core/digest/hash.h"
#include "s3/volume/volume.h"
#include "s3/wire/jwt.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace farlift::s3::volume {

struct AccessKeys {
  std::string write;  // [jwt.signing]; empty: no key
  std::string read;   // [jwt.signing.read]
};

enum class Right : std::uint8_t { read, write };

class Access {
 public:
  // `ignore_reads`: --rdma.allow-unauthenticated-reads, for the control port only.
  Access(const AccessKeys& keys, bool ignore_reads, WallClock now);
  void set_keys(const AccessKeys& keys);

  bool required(Right right) const;  // there is a key
  // `fid` as the request names it.
  JwtVerdict check(Right right, std::string_view jwt, std::string_view fid) const;
  JwtVerdict check_push(std::string_view jwt, std::string_view fid) const;
  bool ignores_reads() const noexcept { return ignore_reads_; }
  // To write to a replica as we were allowed to; empty without a key.
  std::string sign_write(std::string_view fid) const;

 private:
  using Key = std::shared_ptr<const digest::HmacKey>;
  Key key(Right right) const;
  const bool ignore_reads_;
  const WallClock now_;
  mutable Mutex mutex_;
  Key write_ GUARDED_BY(mutex_);
  Key read_ GUARDED_BY(mutex_);
};

}  // namespace farlift::s3::volume
