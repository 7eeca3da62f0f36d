#include "core/base/prng.h"
#include "core/codec/text.h"
#include "core/net/http/range.h"
#include "s3/gateway/copy_source.h"
#include "s3/gateway/operations.h"
#include "s3/gateway/receive.h"

#include <algorithm>
#include <array>

namespace farlift::s3::gateway {

namespace {

S3Result<std::uint32_t> part_number(const Call& call) {
  const Result<std::uint32_t> number = codec::parse_u32(call.query().get("partNumber"));
  if (!number.ok() || *number < 1 || *number > catalog::kPartNumberMax) {
    return refuse(S3Code::invalid_argument,
                  "Part number must be an integer between 1 and 10000, inclusive");
  }
  return *number;
}

std::string upload_id(const Call& call) { return std::string(call.query().get("uploadId")); }

// What the parts of an upload are given where they name no algorithm themselves.
std::optional<Algorithm> algorithm_of(const catalog::Upload& upload) {
  return gateway::algorithm_of(upload.checksum_algorithm);
}

S3Status put_received_part(Call& call, std::uint32_t number, const StoredBody& body,
                           const std::string& etag,
                           const std::optional<catalog::Checksum>& checksum,
                           std::int64_t modified_ms) {
  catalog::Part part;
  part.number = number;
  part.size = body.size;
  part.etag = etag;
  part.modified_ms = modified_ms;
  part.checksum = checksum;
  part.chunks = body.chunks;
  const Status put = call.store().put_part(call.bucket(), call.key(), upload_id(call), part);
  if (!put.ok()) {
    BodyWriter(call.services()).discard(body);
    return catalog_error(put.error(), call);
  }
  return {};
}

// "bytes=FIRST-LAST", both given and within the object.
S3Result<net::http::ByteRange> copy_range(const Call& call, std::uint64_t size) {
  const std::string_view field = call.header("x-amz-copy-source-range");
  if (field.empty()) return net::http::ByteRange{0, size};
  const S3Error wrong =
      refuse(S3Code::invalid_argument,
             "The x-amz-copy-source-range value must be of the form "
             "bytes=first-last where first and last are the zero-based offsets of "
             "the first and last bytes to copy");
  constexpr std::string_view kUnit = "bytes=";
  const std::size_t dash = field.find('-');
  if (!field.starts_with(kUnit) || dash == std::string_view::npos) return wrong;
  const auto first = codec::parse_u64(field.substr(kUnit.size(), dash - kUnit.size()));
  const auto last = codec::parse_u64(field.substr(dash + 1));
  if (!first.ok() || !last.ok() || *last < *first) return wrong;
  if (*last >= size) {
    return refuse(
        S3Code::invalid_argument,
        "Range specified is not valid for source object of size: " + std::to_string(size));
  }
  return net::http::ByteRange{*first, *last - *first + 1};
}

struct Whole {
  std::string etag;
  std::optional<catalog::Checksum> checksum;
  std::uint64_t size = 0;
};

S3Result<std::string> etag_of_parts(const std::vector<catalog::Part>& parts) {
  digest::Md5 md5;
  for (const catalog::Part& part : parts) {
    const auto bytes = codec::hex_decode(part.etag);
    if (!bytes.ok()) return refuse(S3Code::internal_error);
    md5.update(*bytes);
  }
  return codec::hex_encode(md5.finish()) + "-" + std::to_string(parts.size());
}

S3Result<std::optional<catalog::Checksum>> checksum_of_parts(
    const catalog::Upload& upload, const std::vector<catalog::Part>& parts) {
  std::optional<catalog::Checksum> out;
  const auto algorithm = algorithm_of(upload);
  if (!algorithm) return out;
  ChecksumStream composite(*algorithm);
  std::string full;
  for (const catalog::Part& part : parts) {
    if (!part.checksum || part.checksum->algorithm != upload.checksum_algorithm)
      return refuse(S3Code::invalid_part);
    const auto bytes = codec::base64_decode(part.checksum->value);
    if (!bytes.ok()) return refuse(S3Code::internal_error);
    if (upload.checksum_composite) {
      composite.update(*bytes);
    } else if (full.empty()) {
      full = part.checksum->value;
    } else {
      const auto joined = join_checksums(*algorithm, full, part.checksum->value, part.size);
      if (!joined) return refuse(S3Code::internal_error);
      full = *joined;
    }
  }
  out.emplace();
  out->algorithm = upload.checksum_algorithm;
  out->composite = upload.checksum_composite;
  out->value =
      upload.checksum_composite ? composite.finish() + "-" + std::to_string(parts.size()) : full;
  return out;
}

S3Result<std::vector<catalog::WantedPart>> wanted_parts(const std::string& body) {
  TRY_ASSIGN(const std::vector<CompletePart> listed, parse_complete(body));
  std::vector<catalog::WantedPart> out;
  for (const CompletePart& part : listed) {
    catalog::WantedPart& one = out.emplace_back();
    one.number = part.number;
    one.etag = part.etag;
    if (one.etag.size() >= 2 && one.etag.front() == '"' && one.etag.back() == '"')
      one.etag = one.etag.substr(1, one.etag.size() - 2);
    if (!part.checksums.empty())
      one.checksum =
          catalog::Checksum{part.checksums.begin()->first, part.checksums.begin()->second, false};
  }
  return out;
}

// The checksum of the whole that the client expects, if it says one.
S3Status check_whole(const Call& call, const std::optional<catalog::Checksum>& ours) {
  for (const Algorithm algorithm : kAlgorithms) {
    const std::string* value = call.headers().find(header_of(algorithm));
    if (value == nullptr) continue;
    std::string said = *value;
    std::string seen = ours && ours->algorithm == name_of(algorithm) ? ours->value : "";
    // The number of parts may be left out.
    if (said.find('-') == std::string::npos) seen = seen.substr(0, seen.find('-'));
    if (said != seen) return refuse(S3Code::bad_digest);
  }
  return {};
}

}  // namespace

S3Status create_upload(Call& call) {
  TRY(refuse_unserved(call.headers()));
  catalog::Upload upload;
  std::array<std::byte, 16> id;
  secure_random(id);
  upload.id = codec::hex_encode(id);
  upload.bucket = call.bucket();
  upload.key = call.key();
  upload.owner = call.owner();
  upload.started_ms = call.services().now_ms();
  TRY_ASSIGN(upload.fields, kept_fields(call.headers()));
  TRY_ASSIGN(upload.tags, tags_of_header(call.header("x-amz-tagging")));
  if (const std::string* asked = call.headers().find("x-amz-checksum-algorithm")) {
    const auto algorithm = gateway::algorithm_of(*asked);
    if (!algorithm)
      return refuse(S3Code::invalid_request, "There is no checksum algorithm " + *asked + ".");
    upload.checksum_algorithm = std::string(name_of(*algorithm));
    // CRC-64 has no composite form, the hashes no other.
    upload.checksum_composite = *algorithm != Algorithm::crc64nvme;
    const std::string_view type = call.header("x-amz-checksum-type");
    const bool full = codec::equal_ignoring_case(type, "FULL_OBJECT");
    if (!type.empty() && !full && !codec::equal_ignoring_case(type, "COMPOSITE"))
      return refuse(S3Code::invalid_request, "x-amz-checksum-type is COMPOSITE or FULL_OBJECT.");
    if ((full && !is_crc(*algorithm)) || (!full && !type.empty() && !upload.checksum_composite)) {
      return refuse(S3Code::invalid_request,
                    "The " + std::string(type) + " checksum type cannot be used with the " +
                        std::string(name_of(*algorithm)) + " checksum algorithm.");
    }
    if (full) upload.checksum_composite = false;
  }
  CATALOG_TRY(call.store().create_upload(upload), call);
  net::http::Headers headers;
  if (const auto algorithm = algorithm_of(upload)) {
    headers.add("x-amz-checksum-algorithm", std::string(upper_name_of(*algorithm)));
    headers.add("x-amz-checksum-type", std::string(type_name(upload.checksum_composite)));
  }
  XmlWriter xml;
  xml.root("InitiateMultipartUploadResult").element("Bucket", call.bucket());
  xml.element("Key", call.key()).element("UploadId", upload.id);
  xml.close("InitiateMultipartUploadResult");
  return call.xml(std::move(xml).finish(), std::move(headers));
}

S3Status upload_part(Call& call) {
  TRY(refuse_unserved(call.headers()));
  TRY_ASSIGN(const std::uint32_t number, part_number(call));
  CATALOG_ASSIGN(const catalog::Upload upload,
                 call.store().upload(call.bucket(), call.key(), upload_id(call)), call);
  TRY_ASSIGN(const Received received, receive(call, algorithm_of(upload)));
  TRY(put_received_part(call, number, received.body, received.etag, received.checksum,
                        call.services().now_ms()));
  net::http::Headers headers{{"ETag", quoted(received.etag)}};
  if (received.checksum)
    headers.add("x-amz-checksum-" + received.checksum->algorithm, received.checksum->value);
  return call.empty(200, std::move(headers));
}

S3Status upload_part_copy(Call& call) {
  TRY_ASSIGN(const std::uint32_t number, part_number(call));
  CATALOG_ASSIGN(const catalog::Upload upload,
                 call.store().upload(call.bucket(), call.key(), upload_id(call)), call);
  TRY_ASSIGN(const CopySource source, find_source(call));
  TRY_ASSIGN(const net::http::ByteRange range, copy_range(call, source.object.size));
  if (range.length > kPutSizeMax) return refuse(S3Code::entity_too_large);
  WantedDigests wanted;
  const auto algorithm = algorithm_of(upload);
  if (algorithm) wanted.checksums.push_back(*algorithm);
  TRY_ASSIGN(const StoredBody stored, copy_bytes(call, source, range.from, range.length, wanted));
  const std::string etag = codec::hex_encode(*stored.digests.md5);
  std::optional<catalog::Checksum> checksum;
  if (algorithm)
    checksum = catalog::Checksum{std::string(name_of(*algorithm)),
                                 stored.digests.checksums.front().second, false};
  const std::int64_t now = call.services().now_ms();
  TRY(put_received_part(call, number, stored, etag, checksum, now));
  net::http::Headers headers;
  if (source.object.version != catalog::kNullVersion)
    headers.add("x-amz-copy-source-version-id", source.object.version);
  XmlWriter xml;
  xml.root("CopyPartResult").element("LastModified", iso_time(now)).element("ETag", quoted(etag));
  if (checksum) xml.element(element_of(*algorithm), checksum->value);
  xml.close("CopyPartResult");
  return call.xml(std::move(xml).finish(), std::move(headers));
}

S3Status complete_upload(Call& call) {
  TRY_ASSIGN(const std::string body, call.payload->read_all(kXmlBytesMax));
  TRY_ASSIGN(const std::vector<catalog::WantedPart> wanted, wanted_parts(body));
  CATALOG_ASSIGN(const catalog::Upload upload,
                 call.store().upload(call.bucket(), call.key(), upload_id(call)), call);
  CATALOG_ASSIGN(const std::vector<catalog::Part> parts,
                 call.store().parts(call.bucket(), call.key(), upload.id, wanted), call);
  catalog::Object object;
  for (const catalog::Part& part : parts) object.size += part.size;
  if (object.size > kObjectSizeMax) return refuse(S3Code::entity_too_large);
  TRY_ASSIGN(object.etag, etag_of_parts(parts));
  TRY_ASSIGN(object.checksum, checksum_of_parts(upload, parts));
  TRY(check_whole(call, object.checksum));
  object.modified_ms = call.services().now_ms();
  object.fields = upload.fields;
  object.tags = upload.tags;
  CATALOG_ASSIGN(const catalog::Published published,
                 call.store().complete_upload(call.bucket(), call.key(), upload.id, wanted, object,
                                              write_conditions(call.headers())),
                 call);
  net::http::Headers headers;
  add_version(headers, published.version, published.versioning);
  XmlWriter xml;
  xml.root("CompleteMultipartUploadResult");
  xml.element("Location", "/" + call.bucket() + "/" + call.key());
  xml.element("Bucket", call.bucket()).element("Key", call.key());
  xml.element("ETag", quoted(object.etag));
  if (object.checksum) {
    xml.element(element_of(*algorithm_of(upload)), object.checksum->value);
    xml.element("ChecksumType", type_name(object.checksum->composite));
  }
  xml.close("CompleteMultipartUploadResult");
  return call.xml(std::move(xml).finish(), std::move(headers));
}

S3Status abort_upload(Call& call) {
  CATALOG_TRY(call.store().abort_upload(call.bucket(), call.key(), upload_id(call)), call);
  return call.empty(204);
}

S3Status list_parts(Call& call) {
  std::size_t limit = catalog::kPageMax;
  std::uint32_t after = 0;
  if (const std::string* text = call.query().find("max-parts"); text != nullptr) {
    const Result<std::uint32_t> count = codec::parse_u32(*text);
    if (!count.ok()) return refuse(S3Code::invalid_argument, "max-parts is no integer.");
    limit = std::min<std::size_t>(*count, catalog::kPageMax);
  }
  if (const std::string* text = call.query().find("part-number-marker");
      text != nullptr && !text->empty()) {
    const Result<std::uint32_t> number = codec::parse_u32(*text);
    if (!number.ok()) return refuse(S3Code::invalid_argument, "part-number-marker is no integer.");
    after = *number;
  }
  CATALOG_ASSIGN(const catalog::PartPage page,
                 call.store().list_parts(call.bucket(), call.key(), upload_id(call), after, limit),
                 call);
  XmlWriter xml;
  xml.root("ListPartsResult").element("Bucket", call.bucket()).element("Key", call.key());
  xml.element("UploadId", page.upload.id).element("PartNumberMarker", std::uint64_t{after});
  xml.element("NextPartNumberMarker",
              std::uint64_t{page.parts.empty() ? 0 : page.parts.back().number});
  xml.element("MaxParts", std::uint64_t{limit}).flag("IsTruncated", page.truncated);
  const auto algorithm = algorithm_of(page.upload);
  if (algorithm) {
    xml.element("ChecksumAlgorithm", upper_name_of(*algorithm));
    xml.element("ChecksumType", type_name(page.upload.checksum_composite));
  }
  for (const catalog::Part& part : page.parts) {
    xml.open("Part").element("PartNumber", std::uint64_t{part.number});
    xml.element("LastModified", iso_time(part.modified_ms)).element("ETag", quoted(part.etag));
    xml.element("Size", part.size);
    if (part.checksum) {
      if (const auto of_part = gateway::algorithm_of(part.checksum->algorithm))
        xml.element(element_of(*of_part), part.checksum->value);
    }
    xml.close("Part");
  }
  xml.open("Initiator").element("ID", page.upload.owner).close("Initiator");
  xml.open("Owner").element("ID", page.upload.owner).close("Owner");
  xml.element("StorageClass", "STANDARD").close("ListPartsResult");
  return call.xml(std::move(xml).finish());
}

}  // namespace farlift::s3::gateway
