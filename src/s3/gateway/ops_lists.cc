#include "core/codec/text.h"
#include "core/digest/crc32c.h"
#include "s3/gateway/checksum.h"
#include "s3/gateway/operations.h"

#include <algorithm>

namespace farlift::s3::gateway {

namespace {

// What all listings take.
struct ListRequest {
  catalog::ListQuery query;
  bool encode = false;  // encoding-type=url: keys that XML cannot carry

  std::string name(std::string_view text) const {
    return encode ? codec::percent_encode(text, "/") : std::string(text);
  }
};

S3Result<ListRequest> list_request(const Call& call, const char* limit_name) {
  ListRequest out;
  const Query& query = call.query();
  out.query.prefix = std::string(query.get("prefix"));
  out.query.delimiter = std::string(query.get("delimiter"));
  if (const std::string* limit = query.find(limit_name); limit != nullptr && !limit->empty()) {
    const Result<std::uint32_t> count = codec::parse_u32(*limit);
    if (!count.ok() || *count > 0x7fffffff) {
      return refuse(S3Code::invalid_argument,
                    std::string(limit_name) + " is an integer between 0 and 2147483647.");
    }
    out.query.limit = std::min<std::size_t>(*count, catalog::kPageMax);
  }
  if (const std::string* encoding = query.find("encoding-type")) {
    if (*encoding != "url")
      return refuse(S3Code::invalid_argument, "Invalid Encoding Method specified in Request");
    out.encode = true;
  }
  return out;
}

void put_head(XmlWriter& xml, const Call& call, const ListRequest& request) {
  xml.element("Name", call.bucket());
  xml.element("Prefix", request.name(request.query.prefix));
  if (!request.query.delimiter.empty())
    xml.element("Delimiter", request.name(request.query.delimiter));
  if (request.encode) xml.element("EncodingType", "url");
}

void put_prefixes(XmlWriter& xml, const ListRequest& request,
                  const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes)
    xml.open("CommonPrefixes").element("Prefix", request.name(prefix)).close("CommonPrefixes");
}

void put_owner(XmlWriter& xml, const std::string& owner) {
  xml.open("Owner").element("ID", owner).element("DisplayName", owner).close("Owner");
}

void put_entry(XmlWriter& xml, const ListRequest& request, const catalog::Listed& one) {
  xml.element("Key", request.name(one.key));
  xml.element("LastModified", iso_time(one.modified_ms));
  if (one.marker) return;
  xml.element("ETag", quoted(one.etag));
  if (const auto algorithm = algorithm_of(one.checksum_algorithm)) {
    xml.element("ChecksumAlgorithm", upper_name_of(*algorithm));
    xml.element("ChecksumType", one.checksum_composite ? "COMPOSITE" : "FULL_OBJECT");
  }
  xml.element("Size", one.size).element("StorageClass", "STANDARD");
}

// A key behind its CRC-32C, so that what is no token of ours is not taken for one.
std::string token_of(const std::string& key) {
  const std::uint32_t crc = digest::crc32c(std::as_bytes(std::span(key))).raw();
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>(crc >> (8 * i) & 0xff);
  text += key;
  return codec::base64url_encode(std::as_bytes(std::span(text)));
}

S3Result<std::string> key_of_token(const std::string& token) {
  const S3Error wrong =
      refuse(S3Code::invalid_argument, "The continuation token provided is incorrect");
  const auto bytes = codec::base64url_decode(token);
  if (!bytes.ok() || bytes->size() <= 4 || bytes->size() > kKeyBytesMax + 4) return wrong;
  std::string key(reinterpret_cast<const char*>(bytes->data()) + 4, bytes->size() - 4);
  if (token_of(key) != token) return wrong;
  return key;
}

}  // namespace

S3Status list_objects(Call& call) {
  TRY_ASSIGN(ListRequest request, list_request(call, "max-keys"));
  request.query.after = std::string(call.query().get("marker"));
  CATALOG_ASSIGN(const catalog::Bucket bucket, call.store().bucket(call.bucket()), call);
  CATALOG_ASSIGN(const catalog::Page page, call.store().list(call.bucket(), request.query), call);
  XmlWriter xml;
  xml.root("ListBucketResult");
  put_head(xml, call, request);
  xml.element("Marker", request.name(request.query.after));
  xml.element("MaxKeys", std::uint64_t{request.query.limit});
  xml.flag("IsTruncated", page.truncated);
  // Amazon leaves it out without a delimiter; clients cope with either, and it saves them a look.
  if (page.truncated) xml.element("NextMarker", request.name(page.next));
  for (const catalog::Listed& one : page.entries) {
    xml.open("Contents");
    put_entry(xml, request, one);
    put_owner(xml, bucket.owner);
    xml.close("Contents");
  }
  put_prefixes(xml, request, page.prefixes);
  xml.close("ListBucketResult");
  return call.xml(std::move(xml).finish());
}

