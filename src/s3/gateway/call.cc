#include "s3/gateway/call.h"

#include "core/net/http/message.h"

#include <cstdio>
#include <ctime>

namespace farlift::s3::gateway {

namespace {

const std::string kAnonymous = "anonymous";

S3Error named(S3Code code, std::string_view element, std::string value) {
  S3Error error = refuse(code);
  error.elements.emplace_back(element, std::move(value));
  return error;
}

}  // namespace

const std::string& Call::owner() const { return identity == nullptr ? kAnonymous : identity->name; }

net::http::Headers Call::with_id(net::http::Headers headers) const {
  headers.add("x-amz-request-id", request_id);
  headers.add("Server", "farlift");
  return headers;
}

S3Status Call::xml(std::string body, net::http::Headers headers) {
  headers.add("Content-Type", "application/xml");
  response_.send(200, with_id(std::move(headers)), body).ignore();  // the client has gone
  return {};
}

S3Status Call::empty(std::uint32_t status, net::http::Headers headers) {
  response_.send(status, with_id(std::move(headers)), {}).ignore();
  return {};
}

S3Error catalog_error(const Error& error, const Call& call) {
  if (error.where == catalog::kNoBucket) {
    if (error.code == Errc::busy) return refuse(S3Code::bucket_not_empty);
    return named(S3Code::no_such_bucket, "BucketName", call.bucket());
  }
  if (error.where == catalog::kNoKey) return named(S3Code::no_such_key, "Key", call.key());
  if (error.where == catalog::kNoVersion) {
    S3Error out = named(S3Code::no_such_version, "Key", call.key());
    out.elements.emplace_back("VersionId", call.query().get("versionId"));
    return out;
  }
  if (error.where == catalog::kNoUpload)
    return named(S3Code::no_such_upload, "UploadId", std::string(call.query().get("uploadId")));
  if (error.where == catalog::kCondition) return refuse(S3Code::precondition_failed);
  if (error.where == catalog::kBadPart) return refuse(S3Code::invalid_part);
  if (error.where == catalog::kBadOrder) return refuse(S3Code::invalid_part_order);
  if (error.where == catalog::kSmallPart) return refuse(S3Code::entity_too_small);
  if (error.where == catalog::kBadSum) return refuse(S3Code::bad_digest);
  return s3_error_of(error);
}

std::string iso_time(std::int64_t ms) {
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm t{};
  ::gmtime_r(&seconds, &t);
  char text[96];
  std::snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", t.tm_year + 1900,
                t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec,
                static_cast<int>(ms % 1000));
  return text;
}

std::string http_time(std::int64_t ms) { return net::http::format_date(ms / 1000); }

std::string quoted(std::string_view etag) { return '"' + std::string(etag) + '"'; }

}  // namespace farlift::s3::gateway
