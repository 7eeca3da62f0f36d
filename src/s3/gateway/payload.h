// Payload: the body of a request as the client means it: aws-chunked framing taken off, and every
// claim about it checked: length, SHA-256, chunk signatures, the trailer's signature.
//
//   while ((got = payload.read(buffer)) > 0) ...    // 0: the end, and all claims held
//
// Invariants: read() gives 0 only when the body was whole and all claims were true; bytes that were
// given
//             before that are worth nothing if it fails. Memory: one line buffer, whatever the
//             body's size.
// Threads:    one. Errors: incomplete_body, signature_does_not_match, content_sha256_mismatch,
//             invalid_request (framing), request_timeout.
#pragma once

#include "core/net/http/exchange.h"
#include "s3/gateway/sigv4.h"

#include <optional>
#include <string>

namespace farlift::s3::gateway {

inline constexpr std::size_t kChunkHeaderMax = 512;          // of aws-chunked
inline constexpr std::size_t kPayloadTrailerMax = 8 * 1024;  // all trailer lines of one body

class Payload {
 public:
  // `key` is the signer's; unused when nothing of the body is signed.
  Payload(net::http::Request& request, const Authorization& auth, const SigningKey& key);

  S3Result<std::size_t> read(std::span<std::byte> into);
  // Small bodies, whole. entity_too_large beyond `bytes_max`.
  S3Result<std::string> read_all(std::size_t bytes_max);

  // How much read() will give; nullopt: the client has not said.
  std::optional<std::uint64_t> length() const noexcept { return length_; }
  // Trailer fields, once read() gave 0; names in lower case.
  const net::http::Headers& trailers() const noexcept { return trailers_; }
  // The SHA-256 that the bytes must have. Whoever takes it computes it; otherwise read() does.
  std::optional<digest::Sha256Digest> take_sha256();
  bool touched() const noexcept { return touched_; }

 private:
  S3Result<std::size_t> read_plain(std::span<std::byte> into);
  S3Result<std::size_t> read_framed(std::span<std::byte> into);
  S3Result<std::size_t> raw(std::span<std::byte> into);
  S3Result<std::string> line(std::size_t bytes_max);
  S3Status next_chunk();
  S3Status end_chunk();
  S3Status read_trailers();
  S3Status at_end();

  net::http::Request& request_;
  const bool framed_;
  const bool signed_chunks_;
  const bool trailer_;
  const bool signed_trailer_;
  ChunkSigner signer_;
  std::optional<std::uint64_t> length_;
  std::uint64_t given_ = 0;
  std::optional<digest::Sha256Digest> expected_;
  digest::Sha256 hash_;
  bool touched_ = false;
  bool ended_ = false;
  // Of the framing.
  std::uint64_t left_ = 0;  // of the chunk
  bool in_chunk_ = false;
  std::string chunk_signature_;
  digest::Sha256 chunk_hash_;
  std::string buffer_;  // read ahead for lines
  std::size_t at_ = 0;
  net::http::Headers trailers_;
};

}  // namespace farlift::s3::gateway
