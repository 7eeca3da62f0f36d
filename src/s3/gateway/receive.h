// receive(): the body of a PUT or UploadPart into needles, every claim about it checked.
//
// Invariants: on failure nothing is left but fids that the sweep deletes; on success the needles
// are the
//             caller's to publish, or to discard() by BodyWriter.
// Threads:    one. Errors: as S3 names them.
#pragma once

#include "s3/gateway/body_writer.h"
#include "s3/gateway/call.h"
#include "s3/gateway/object_fields.h"

#include <optional>
#include <string>

namespace farlift::s3::gateway {

struct Received {
  StoredBody body;
  std::string etag;  // MD5, 32 hex digits
  std::optional<catalog::Checksum> checksum;
};

// `fallback`: an algorithm to compute when the request names none.
S3Result<Received> receive(Call& call, std::optional<Algorithm> fallback = std::nullopt);
// Publishing failed: they are garbage.
void drop(Call& call, const Received& received);

}  // namespace farlift::s3::gateway
