#include "s3/gateway/payload.h"

#include "core/codec/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>

namespace farlift::s3::gateway {

namespace {

constexpr std::size_t kAhead = 1024;

S3Error broken(const char* what) {
  return refuse(S3Code::invalid_request,
                std::string("The aws-chunked framing of the body is broken: ") + what + ".");
}

S3Error of_body(const Error& error) {
  if (error.code == Errc::timeout) return refuse(S3Code::request_timeout);
  if (error.code == Errc::protocol)
    return refuse(S3Code::invalid_request, "The chunked encoding of the body is broken.");
  return refuse(S3Code::incomplete_body);
}

std::optional<std::uint64_t> announced_length(const net::http::RequestHead& head, bool framed) {
  if (!framed) return head.chunked ? std::nullopt : std::optional(head.content_length.value_or(0));
  const auto decoded = codec::parse_u64(head.headers.get("x-amz-decoded-content-length"));
  return decoded.ok() ? std::optional(*decoded) : std::nullopt;
}

}  // namespace

Payload::Payload(net::http::Request& request, const Authorization& auth, const SigningKey& key)
    : request_(request),
      framed_(auth.streaming()),
      signed_chunks_(auth.payload == PayloadKind::streaming_signed ||
                     auth.payload == PayloadKind::streaming_signed_trailer),
      trailer_(auth.payload == PayloadKind::streaming_signed_trailer ||
               auth.payload == PayloadKind::streaming_unsigned_trailer),
      signed_trailer_(auth.payload == PayloadKind::streaming_signed_trailer),
      signer_(key, auth),
      length_(announced_length(request.head(), framed_)) {
  if (auth.payload == PayloadKind::hashed) {
    const auto bytes = codec::hex_decode(auth.payload_hash);
    digest::Sha256Digest expected{};
    if (bytes.ok() && bytes->size() == expected.size())
      std::copy(bytes->begin(), bytes->end(), expected.begin());
    expected_ = expected;
  }
}

std::optional<digest::Sha256Digest> Payload::take_sha256() {
  return std::exchange(expected_, std::nullopt);
}

S3Result<std::size_t> Payload::read(std::span<std::byte> into) {
  touched_ = true;
  if (ended_) return std::size_t{0};
  if (length_ && given_ < *length_ && into.size() > *length_ - given_ && framed_)
    into = into.first(static_cast<std::size_t>(*length_ - given_));
  S3Result<std::size_t> got = framed_ ? read_framed(into) : read_plain(into);
  if (!got.ok()) return got;
  if (*got == 0) {
    TRY(at_end());
    ended_ = true;
    return got;
  }
  given_ += *got;
  if (expected_) hash_.update(into.first(*got));
  if (length_ && given_ > *length_)
    return refuse(S3Code::incomplete_body, "The body is longer than the headers say.");
  return got;
}

S3Result<std::string> Payload::read_all(std::size_t bytes_max) {
  if (length_ && *length_ > bytes_max) return refuse(S3Code::entity_too_large);
  std::string out;
  std::array<std::byte, 8192> part;
  for (;;) {
    TRY_ASSIGN(const std::size_t got, read(part));
    if (got == 0) return out;
    if (out.size() + got > bytes_max) return refuse(S3Code::entity_too_large);
    out.append(reinterpret_cast<const char*>(part.data()), got);
  }
}

S3Status Payload::at_end() {
  if (length_ && given_ != *length_) return refuse(S3Code::incomplete_body);
  if (expected_ && hash_.finish() != *expected_) return refuse(S3Code::content_sha256_mismatch);
  return {};
}

S3Result<std::size_t> Payload::read_plain(std::span<std::byte> into) {
  const Result<std::size_t> got = request_.body().read(into);
  if (!got.ok()) return of_body(got.error());
  return *got;
}

// What was read ahead first.
S3Result<std::size_t> Payload::raw(std::span<std::byte> into) {
  if (at_ < buffer_.size()) {
    const std::size_t count = std::min(into.size(), buffer_.size() - at_);
    std::memcpy(into.data(), buffer_.data() + at_, count);
    at_ += count;
    return count;
  }
  return read_plain(into);
}

S3Result<std::string> Payload::line(std::size_t bytes_max) {
  for (;;) {
    const std::size_t end = buffer_.find("\r\n", at_);
    if (end != std::string::npos) {
      if (end - at_ > bytes_max) return broken("a line is too long");
      std::string out = buffer_.substr(at_, end - at_);
      at_ = end + 2;
      return out;
    }
    if (buffer_.size() - at_ > bytes_max + 2) return broken("a line is too long");
    buffer_.erase(0, at_);
    at_ = 0;
    std::array<std::byte, kAhead> more;
    TRY_ASSIGN(const std::size_t got, read_plain(more));
    if (got == 0) return refuse(S3Code::incomplete_body);
    buffer_.append(reinterpret_cast<const char*>(more.data()), got);
  }
}

S3Result<std::size_t> Payload::read_framed(std::span<std::byte> into) {
  if (!in_chunk_) {
    TRY(next_chunk());
    if (ended_) return std::size_t{0};
  }
  const std::size_t want = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), left_));
  TRY_ASSIGN(const std::size_t got, raw(into.first(want)));
  if (got == 0) return refuse(S3Code::incomplete_body);
  if (signed_chunks_) chunk_hash_.update(into.first(got));
  left_ -= got;
  if (left_ == 0) TRY(end_chunk());
  return got;
}