S3Status list_objects_v2(Call& call) {
  TRY_ASSIGN(ListRequest request, list_request(call, "max-keys"));
  const std::string* const token = call.query().find("continuation-token");
  const std::string start(call.query().get("start-after"));
  request.query.after = start;
  if (token != nullptr) {
    TRY_ASSIGN(request.query.after, key_of_token(*token));
  }
  CATALOG_ASSIGN(const catalog::Bucket bucket, call.store().bucket(call.bucket()), call);
  CATALOG_ASSIGN(const catalog::Page page, call.store().list(call.bucket(), request.query), call);
  XmlWriter xml;
  xml.root("ListBucketResult");
  put_head(xml, call, request);
  xml.element("MaxKeys", std::uint64_t{request.query.limit});
  xml.element("KeyCount", std::uint64_t{page.entries.size() + page.prefixes.size()});
  xml.flag("IsTruncated", page.truncated);
  if (token != nullptr) xml.element("ContinuationToken", *token);
  if (page.truncated) xml.element("NextContinuationToken", token_of(page.next));
  if (!start.empty()) xml.element("StartAfter", request.name(start));
  const bool owners = call.query().get("fetch-owner") == "true";
  for (const catalog::Listed& one : page.entries) {
    xml.open("Contents");
    put_entry(xml, request, one);
    if (owners) put_owner(xml, bucket.owner);
    xml.close("Contents");
  }
  put_prefixes(xml, request, page.prefixes);
  xml.close("ListBucketResult");
  return call.xml(std::move(xml).finish());
}

S3Status list_object_versions(Call& call) {
  TRY_ASSIGN(ListRequest request, list_request(call, "max-keys"));
  request.query.after = std::string(call.query().get("key-marker"));
  request.query.after_version = std::string(call.query().get("version-id-marker"));
  if (request.query.after.empty() && !request.query.after_version.empty()) {
    return refuse(S3Code::invalid_argument,
                  "A version-id marker cannot be specified without a key marker.");
  }
  CATALOG_ASSIGN(const catalog::Bucket bucket, call.store().bucket(call.bucket()), call);
  CATALOG_ASSIGN(const catalog::Page page, call.store().list_versions(call.bucket(), request.query),
                 call);
  XmlWriter xml;
  xml.root("ListVersionsResult");
  put_head(xml, call, request);
  xml.element("KeyMarker", request.name(request.query.after));
  xml.element("VersionIdMarker", request.query.after_version);
  xml.element("MaxKeys", std::uint64_t{request.query.limit});
  xml.flag("IsTruncated", page.truncated);
  if (page.truncated) {
    xml.element("NextKeyMarker", request.name(page.next));
    if (!page.next_version.empty()) xml.element("NextVersionIdMarker", page.next_version);
  }
  for (const catalog::Listed& one : page.entries) {
    const char* const kind = one.marker ? "DeleteMarker" : "Version";
    xml.open(kind);
    put_entry(xml, request, one);
    xml.element("VersionId", one.version).flag("IsLatest", one.latest);
    put_owner(xml, bucket.owner);
    xml.close(kind);
  }
  put_prefixes(xml, request, page.prefixes);
  xml.close("ListVersionsResult");
  return call.xml(std::move(xml).finish());
}

S3Status list_uploads(Call& call) {
  TRY_ASSIGN(ListRequest request, list_request(call, "max-uploads"));
  request.query.after = std::string(call.query().get("key-marker"));
  // Without a key the upload id means nothing, as with Amazon.
  if (!request.query.after.empty())
    request.query.after_version = std::string(call.query().get("upload-id-marker"));
  CATALOG_ASSIGN(const catalog::UploadPage page,
                 call.store().list_uploads(call.bucket(), request.query), call);
  XmlWriter xml;
  xml.root("ListMultipartUploadsResult").element("Bucket", call.bucket());
  xml.element("KeyMarker", request.name(request.query.after));
  xml.element("UploadIdMarker", request.query.after_version);
  if (page.truncated) {
    xml.element("NextKeyMarker", request.name(page.next_key));
    xml.element("NextUploadIdMarker", page.next_id);
  }
  xml.element("Prefix", request.name(request.query.prefix));
  if (!request.query.delimiter.empty())
    xml.element("Delimiter", request.name(request.query.delimiter));
  if (request.encode) xml.element("EncodingType", "url");
  xml.element("MaxUploads", std::uint64_t{request.query.limit});
  xml.flag("IsTruncated", page.truncated);
  for (const catalog::Upload& one : page.uploads) {
    xml.open("Upload").element("Key", request.name(one.key)).element("UploadId", one.id);
    xml.open("Initiator").element("ID", one.owner).close("Initiator");
    put_owner(xml, one.owner);
    xml.element("StorageClass", "STANDARD").element("Initiated", iso_time(one.started_ms));
    xml.close("Upload");
  }
  put_prefixes(xml, request, page.prefixes);
  xml.close("ListMultipartUploadsResult");
  return call.xml(std::move(xml).finish());
}

}  // namespace farlift::s3::gateway
