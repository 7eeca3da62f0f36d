#include "core/codec/text.h"
#include "core/net/http/range.h"
#include "s3/gateway/copy_source.h"
#include "s3/gateway/operations.h"

namespace farlift::s3::gateway {

namespace {

// x-amz-copy-source: "/BUCKET/KEY?versionId=ID", the key percent-encoded.
S3Status parse_source(std::string_view field, CopySource& out) {
  const S3Error wrong =
      refuse(S3Code::invalid_argument, "x-amz-copy-source is BUCKET/KEY[?versionId=ID].");
  constexpr std::string_view kVersion = "?versionId=";
  const std::size_t question = field.rfind(kVersion);
  if (question != std::string_view::npos) {
    out.version = std::string(field.substr(question + kVersion.size()));
    if (out.version.empty()) return wrong;
    field = field.substr(0, question);
  }
  const Result<std::string> decoded = codec::percent_decode(field);
  if (!decoded.ok()) return wrong;
  std::string_view path = *decoded;
  if (path.starts_with('/')) path.remove_prefix(1);
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos || slash == 0 || slash + 1 == path.size()) return wrong;
  out.bucket = std::string(path.substr(0, slash));
  out.key = std::string(path.substr(slash + 1));
  return {};
}

}  // namespace

S3Result<CopySource> find_source(Call& call) {
  S3Result<CopySource> out{CopySource()};
  TRY(parse_source(call.header("x-amz-copy-source"), *out));
  const auto identities = call.services().identities.now();
  const Identity& who = call.identity ? *call.identity : identities->anonymous();
  if (!who.may("s3:GetObject", out->bucket + "/" + out->key)) return refuse(S3Code::access_denied);
  out->lease = call.store().lease();
  Result<catalog::Object> found = call.store().find(out->bucket, out->key, out->version);
  if (!found.ok()) {
    if (found.error().where == catalog::kNoBucket) {
      S3Error error = refuse(S3Code::no_such_bucket);
      error.elements.emplace_back("BucketName", out->bucket);
      return error;
    }
    S3Error error = catalog_error(found.error(), call);
    if (found.error().where == catalog::kNoKey) error.elements = {{"Key", out->key}};
    return error;
  }
  if (found->marker) {
    return out->version.empty()
               ? refuse(S3Code::no_such_key)
               : refuse(S3Code::invalid_request, "The source of a copy is no delete marker.");
  }
  out->object = std::move(found).value();
  TRY(check_read_conditions(call.headers(), out->object, "x-amz-copy-source-"));
  return out;
}

S3Result<StoredBody> copy_bytes(Call& call, const CopySource& source, std::uint64_t from,
                                std::uint64_t length, const WantedDigests& wanted) {
  BodySender sender(call.services(), source.object.chunks, from, length);
  TRY(sender.begin());
  BodyWriter writer(call.services());
  std::uint64_t left = length;
  return writer.write(
      [&](std::span<std::byte> into) -> S3Result<std::size_t> {
        if (left == 0) return std::size_t{0};
        TRY_ASSIGN(const std::size_t got, sender.read(into));
        if (got == 0) return refuse(S3Code::internal_error);
        left -= got;
        return got;
      },
      length, wanted);
}

S3Status copy_object(Call& call) {
  TRY(refuse_unserved(call.headers()));
  TRY_ASSIGN(const CopySource source, find_source(call));
  const std::string_view directive = call.header("x-amz-metadata-directive");
  if (!directive.empty() && directive != "COPY" && directive != "REPLACE")
    return refuse(S3Code::invalid_argument, "x-amz-metadata-directive is COPY or REPLACE.");
  const std::string_view tag_directive = call.header("x-amz-tagging-directive");
  if (!tag_directive.empty() && tag_directive != "COPY" && tag_directive != "REPLACE")
    return refuse(S3Code::invalid_argument, "x-amz-tagging-directive is COPY or REPLACE.");
  const bool replaces = directive == "REPLACE";
  if (source.bucket == call.bucket() && source.key == call.key() && source.version.empty() &&
      !replaces && tag_directive != "REPLACE") {
    return refuse(S3Code::invalid_request,
                  "This copy request is illegal because it is trying to copy an object to itself "
                  "without changing the object's metadata.");
  }
  if (source.object.size > kPutSizeMax)
    return refuse(S3Code::invalid_request, "Copy objects above 5 GiB in parts.");
  catalog::Object object;
  object.key = call.key();
  object.fields = source.object.fields;
  if (replaces) {
    TRY_ASSIGN(object.fields, kept_fields(call.headers()));
  }
  object.tags = source.object.tags;
  if (tag_directive == "REPLACE") {
    TRY_ASSIGN(object.tags, tags_of_header(call.header("x-amz-tagging")));
  }
  CATALOG_TRY(call.store().bucket(call.bucket()), call);
  WantedDigests wanted;
  std::optional<Algorithm> algorithm = algorithm_of(call.header("x-amz-checksum-algorithm"));
  if (!algorithm && source.object.checksum && !source.object.checksum->composite)
    algorithm = algorithm_of(source.object.checksum->algorithm);
  if (algorithm) wanted.checksums.push_back(*algorithm);
  TRY_ASSIGN(const StoredBody stored, copy_bytes(call, source, 0, source.object.size, wanted));
  object.size = stored.size;
  object.etag = codec::hex_encode(*stored.digests.md5);
  object.modified_ms = call.services().now_ms();
  object.chunks = stored.chunks;
  if (algorithm) {
    object.checksum = catalog::Checksum{std::string(name_of(*algorithm)),
                                        stored.digests.checksums.front().second, false};
  }
  const Result<catalog::Published> published =
      call.store().publish(call.bucket(), object, write_conditions(call.headers()));
  if (!published.ok()) {
    BodyWriter(call.services()).discard(stored);
    return catalog_error(published.error(), call);
  }
  net::http::Headers headers;
  add_version(headers, published->version, published->versioning);
  if (!source.version.empty() || source.object.version != catalog::kNullVersion)
    headers.add("x-amz-copy-source-version-id", source.object.version);
  XmlWriter xml;
  xml.root("CopyObjectResult").element("LastModified", iso_time(object.modified_ms));
  xml.element("ETag", quoted(object.etag));
  if (object.checksum) {
    xml.element(element_of(*algorithm), object.checksum->value);
    xml.element("ChecksumType", "FULL_OBJECT");
  }
  xml.close("CopyObjectResult");
  return call.xml(std::move(xml).finish(), std::move(headers));
}

}  // namespace farlift::s3::gateway
