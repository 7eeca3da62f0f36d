// Target: what a request is about: bucket, key and query, out of the raw request target and Host.
//
// Invariants: raw_path and the query's raw text are what was sent, since signatures cover them;
// bucket
//             and key are decoded once and never normalised ("a//b" and "a/../b" are keys).
// Threads:    plain values. Errors: invalid_uri, invalid_bucket_name, key_too_long.
#pragma once

#include "s3/gateway/s3_error.h"

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace farlift::s3::gateway {

inline constexpr std::size_t kKeyBytesMax = 1024;
inline constexpr std::size_t kQueryFieldsMax = 256;

// Decoded name and value, in the order sent. "?acl" has an empty value.
class Query {
 public:
  static S3Result<Query> parse(std::string_view raw);
  const std::string* find(std::string_view name) const noexcept;
  std::string_view get(std::string_view name) const noexcept;
  bool has(std::string_view name) const noexcept { return find(name) != nullptr; }
  const std::vector<std::pair<std::string, std::string>>& all() const noexcept { return fields_; }

 private:
  std::vector<std::pair<std::string, std::string>> fields_;
};

struct Target {
  std::string raw_path;  // before '?'
  Query query;
  std::string bucket;  // empty: the service itself
  std::string key;     // empty: the bucket itself
};

// `host` is the Host field; with a `domain` that it ends with, what stands before is the bucket.
S3Result<Target> parse_target(std::string_view target, std::string_view host,
                              std::string_view domain);

bool valid_bucket_name(std::string_view name) noexcept;

}  // namespace farlift::s3::gateway