// "1000;chunk-signature=0055..." CRLF
S3Status Payload::next_chunk() {
  TRY_ASSIGN(const std::string text, line(kChunkHeaderMax));
  std::uint64_t size = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failed] = std::from_chars(text.data(), end, size, 16);
  if (failed != std::errc() || rest == text.data()) return broken("a chunk has no size");
  const std::string_view extension(rest, static_cast<std::size_t>(end - rest));
  constexpr std::string_view kSignature = ";chunk-signature=";
  if (signed_chunks_) {
    if (!extension.starts_with(kSignature)) return broken("a chunk has no signature");
    chunk_signature_ = std::string(extension.substr(kSignature.size()));
  } else if (!extension.empty() && extension.front() != ';') {
    return broken("the size of a chunk is no hexadecimal number");
  }
  if (length_ && size > *length_ - given_)
    return refuse(S3Code::incomplete_body, "The body is longer than the headers say.");
  left_ = size;
  in_chunk_ = size > 0;
  if (size > 0) return {};
  // The last one, which has no data.
  if (signed_chunks_ && !signer_.chunk(chunk_signature_, chunk_hash_.finish()))
    return refuse(S3Code::signature_does_not_match, "The signature of the last chunk is wrong.");
  TRY(read_trailers());
  std::array<std::byte, 1> more;
  TRY_ASSIGN(const std::size_t got, raw(more));
  if (got != 0) return broken("bytes follow its end");
  TRY(at_end());
  ended_ = true;
  return {};
}

S3Status Payload::end_chunk() {
  in_chunk_ = false;
  TRY_ASSIGN(const std::string nothing, line(0));
  if (!nothing.empty()) return broken("a chunk is longer than its size");
  if (signed_chunks_ && !signer_.chunk(chunk_signature_, chunk_hash_.finish()))
    return refuse(S3Code::signature_does_not_match, "The signature of a chunk is wrong.");
  return {};
}

S3Status Payload::read_trailers() {
  std::string signed_lines;
  std::string signature;
  for (std::size_t bytes = 0;;) {
    TRY_ASSIGN(std::string text, line(kPayloadTrailerMax));
    if (text.empty()) break;
    bytes += text.size() + 2;
    if (bytes > kPayloadTrailerMax) return broken("the trailer is too long");
    // Some clients end each field with LF alone inside.
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos || colon == 0) return broken("a trailer field has no name");
    std::string name = text.substr(0, colon);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    std::string value = text.substr(colon + 1);
    value.erase(0, std::min(value.find_first_not_of(" \t"), value.size()));
    value.erase(value.find_last_not_of(" \t") + 1);
    if (name == "x-amz-trailer-signature") {
      signature = value;
      continue;
    }
    signed_lines += name + ":" + value + "\n";
    trailers_.add(std::move(name), std::move(value));
  }
  if (!trailer_ && !trailers_.all().empty()) return broken("a trailer was not announced");
  if (signed_trailer_ && !signer_.trailer(signature, signed_lines))
    return refuse(S3Code::signature_does_not_match, "The signature of the trailer is wrong.");
  return {};
}

}  // namespace farlift::s3::gateway
