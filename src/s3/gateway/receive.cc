#include "s3/gateway/receive.h"

#include "core/codec/text.h"

#include <algorithm>

namespace farlift::s3::gateway {

namespace {

S3Error bad_digest(const std::string& what) {
  return refuse(S3Code::bad_digest, "The " + what + " that was sent is not that of the body.");
}

S3Status check_claims(const Call& call, const ClaimedDigests& claims,
                      const std::optional<digest::Sha256Digest>& sha256, const Received& got) {
  const BodyDigests& seen = got.body.digests;
  if (sha256 && seen.sha256 != sha256) return refuse(S3Code::content_sha256_mismatch);
  if (claims.md5 && seen.md5 != claims.md5) return bad_digest("Content-MD5");
  if (!claims.algorithm) return {};
  std::string value = claims.value;
  if (claims.in_trailer) {
    value = std::string(call.payload->trailers().get(header_of(*claims.algorithm)));
    if (!valid_checksum(*claims.algorithm, value)) {
      return refuse(S3Code::invalid_request,
                    "The trailer " + header_of(*claims.algorithm) + " is missing or invalid.");
    }
  }
  if (!value.empty() && value != got.checksum->value)
    return bad_digest(header_of(*claims.algorithm));
  return {};
}

}  // namespace

S3Result<Received> receive(Call& call, std::optional<Algorithm> fallback) {
  const net::http::RequestHead& head = call.request().head();
  if (!head.content_length && !head.chunked) return refuse(S3Code::missing_content_length);
  const std::optional<std::uint64_t> length = call.payload->length();
  if (call.auth.streaming() && !length)
    return refuse(S3Code::missing_content_length, "x-amz-decoded-content-length is needed.");
  if (length && *length > kPutSizeMax) return refuse(S3Code::entity_too_large);
  TRY_ASSIGN(const ClaimedDigests claims, claimed_digests(call));
  const std::optional<Algorithm> algorithm = claims.algorithm ? claims.algorithm : fallback;
  const std::optional<digest::Sha256Digest> sha256 = call.payload->take_sha256();
  WantedDigests wanted;
  wanted.sha256 = sha256.has_value();
  if (algorithm) wanted.checksums.push_back(*algorithm);
  BodyWriter writer(call.services());
  std::uint64_t size = 0;
  const auto source = [&](std::span<std::byte> into) -> S3Result<std::size_t> {
    TRY_ASSIGN(const std::size_t count, call.payload->read(into));
    size += count;
    if (size > kPutSizeMax) return refuse(S3Code::entity_too_large);
    return count;
  };
  S3Result<Received> out{Received()};
  {
    S3Result<StoredBody> stored = writer.write(source, length, wanted);
    if (!stored.ok()) return stored.error();
    out->body = std::move(stored).value();
  }
  out->etag = codec::hex_encode(*out->body.digests.md5);
  if (algorithm) {
    out->checksum = catalog::Checksum{std::string(name_of(*algorithm)),
                                      out->body.digests.checksums.front().second, false};
  }
  const S3Status right = check_claims(call, claims, sha256, *out);
  if (!right.ok()) {
    writer.discard(out->body);
    return right.error();
  }
  return out;
}

void drop(Call& call, const Received& received) {
  BodyWriter(call.services()).discard(received.body);
}

}  // namespace farlift::s3::gateway
