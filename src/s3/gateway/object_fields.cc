#include "s3/gateway/object_fields.h"

#include "core/codec/text.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace farlift::s3::gateway {

namespace {

constexpr std::array kKept = {"content-type",
                              "cache-control",
                              "content-disposition",
                              "content-encoding",
                              "content-language",
                              "expires",
                              "x-amz-website-redirect-location"};
constexpr std::string_view kMeta = "x-amz-meta-";
constexpr std::size_t kTagKeyMax = 128;
constexpr std::size_t kTagValueMax = 256;

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// "aws-chunked" is how the body came, not what it is.
std::string without_aws_chunked(const std::string& encoding) {
  std::string out;
  std::size_t from = 0;
  while (from <= encoding.size()) {
    const std::size_t end = std::min(encoding.find(',', from), encoding.size());
    std::string one = encoding.substr(from, end - from);
    one.erase(0, std::min(one.find_first_not_of(" \t"), one.size()));
    one.erase(one.find_last_not_of(" \t") + 1);
    if (!one.empty() && lower(one) != "aws-chunked") out += (out.empty() ? "" : ",") + one;
    from = end + 1;
  }
  return out;
}

std::vector<std::string> etags_of(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string_view one = list.substr(0, end);
    while (!one.empty() && (one.front() == ' ' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\t')) one.remove_suffix(1);
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one.size() >= 2 && one.front() == '"' && one.back() == '"')
      one = one.substr(1, one.size() - 2);
    if (!one.empty()) out.emplace_back(one);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return out;
}

bool names(const std::vector<std::string>& etags, const std::string& etag) {
  return std::any_of(etags.begin(), etags.end(),
                     [&](const std::string& one) { return one == "*" || one == etag; });
}

S3Error not_modified(const catalog::Object& object) {
  S3Error error = refuse(S3Code::not_modified);
  error.headers.emplace_back("ETag", quoted(object.etag));
  error.headers.emplace_back("Last-Modified", http_time(object.modified_ms));
  return error;
}

}  // namespace

S3Result<catalog::Fields> kept_fields(const net::http::Headers& headers) {
  catalog::Fields out;
  std::size_t meta_bytes = 0;
  for (const net::http::Field& field : headers.all()) {
    const std::string name = lower(field.name);
    const bool meta = name.starts_with(kMeta);
    if (!meta && std::find(kKept.begin(), kKept.end(), name) == kKept.end()) continue;
    const std::string value =
        name == "content-encoding" ? without_aws_chunked(field.value) : field.value;
    if (value.empty() && !meta) continue;
    if (meta) meta_bytes += name.size() - kMeta.size() + value.size();
    // A field that comes twice counts as one with both values.
    const auto same =
        std::find_if(out.begin(), out.end(), [&](const auto& one) { return one.first == name; });
    if (same == out.end()) {
      out.emplace_back(name, value);
    } else {
      same->second += "," + value;
    }
  }
  if (meta_bytes > kMetadataBytesMax) {
    S3Error error = refuse(S3Code::metadata_too_large);
    error.elements.emplace_back("Size", std::to_string(meta_bytes));
    error.elements.emplace_back("MaxSizeAllowed", std::to_string(kMetadataBytesMax));
    return error;
  }
  return out;
}

S3Result<catalog::Fields> tags_of_header(std::string_view field) {
  catalog::Fields out;
  if (field.empty()) return out;
  TRY_ASSIGN(const Query parsed, Query::parse(field));
  for (const auto& [name, value] : parsed.all()) {
    if (name.empty() || name.size() > kTagKeyMax || value.size() > kTagValueMax)
      return refuse(S3Code::invalid_tag);
    out.emplace_back(name, value);
  }
  if (out.size() > kTagsMax) return refuse(S3Code::invalid_tag, "An object has at most 10 tags.");
  return out;
}

S3Status refuse_unserved(const net::http::Headers& headers) {
  for (const net::http::Field& field : headers.all()) {
    const std::string name = lower(field.name);
    if (name.starts_with("x-amz-server-side-encryption") ||
        name.starts_with("x-amz-copy-source-server-side-encryption"))
      return refuse(S3Code::not_implemented, "Server-side encryption is not implemented here.");
    if (name.starts_with("x-amz-object-lock-"))
      return refuse(S3Code::not_implemented, "Object lock is not implemented here.");
    if (name.starts_with("x-amz-grant-"))
      return refuse(S3Code::not_implemented, "Access control lists are not implemented here.");
    if (name == "x-amz-acl" && field.value != "private" &&
        field.value != "bucket-owner-full-control")
      return refuse(S3Code::not_implemented,
                    "Access control lists are not implemented here; use policies.");
    if (name == "x-amz-storage-class" && field.value != "STANDARD")
      return refuse(S3Code::invalid_storage_class);
  }
  return {};
}

S3Result<ClaimedDigests> claimed_digests(const Call& call) {
  ClaimedDigests out;
  if (const std::string* md5 = call.headers().find("Content-MD5")) {
    const auto bytes = codec::base64_decode(*md5);
    if (!bytes.ok() || bytes->size() != 16) return refuse(S3Code::invalid_digest);
    std::copy(bytes->begin(), bytes->end(), out.md5.emplace().begin());
  }
  const auto take = [&](Algorithm algorithm) {
    if (out.algorithm && *out.algorithm != algorithm) return false;
    out.algorithm = algorithm;
    return true;
  };
  const S3Error several =
      refuse(S3Code::invalid_request, "Send one x-amz-checksum- header, or none.");
  for (const Algorithm algorithm : kAlgorithms) {
    const std::string name = header_of(algorithm);
    const std::string* value = call.headers().find(name);
    if (value == nullptr) value = call.query().find(name);
    if (value == nullptr) continue;
    if (!take(algorithm)) return several;
    if (!valid_checksum(algorithm, *value)) {
      return refuse(S3Code::invalid_request, "Value for " + name + " header is invalid.");
    }
    out.value = *value;
  }
  const std::string trailer = lower(call.header("x-amz-trailer"));
  for (const Algorithm algorithm : kAlgorithms) {
    if (trailer.find(header_of(algorithm)) == std::string::npos) continue;
    // "crc32" is also the beginning of "crc32c".
    if (algorithm == Algorithm::crc32 && trailer.find("checksum-crc32c") != std::string::npos)
      continue;
    if (!take(algorithm) || !out.value.empty()) return several;
    out.in_trailer = true;
  }
  for (const char* name : {"x-amz-sdk-checksum-algorithm", "x-amz-checksum-algorithm"}) {
    const std::string* asked = call.headers().find(name);
    if (asked == nullptr) asked = call.query().find(name);
    if (asked == nullptr) continue;
    const auto algorithm = algorithm_of(*asked);
    if (!algorithm)
      return refuse(S3Code::invalid_request, "There is no checksum algorithm " + *asked + ".");
    if (!take(*algorithm)) return several;
  }
  return out;
}

catalog::Conditions write_conditions(const net::http::Headers& headers) {
  return {etags_of(headers.get("If-Match")), etags_of(headers.get("If-None-Match"))};
}

S3Status check_read_conditions(const net::http::Headers& headers, const catalog::Object& object,
                               const std::string& prefix) {
  const bool copy = !prefix.empty();
  const auto field = [&](const char* name) { return headers.find(prefix + name); };
  const std::int64_t modified_s = object.modified_ms / 1000;
  const auto date = [](const std::string* text) {
    return text == nullptr ? std::nullopt : net::http::parse_date(*text);
  };
  const auto since = date(field("if-unmodified-since"));
  if (const std::string* match = field("if-match")) {
    if (!names(etags_of(*match), object.etag)) return refuse(S3Code::precondition_failed);
  } else if (since && modified_s > *since) {
    return refuse(S3Code::precondition_failed);
  }
  const auto newer = date(field("if-modified-since"));
  if (const std::string* other = field("if-none-match")) {
    if (names(etags_of(*other), object.etag))
      return copy ? refuse(S3Code::precondition_failed) : not_modified(object);
  } else if (newer && modified_s <= *newer) {
    return copy ? refuse(S3Code::precondition_failed) : not_modified(object);
  }
  return {};
}

std::string_view type_name(bool composite) noexcept {
  return composite ? "COMPOSITE" : "FULL_OBJECT";
}

void add_version(net::http::Headers& headers, const std::string& version,
                 catalog::Versioning versioning) {
  if (versioning != catalog::Versioning::never) headers.add("x-amz-version-id", version);
}

net::http::Headers headers_of(const catalog::Object& object, bool checksums) {
  net::http::Headers out;
  out.add("ETag", quoted(object.etag));
  out.add("Last-Modified", http_time(object.modified_ms));
  out.add("Accept-Ranges", "bytes");
  bool typed = false;
  for (const auto& [name, value] : object.fields) {
    typed = typed || name == "content-type";
    out.add(name, value);
  }
  if (!typed) out.add("Content-Type", "binary/octet-stream");
  if (object.version != catalog::kNullVersion) out.add("x-amz-version-id", object.version);
  if (!object.tags.empty()) out.add("x-amz-tagging-count", std::to_string(object.tags.size()));
  if (checksums && object.checksum) {
    out.add("x-amz-checksum-" + object.checksum->algorithm, object.checksum->value);
    out.add("x-amz-checksum-type", std::string(type_name(object.checksum->composite)));
  }
  return out;
}

}  // namespace farlift::s3::gateway
