// SigV4: AWS signature version 4, as a header, as a query (presigned URL), and over the chunks of a
// streamed body.
//
//   TRY_ASSIGN(const Authorization auth, read_authorization(head, target));   // what is claimed
//   const auto secret = identities.find(auth.access_key);                     // whose it would be
//   TRY(verify(auth, head, target, secret, options, now));                    // whether it is so
//
// Invariants: a signature is compared in constant time; `host` is always signed, and so is every
//             x-amz-* field that is present (spec s3 2.1 step 2, 8.1): nothing that is acted upon
//             may be added on the way.
// Threads:    pure functions. Errors: as S3 names them.
#pragma once

#include "core/digest/hash.h"
#include "core/net/http/message.h"
#include "s3/gateway/target.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::s3::gateway {

enum class AuthKind : std::uint8_t { anonymous, header, query };

// What x-amz-content-sha256 says about the body.
enum class PayloadKind : std::uint8_t {
  unsigned_payload,
  hashed,                     // payload_hash is its SHA-256
  streaming_signed,           // aws-chunked, each chunk signed
  streaming_signed_trailer,   // and so is what follows the last
  streaming_unsigned_trailer  // aws-chunked without signatures
};

struct Authorization {
  AuthKind kind = AuthKind::anonymous;
  std::string access_key;
  std::string date;  // YYYYMMDD
  std::string region;
  std::string service;
  std::string timestamp;                    // YYYYMMDDTHHMMSSZ
  std::vector<std::string> signed_headers;  // lower case, as listed
  std::string signature;                    // 64 hex digits
  std::uint64_t expires_s = 0;              // query only
  std::string payload_hash;                 // as the canonical request names it
  PayloadKind payload = PayloadKind::unsigned_payload;

  std::string scope() const { return date + "/" + region + "/" + service + "/aws4_request"; }
  bool streaming() const noexcept { return payload >= PayloadKind::streaming_signed; }
  bool signs(std::string_view header) const noexcept;
};

// Of the request's own words, unchecked.
S3Result<Authorization> read_authorization(const net::http::RequestHead& head,
                                           const Target& target);

using SigningKey = digest::Sha256Digest;
SigningKey signing_key(std::string_view secret, std::string_view date, std::string_view region,
                       std::string_view service);

struct VerifyOptions {
  std::string region = "us-east-1";  // empty: any
  std::uint64_t skew_max_s = 15 * 60;
};

// `key` belongs to auth's access key, date, region and service.
S3Status verify(const Authorization& auth, const net::http::RequestHead& head, const Target& target,
                const SigningKey& key, const VerifyOptions& options, std::int64_t now_s);

// The pieces, for tests and for those who sign.
std::string canonical_request(const Authorization& auth, const net::http::RequestHead& head,
                              const Target& target, std::string_view canonical_path);
std::string string_to_sign(const Authorization& auth, std::string_view canonical);
std::string sign(const SigningKey& key, std::string_view text);  // hex

// Chunk by chunk: each signature covers the one before it.
class ChunkSigner {
 public:
  ChunkSigner(SigningKey key, const Authorization& auth)
      : key_(key), timestamp_(auth.timestamp), scope_(auth.scope()), previous_(auth.signature) {}
  // True when `signature` is right for a chunk of that SHA-256; the next one is then expected.
  bool chunk(std::string_view signature, const digest::Sha256Digest& hash);
  // `lines` is every trailer field as "name:value\n".
  bool trailer(std::string_view signature, std::string_view lines);
  std::string sign_chunk(const digest::Sha256Digest& hash) const;
  std::string sign_trailer(std::string_view lines) const;
  void advance(std::string signature) { previous_ = std::move(signature); }

 private:
  bool accept(std::string_view signature, std::string expected);

  SigningKey key_;
  std::string timestamp_;
  std::string scope_;
  std::string previous_;
};

// "20260101T000000Z" as seconds since the epoch.
S3Result<std::int64_t> parse_timestamp(std::string_view text);
std::string format_timestamp(std::int64_t seconds);

inline constexpr std::string_view kEmptySha256 =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

}  // namespace farlift::s3::gateway
