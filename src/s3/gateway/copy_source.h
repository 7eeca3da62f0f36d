// The source of a copy, whole or in parts, and how its bytes are copied.
//
// Invariants: a copy stands by itself: its bytes are copied, no needle has two owners.
// Threads:    one. Errors: as S3 names them.
#pragma once

#include "s3/gateway/body_sender.h"
#include "s3/gateway/body_writer.h"
#include "s3/gateway/object_fields.h"

#include <memory>
#include <string>

namespace farlift::s3::gateway {

struct CopySource {
  std::string bucket;
  std::string key;
  std::string version;  // as asked for; empty: the current one
  catalog::Object object;
  std::unique_ptr<catalog::ReadLease> lease;
};

// Of x-amz-copy-source; authorized, and its conditions hold.
S3Result<CopySource> find_source(Call& call);
S3Result<StoredBody> copy_bytes(Call& call, const CopySource& source, std::uint64_t from,
                                std::uint64_t length, const WantedDigests& wanted);

}  // namespace farlift::s3::gateway
