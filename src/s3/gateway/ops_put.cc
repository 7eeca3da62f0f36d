#include "s3/gateway/operations.h"
#include "s3/gateway/receive.h"

namespace farlift::s3::gateway {

S3Status put_object(Call& call) {
  TRY(refuse_unserved(call.headers()));
  catalog::Object object;
  object.key = call.key();
  TRY_ASSIGN(object.fields, kept_fields(call.headers()));
  TRY_ASSIGN(object.tags, tags_of_header(call.header("x-amz-tagging")));
  const catalog::Conditions conditions = write_conditions(call.headers());
  // Early, so that no body is taken in that cannot be kept; publishing looks again.
  CATALOG_TRY(call.store().bucket(call.bucket()), call);
  if (!conditions.if_none_match.empty() || !conditions.if_match.empty()) {
    const Result<catalog::Object> there = call.store().find(call.bucket(), call.key(), {});
    const bool exists = there.ok() && !there->marker;
    if (exists && !conditions.if_none_match.empty() && conditions.if_none_match.front() == "*")
      return refuse(S3Code::precondition_failed);
    if (!exists && !conditions.if_match.empty()) {
      return catalog_error(Error::make(Errc::not_found, catalog::kNoKey), call);
    }
  }
  TRY_ASSIGN(Received received, receive(call));
  object.size = received.body.size;
  object.etag = received.etag;
  object.modified_ms = call.services().now_ms();
  object.checksum = received.checksum;
  object.chunks = received.body.chunks;
  const Result<catalog::Published> published =
      call.store().publish(call.bucket(), object, conditions);
  if (!published.ok()) {
    drop(call, received);
    return catalog_error(published.error(), call);
  }
  net::http::Headers headers{{"ETag", quoted(object.etag)}};
  add_version(headers, published->version, published->versioning);
  if (object.checksum) {
    headers.add("x-amz-checksum-" + object.checksum->algorithm, object.checksum->value);
    headers.add("x-amz-checksum-type", "FULL_OBJECT");
  }
  return call.empty(200, std::move(headers));
}

}  // namespace farlift::s3::gateway
