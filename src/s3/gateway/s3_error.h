// S3Error: what a client is told when its request fails, in the words client libraries know; and
// S3Result, the Result whose error is one.
//
// Invariants: every code has one HTTP status; the table in s3_error.cc is the only place that maps
//             our Errc, the specification's refusals and names (spec s3 3).
// Threads:    plain values.
#pragma once

#include "core/base/assert.h"
#include "core/base/result.h"

#include <tl/expected.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace farlift::s3::gateway {

enum class S3Code : std::uint8_t {
  access_denied,
  authorization_header_malformed,
  authorization_query_malformed,
  bad_digest,
  bucket_already_exists,
  bucket_already_owned_by_you,
  bucket_not_empty,
  entity_too_large,
  entity_too_small,
  expired_token,
  incomplete_body,
  internal_error,
  invalid_access_key_id,
  invalid_argument,
  invalid_bucket_name,
  invalid_digest,
  invalid_part,
  invalid_part_order,
  invalid_range,
  invalid_rdma_token,
  invalid_part_number,
  invalid_request,
  invalid_storage_class,
  invalid_tag,
  invalid_uri,
  key_too_long,
  malformed_xml,
  metadata_too_large,
  method_not_allowed,
  missing_content_length,
  no_such_bucket,
  no_such_key,
  no_such_tag_set,
  no_such_upload,
  no_such_version,
  not_implemented,
  not_modified,
  precondition_failed,
  request_time_too_skewed,
  request_timeout,
  service_unavailable,
  signature_does_not_match,
  slow_down,
  content_sha256_mismatch,
};

struct S3Error {
  S3Code code = S3Code::internal_error;
  std::string message;                                             // empty: the code's own words
  std::vector<std::pair<std::string, std::string>> elements = {};  // further ones of the XML
  std::vector<std::pair<std::string, std::string>> headers = {};

  std::uint32_t status() const noexcept;
  std::string_view name() const noexcept;
  std::string_view text() const noexcept;
};

inline S3Error refuse(S3Code code, std::string message = {}) { return {code, std::move(message)}; }

// Of our own making: what a catalog, a volume or the disk answered, as a client is to see it.
S3Error s3_error_of(const Error& error);

// The body of an error reply.
std::string error_xml(const S3Error& error, std::string_view resource, std::string_view request_id);

template <class T>
class [[nodiscard]] S3Result {
 public:
  S3Result(S3Error error) : value_(tl::unexpect, std::move(error)) {}  // NOLINT
  template <class U = T, class = std::enable_if_t<std::is_constructible_v<T, U&&> &&
                                                  !std::is_same_v<std::decay_t<U>, S3Result> &&
                                                  !std::is_same_v<std::decay_t<U>, S3Error>>>
  S3Result(U&& value) : value_(tl::in_place, std::forward<U>(value)) {}  // NOLINT

  bool ok() const noexcept { return value_.has_value(); }
  T& value() & { return ASSERT(ok()), *value_; }
  const T& value() const& { return ASSERT(ok()), *value_; }
  T&& value() && { return ASSERT(ok()), *std::move(value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const S3Error& error() const { return ASSERT(!ok()), value_.error(); }

 private:
  tl::expected<T, S3Error> value_;
};

template <>
class [[nodiscard]] S3Result<void> {
 public:
  S3Result() = default;
  S3Result(S3Error error) : value_(tl::unexpect, std::move(error)) {}  // NOLINT
  bool ok() const noexcept { return value_.has_value(); }
  const S3Error& error() const { return ASSERT(!ok()), value_.error(); }
  void ignore() const noexcept {}  // say why beside it

 private:
  tl::expected<void, S3Error> value_;
};

using S3Status = S3Result<void>;

}  // namespace farlift::s3::gateway
