#include "s3/gateway/sigv4.h"

#include "core/codec/text.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>

namespace farlift::s3::gateway {
namespace {

constexpr std::string_view kAlgorithm = "AWS4-HMAC-SHA256";
constexpr std::uint64_t kExpiresMaxS = 7 * 24 * 3600;
constexpr std::size_t kSignedHeadersMax = 256;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string hex_of(const digest::Sha256Digest& digest) { return codec::hex_encode(digest); }

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool digits_only(std::string_view text) noexcept {
  return text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_hash(std::string_view text) noexcept {
  return text.size() == 64 &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::vector<std::string> split(std::string_view text, char by) {
  std::vector<std::string> parts;
  for (;;) {
    const std::size_t end = text.find(by);
    parts.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Blanks around are gone already; runs of blanks inside count as one.
void append_value(std::string& out, std::string_view value) {
  bool blank = false;
  for (const char c : value) {
    if ((c == ' ' || c == '\t') && blank) continue;
    blank = c == ' ' || c == '\t';
    out += blank ? ' ' : c;
  }
}

S3Error malformed(AuthKind kind, std::string why) {
  return refuse(kind == AuthKind::query ? S3Code::authorization_query_malformed
                                        : S3Code::authorization_header_malformed,
                std::move(why));
}

S3Status read_credential(Authorization& auth, std::string_view credential) {
  // The access key itself may contain a slash.
  std::vector<std::string> parts = split(credential, '/');
  if (parts.size() < 5 || parts.back() != "aws4_request")
    return malformed(auth.kind, "Credential is not KEY/DATE/REGION/SERVICE/aws4_request.");
  const std::size_t n = parts.size();
  auth.service = parts[n - 2];
  auth.region = parts[n - 3];
  auth.date = parts[n - 4];
  auth.access_key = parts[0];
  for (std::size_t i = 1; i < n - 4; ++i) auth.access_key += "/" + parts[i];
  if (auth.access_key.empty() || auth.date.size() != 8 || !digits_only(auth.date) ||
      auth.service != "s3") {
    return malformed(auth.kind, "Credential is not KEY/DATE/REGION/s3/aws4_request.");
  }
  return {};
}

S3Status read_signed_headers(Authorization& auth, std::string_view list) {
  auth.signed_headers = split(list, ';');
  if (auth.signed_headers.size() > kSignedHeadersMax)
    return malformed(auth.kind, "SignedHeaders is too long.");
  for (std::string& name : auth.signed_headers) name = lower(name);
  return {};
}

S3Status read_header_form(Authorization& auth, std::string_view value) {
  value.remove_prefix(kAlgorithm.size());
  std::string_view credential;
  std::string_view headers;
  for (const std::string& part : split(value, ',')) {
    std::string_view field(part);
    field.remove_prefix(std::min(field.find_first_not_of(" \t"), field.size()));
    const std::size_t equals = std::min(field.find('='), field.size());
    const std::string_view name = field.substr(0, equals);
    const std::string_view text = field.substr(std::min(equals + 1, field.size()));
    if (name == "Credential") TRY(read_credential(auth, text));
    if (name == "SignedHeaders") TRY(read_signed_headers(auth, text));
    if (name == "Signature") auth.signature = std::string(text);
  }
  if (auth.access_key.empty() || auth.signed_headers.empty() || auth.signature.empty())
    return malformed(auth.kind, "Credential, SignedHeaders and Signature are all needed.");
  return {};
}

S3Status read_query_form(Authorization& auth, const Query& query) {
  if (query.get("X-Amz-Algorithm") != kAlgorithm)
    return malformed(auth.kind, "X-Amz-Algorithm is not AWS4-HMAC-SHA256.");
  TRY(read_credential(auth, query.get("X-Amz-Credential")));
  TRY(read_signed_headers(auth, query.get("X-Amz-SignedHeaders")));
  auth.signature = std::string(query.get("X-Amz-Signature"));
  auth.timestamp = std::string(query.get("X-Amz-Date"));
  const Result<std::uint64_t> expires = codec::parse_u64(query.get("X-Amz-Expires"));
  if (!expires.ok() || *expires < 1 || *expires > kExpiresMaxS)
    return malformed(auth.kind, "X-Amz-Expires is a number of seconds between 1 and 604800.");
  auth.expires_s = *expires;
  return {};
}

S3Status read_payload(Authorization& auth, std::string_view value) {
  if (value.empty()) {
    if (auth.kind == AuthKind::header)
      return refuse(S3Code::invalid_request, "The header x-amz-content-sha256 is missing.");
    value = "UNSIGNED-PAYLOAD";
  }
  auth.payload_hash = std::string(value);
  if (value == "UNSIGNED-PAYLOAD") {
    auth.payload = PayloadKind::unsigned_payload;
  } else if (value == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD") {
    auth.payload = PayloadKind::streaming_signed;
  } else if (value == "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER") {
    auth.payload = PayloadKind::streaming_signed_trailer;
  } else if (value == "STREAMING-UNSIGNED-PAYLOAD-TRAILER") {
    auth.payload = PayloadKind::streaming_unsigned_trailer;
  } else if (value.starts_with("STREAMING-AWS4-ECDSA")) {
    return refuse(S3Code::not_implemented, "Signatures of version 4A are not implemented here.");
  } else if (is_hash(value)) {
    auth.payload = PayloadKind::hashed;
  } else {
    return refuse(S3Code::invalid_argument,
                  "x-amz-content-sha256 is UNSIGNED-PAYLOAD, a STREAMING form, or 64 hex digits.");
  }
  const bool chunks_signed = auth.payload == PayloadKind::streaming_signed ||
                             auth.payload == PayloadKind::streaming_signed_trailer;
  if (auth.kind == AuthKind::anonymous && chunks_signed)
    return refuse(S3Code::access_denied, "An anonymous request cannot have signed chunks.");
  return {};
}

std::string canonical_query(const Query& query) {
  std::vector<std::pair<std::string, std::string>> fields;
  for (const auto& [name, value] : query.all()) {
    if (name == "X-Amz-Signature") continue;
    fields.emplace_back(codec::percent_encode(name), codec::percent_encode(value));
  }
  std::sort(fields.begin(), fields.end());
  std::string out;
  for (const auto& [name, value] : fields) {
    if (!out.empty()) out += '&';
    out += name;
    out += '=';
    out += value;
  }
  return out;
}

S3Status check_time(const Authorization& auth, const VerifyOptions& options, std::int64_t now_s) {
  TRY_ASSIGN(const std::int64_t then, parse_timestamp(auth.timestamp));
  if (auth.timestamp.substr(0, 8) != auth.date)
    return malformed(auth.kind, "The date of the Credential is not that of the request.");
  const auto skew = static_cast<std::int64_t>(options.skew_max_s);
  if (then - now_s > skew) {
    return auth.kind == AuthKind::query
               ? refuse(S3Code::access_denied, "The request is not valid yet.")
               : refuse(S3Code::request_time_too_skewed);
  }
  if (auth.kind == AuthKind::header && now_s - then > skew)
    return refuse(S3Code::request_time_too_skewed);
  if (auth.kind == AuthKind::query && now_s - then > static_cast<std::int64_t>(auth.expires_s))
    return refuse(S3Code::access_denied, "The request has expired.");
  return {};
}

S3Status check_signed_headers(const Authorization& auth, const net::http::RequestHead& head) {
  if (!auth.signs("host")) return refuse(S3Code::access_denied, "The header host must be signed.");
  for (const net::http::Field& field : head.headers.all()) {
    const std::string name = lower(field.name);
    const bool acted_upon =
        name.starts_with("x-amz-") || name == "x-rdma-info" || name.starts_with("x-cuobj-");
    // The payload's hash is in the canonical request by itself.
    if (acted_upon && name != "x-amz-content-sha256" && !auth.signs(name)) {
      S3Error error =
          refuse(S3Code::access_denied, "There are headers in the request that were not signed.");
      error.elements.emplace_back("HeadersNotSigned", name);
      return error;
    }
  }
  return {};
}

}  // namespace

bool Authorization::signs(std::string_view header) const noexcept {
  return std::find(signed_headers.begin(), signed_headers.end(), header) != signed_headers.end();
}

S3Result<Authorization> read_authorization(const net::http::RequestHead& head,
                                           const Target& target) {
  Authorization auth;
  const std::string_view header = head.headers.get("Authorization");
  const bool in_query = target.query.has("X-Amz-Algorithm") || target.query.has("X-Amz-Signature");
  if (!header.empty() && in_query)
    return refuse(S3Code::invalid_argument, "A request is signed in its headers or its query.");
  if (head.headers.count("Authorization") > 1 || head.headers.count("x-amz-content-sha256") > 1)
    return refuse(S3Code::invalid_argument, "A header that must come once came twice.");
  if (header.starts_with("AWS ") || target.query.has("AWSAccessKeyId")) {
    return refuse(S3Code::invalid_request,
                  "Signatures of version 2 are not supported; use AWS4-HMAC-SHA256.");
  }
  if (!header.empty()) {
    auth.kind = AuthKind::header;
    if (!header.starts_with(std::string(kAlgorithm) + " "))
      return malformed(auth.kind, "The Authorization header is not of AWS4-HMAC-SHA256.");
    TRY(read_header_form(auth, header));
    auth.timestamp = std::string(head.headers.get("x-amz-date"));
    if (auth.timestamp.empty()) {
      const auto date = net::http::parse_date(head.headers.get("Date"));
      if (!date) return refuse(S3Code::access_denied, "A signed request needs x-amz-date or Date.");
      auth.timestamp = format_timestamp(*date);
    }
  } else if (in_query) {
    auth.kind = AuthKind::query;
    TRY(read_query_form(auth, target.query));
  }
  std::string_view payload = head.headers.get("x-amz-content-sha256");
  if (payload.empty()) payload = target.query.get("X-Amz-Content-Sha256");
  TRY(read_payload(auth, payload));
  return auth;
}

SigningKey signing_key(std::string_view secret, std::string_view date, std::string_view region,
                       std::string_view service) {
  const std::string first = "AWS4" + std::string(secret);
  SigningKey key = digest::hmac_sha256(bytes_of(first), bytes_of(date));
  key = digest::hmac_sha256(key, bytes_of(region));
  key = digest::hmac_sha256(key, bytes_of(service));
  return digest::hmac_sha256(key, bytes_of("aws4_request"));
}

std::string canonical_request(const Authorization& auth, const net::http::RequestHead& head,
                              const Target& target, std::string_view canonical_path) {
  std::string out = head.method + "\n";
  out += canonical_path;
  out += "\n" + canonical_query(target.query) + "\n";
  std::string names;
  for (const std::string& name : auth.signed_headers) {
    out += name + ":";
    bool first = true;
    for (const net::http::Field& field : head.headers.all()) {
      if (!net::http::same_name(field.name, name)) continue;
      if (!first) out += ',';
      first = false;
      append_value(out, field.value);
    }
    out += "\n";
    if (!names.empty()) names += ';';
    names += name;
  }
  return out + "\n" + names + "\n" + auth.payload_hash;
}

std::string string_to_sign(const Authorization& auth, std::string_view canonical) {
  return std::string(kAlgorithm) + "\n" + auth.timestamp + "\n" + auth.scope() + "\n" +
         hex_of(digest::sha256(bytes_of(canonical)));
}

std::string sign(const SigningKey& key, std::string_view text) {
  return hex_of(digest::hmac_sha256(key, bytes_of(text)));
}

S3Status verify(const Authorization& auth, const net::http::RequestHead& head, const Target& target,
                const SigningKey& key, const VerifyOptions& options, std::int64_t now_s) {
  if (!options.region.empty() && auth.region != options.region) {
    S3Error error = malformed(
        auth.kind, "The region is '" + auth.region + "', expected '" + options.region + "'.");
    error.elements.emplace_back("Region", options.region);
    return error;
  }
  TRY(check_time(auth, options, now_s));
  TRY(check_signed_headers(auth, head));
  // Most clients sign the path as they send it. Those that escape it otherwise sign the form that
  // AWS describes; both name the same key.
  const Result<std::string> decoded = codec::percent_decode(target.raw_path);
  const std::string paths[] = {target.raw_path,
                               codec::percent_encode(decoded.value_or(target.raw_path), "/")};
  for (const std::string& path : paths) {
    const std::string expected =
        sign(key, string_to_sign(auth, canonical_request(auth, head, target, path)));
    if (digest::equal(bytes_of(expected), bytes_of(auth.signature))) return {};
  }
  return refuse(S3Code::signature_does_not_match);
}

bool ChunkSigner::accept(std::string_view signature, std::string expected) {
  if (!digest::equal(bytes_of(signature), bytes_of(expected))) return false;
  previous_ = std::move(expected);
  return true;
}

std::string ChunkSigner::sign_chunk(const digest::Sha256Digest& hash) const {
  return sign(key_, "AWS4-HMAC-SHA256-PAYLOAD\n" + timestamp_ + "\n" + scope_ + "\n" + previous_ +
                        "\n" + std::string(kEmptySha256) + "\n" + hex_of(hash));
}

std::string ChunkSigner::sign_trailer(std::string_view lines) const {
  return sign(key_, "AWS4-HMAC-SHA256-TRAILER\n" + timestamp_ + "\n" + scope_ + "\n" + previous_ +
                        "\n" + hex_of(digest::sha256(bytes_of(lines))));
}

bool ChunkSigner::chunk(std::string_view signature, const digest::Sha256Digest& hash) {
  return accept(signature, sign_chunk(hash));
}

bool ChunkSigner::trailer(std::string_view signature, std::string_view lines) {
  return accept(signature, sign_trailer(lines));
}

S3Result<std::int64_t> parse_timestamp(std::string_view text) {
  const bool shaped = text.size() == 16 && digits_only(text.substr(0, 8)) && text[8] == 'T' &&
                      digits_only(text.substr(9, 6)) && text[15] == 'Z';
  if (!shaped)
    return refuse(S3Code::access_denied, "The date of the request is not YYYYMMDDTHHMMSSZ.");
  const auto part = [&](std::size_t at, std::size_t count) {
    return static_cast<int>(codec::parse_u32(text.substr(at, count)).value_or(0));
  };
  std::tm t{};
  t.tm_year = part(0, 4) - 1900;
  t.tm_mon = part(4, 2) - 1;
  t.tm_mday = part(6, 2);
  t.tm_hour = part(9, 2);
  t.tm_min = part(11, 2);
  t.tm_sec = part(13, 2);
  return static_cast<std::int64_t>(::timegm(&t));
}

std::string format_timestamp(std::int64_t seconds) {
  const std::time_t when = seconds;
  std::tm t{};
  ::gmtime_r(&when, &t);
  char text[80];
  std::snprintf(text, sizeof text, "%04d%02d%02dT%02d%02d%02dZ", t.tm_year + 1900, t.tm_mon + 1,
                t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec);
  return text;
}

}  // namespace farlift::s3::gateway
