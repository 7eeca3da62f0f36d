#include "core/codec/text.h"
#include "core/net/http/range.h"
#include "s3/gateway/body_sender.h"
#include "s3/gateway/object_fields.h"
#include "s3/gateway/operations.h"

#include <algorithm>
#include <array>

namespace farlift::s3::gateway {

namespace {

constexpr std::size_t kSendBytes = std::size_t{128} << 10;
constexpr std::size_t kSmallBodyMax = 64 * 1024;

constexpr std::array<std::pair<const char*, const char*>, 6> kOverrides = {{
    {"response-content-type", "Content-Type"},
    {"response-content-language", "Content-Language"},
    {"response-expires", "Expires"},
    {"response-cache-control", "Cache-Control"},
    {"response-content-disposition", "Content-Disposition"},
    {"response-content-encoding", "Content-Encoding"},
}};

// The part of the object that is asked for.
struct Span {
  std::uint64_t from = 0;
  std::uint64_t length = 0;
  bool partial = false;
  std::size_t parts = 0;  // with ?partNumber=
};

S3Result<Span> wanted_span(const Call& call, const catalog::Object& object) {
  Span out{0, object.size};
  if (const std::string* number = call.query().find("partNumber")) {
    if (!call.header("Range").empty())
      return refuse(S3Code::invalid_request, "Range and partNumber exclude each other.");
    const Result<std::uint32_t> wanted = codec::parse_u32(*number);
    if (!wanted.ok() || *wanted < 1 || *wanted > catalog::kPartNumberMax) {
      return refuse(S3Code::invalid_argument,
                    "Part number must be an integer between 1 and 10000.");
    }
    // A whole object is its only part.
    if (object.parts.empty()) {
      if (*wanted != 1) return refuse(S3Code::invalid_part_number);
      out.partial = object.size > 0;
      return out;
    }
    // By place: numbers may have gaps.
    if (*wanted > object.parts.size()) return refuse(S3Code::invalid_part_number);
    const catalog::PartSpan& part = object.parts[*wanted - 1];
    return Span{part.offset, part.size, true, object.parts.size()};
  }
  const auto range = net::http::parse_range(call.header("Range"), object.size);
  if (!range.ok()) {
    S3Error error = refuse(S3Code::invalid_range);
    error.elements.emplace_back("ActualObjectSize", std::to_string(object.size));
    error.headers.emplace_back("Content-Range", "bytes */" + std::to_string(object.size));
    return error;
  }
  if (*range) out = {(*range)->from, (*range)->length, true, 0};
  return out;
}

S3Status apply_overrides(const Call& call, net::http::Headers& headers) {
  for (const auto& [name, header] : kOverrides) {
    const std::string* value = call.query().find(name);
    if (value == nullptr) continue;
    if (call.auth.kind == AuthKind::anonymous) {
      return refuse(S3Code::invalid_request,
                    "Request specific response headers cannot be used for anonymous requests.");
    }
    headers.set(header, *value);
  }
  return {};
}

S3Error of_marker(const Call& call, const catalog::Object& marker) {
  const bool named = call.query().has("versionId");
  S3Error error = named ? refuse(S3Code::method_not_allowed)
                        : catalog_error(Error::make(Errc::not_found, catalog::kNoKey), call);
  error.headers.emplace_back("x-amz-delete-marker", "true");
  error.headers.emplace_back("x-amz-version-id", marker.version);
  if (named) error.headers.emplace_back("Last-Modified", http_time(marker.modified_ms));
  return error;
}

S3Status send_bytes(Call& call, BodySender& sender, std::uint64_t length) {
  const std::unique_ptr<std::byte[]> memory(
      new std::byte[std::min<std::uint64_t>(kSendBytes, std::max<std::uint64_t>(length, 1))]);
  const std::span<std::byte> buffer(memory.get(), std::min<std::uint64_t>(kSendBytes, length));
  for (std::uint64_t left = length; left > 0;) {
    TRY_ASSIGN(const std::size_t got, sender.read(buffer));
    if (got == 0) return refuse(S3Code::internal_error);
    if (!call.response().write(buffer.first(got)).ok()) return {};  // the client has gone
    left -= got;
  }
  return {};
}

}  // namespace

S3Status get_object(Call& call) {
  const auto lease = call.store().lease();
  const std::string version(call.query().get("versionId"));
  CATALOG_ASSIGN(const catalog::Object object,
                 call.store().find(call.bucket(), call.key(), version), call);
  if (object.marker) return of_marker(call, object);
  TRY(check_read_conditions(call.headers(), object));
  TRY_ASSIGN(const Span span, wanted_span(call, object));
  const bool whole = !span.partial;
  const bool checksums =
      whole && codec::equal_ignoring_case(call.header("x-amz-checksum-mode"), "ENABLED");
  net::http::Headers headers = headers_of(object, checksums);
  if (!version.empty()) headers.set("x-amz-version-id", object.version);
  TRY(apply_overrides(call, headers));
  if (span.parts > 0) headers.add("x-amz-mp-parts-count", std::to_string(span.parts));
  if (span.partial) {
    headers.add("Content-Range", "bytes " + std::to_string(span.from) + "-" +
                                     std::to_string(span.from + span.length - 1) + "/" +
                                     std::to_string(object.size));
  }
  const std::uint32_t status = span.partial ? 206 : 200;
  if (call.is_head()) {
    call.response().start(status, call.with_id(std::move(headers)), span.length).ignore();
    return {};
  }
  BodySender sender(call.services(), object.chunks, span.from, span.length);
  TRY(sender.begin());
  if (!call.response().start(status, call.with_id(std::move(headers)), span.length).ok()) return {};
  return send_bytes(call, sender, span.length);
}

S3Status delete_object(Call& call) {
  const std::string version(call.query().get("versionId"));
  if (call.query().has("versionId") && version.empty())
    return refuse(S3Code::invalid_argument, "Version id cannot be the empty string.");
  CATALOG_ASSIGN(const catalog::Removed done,
                 call.store().remove(call.bucket(), call.key(), version,
                                     {write_conditions(call.headers()).if_match, {}}),
                 call);
  net::http::Headers headers;
  if (done.marker) headers.add("x-amz-delete-marker", "true");
  if (!version.empty()) {
    headers.add("x-amz-version-id", version);
  } else if (!done.version.empty()) {
    add_version(headers, done.version, done.versioning);
  }
  return call.empty(204, std::move(headers));
}

S3Status delete_objects(Call& call) {
  TRY_ASSIGN(const std::string body, call.payload->read_all(kXmlBytesMax));
  TRY_ASSIGN(const DeleteRequest wanted, parse_delete(body));
  CATALOG_TRY(call.store().bucket(call.bucket()), call);
  const auto identities = call.services().identities.now();
  const Identity& who = call.identity ? *call.identity : identities->anonymous();
  XmlWriter xml;
  xml.root("DeleteResult");
  const auto failed = [&](const DeleteRequest::Key& one, const S3Error& error) {
    xml.open("Error").element("Key", one.key).optional("VersionId", one.version);
    xml.element("Code", error.name()).element("Message", error.text()).close("Error");
  };
  for (const DeleteRequest::Key& one : wanted.keys) {
    if (!who.may("s3:DeleteObject", call.bucket() + "/" + one.key)) {
      failed(one, refuse(S3Code::access_denied));
      continue;
    }
    catalog::Conditions conditions;
    if (!one.etag.empty()) conditions.if_match.push_back(one.etag);
    const Result<catalog::Removed> done =
        call.store().remove(call.bucket(), one.key, one.version, conditions);
    if (!done.ok()) {
      failed(one, catalog_error(done.error(), call));
      continue;
    }
    if (wanted.quiet) continue;
    xml.open("Deleted").element("Key", one.key).optional("VersionId", one.version);
    if (done->marker) {
      xml.flag("DeleteMarker", true);
      xml.element("DeleteMarkerVersionId", done->version);
    }
    xml.close("Deleted");
  }
  xml.close("DeleteResult");
  return call.xml(std::move(xml).finish());
}

S3Status get_tagging(Call& call) {
  const std::string version(call.query().get("versionId"));
  CATALOG_ASSIGN(const catalog::Object object,
                 call.store().find(call.bucket(), call.key(), version), call);
  if (object.marker) return of_marker(call, object);
  XmlWriter xml;
  xml.root("Tagging").open("TagSet");
  for (const auto& [name, value] : object.tags)
    xml.open("Tag").element("Key", name).element("Value", value).close("Tag");
  xml.close("TagSet").close("Tagging");
  return call.xml(std::move(xml).finish());
}

S3Status put_tagging(Call& call) {
  TRY_ASSIGN(const std::string body, call.payload->read_all(kSmallBodyMax));
  TRY_ASSIGN(const Tags tags, parse_tagging(body));
  CATALOG_TRY(call.store().set_tags(call.bucket(), call.key(), call.query().get("versionId"), tags),
              call);
  return call.empty(200);
}

S3Status delete_tagging(Call& call) {
  CATALOG_TRY(call.store().set_tags(call.bucket(), call.key(), call.query().get("versionId"), {}),
              call);
  return call.empty(204);
}

}  // namespace farlift::s3::gateway
