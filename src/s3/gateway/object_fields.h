// What of a request's fields is kept with an object, what they demand of it, and what an answer
// says of it.
//
// Threads: pure functions. Errors: as S3 names them.
#pragma once

#include "s3/gateway/call.h"
#include "s3/gateway/checksum.h"

#include <optional>
#include <string>
#include <vector>

namespace farlift::s3::gateway {

// Content-Type and its relatives, x-amz-meta-*. metadata_too_large beyond kMetadataBytesMax.
S3Result<catalog::Fields> kept_fields(const net::http::Headers& headers);
// x-amz-tagging: "a=1&b=2".
S3Result<catalog::Fields> tags_of_header(std::string_view field);
// Refuses what would silently not happen: encryption, ACLs, storage classes, object lock.
S3Status refuse_unserved(const net::http::Headers& headers);

// What a request with a body says about its digests.
struct ClaimedDigests {
  std::optional<digest::Md5Digest> md5;
  // At most one, by header or announced as a trailer.
  std::optional<Algorithm> algorithm;
  std::string value;  // base64; empty: it comes in the trailer, or is only asked for
  bool in_trailer = false;
};
S3Result<ClaimedDigests> claimed_digests(const Call& call);

// If-Match and If-None-Match of a write.
catalog::Conditions write_conditions(const net::http::Headers& headers);
// All four of a read, in the order of RFC 9110 13.2.2. precondition_failed or not_modified.
// `prefix`: "x-amz-copy-source-" for the source of a copy.
S3Status check_read_conditions(const net::http::Headers& headers, const catalog::Object& object,
                               const std::string& prefix = {});

// ETag, Last-Modified, kept fields, version; with `checksums` also those.
net::http::Headers headers_of(const catalog::Object& object, bool checksums);
void add_version(net::http::Headers& headers, const std::string& version,
                 catalog::Versioning versioning);
std::string_view type_name(bool composite) noexcept;  // "COMPOSITE", "FULL_OBJECT"

}  // namespace farlift::s3::gateway
