#include "s3/volume/http_peer.h"

#include "core/codec/text.h"
#include "s3/wire/control_line.h"
#include "s3/wire/fid.h"

#include <utility>

namespace farlift::s3::volume {
namespace {

constexpr std::size_t kAnswerMax = 64u << 10;

net::http::ClientOptions client_options(const std::string& host, std::uint16_t port) {
  net::http::ClientOptions options;
  options.stream.host = host;
  options.stream.port = port;
  options.patience = HttpPeer::kPatience;
  return options;
}

std::string fid_of(const NeedleRef& needle) {
  return Fid{needle.volume.raw(), needle.key.id, needle.key.cookie}.format();
}

}  // namespace

HttpPeer::HttpPeer(const std::string& host, std::uint16_t port, const Access& access,
                   const Clock& clock)
    : access_(access), clock_(clock), client_(client_options(host, port), clock) {}

net::http::Headers HttpPeer::signed_headers(const std::string& fid) const {
  net::http::Headers headers;
  const std::string jwt = access_.sign_write(fid);
  if (!jwt.empty()) headers.add("Authorization", "Bearer " + jwt);
  return headers;
}

Result<HttpPeer::Answer> HttpPeer::call(std::string_view method, const std::string& target,
                                        net::http::Headers headers, std::span<const std::byte> body,
                                        bool* sent) {
  auto exchange = client_.start(method, target, std::move(headers), body.size(),
                                net::Deadline::after(clock_, kPatience));
  if (!exchange.ok()) return exchange.error();
  *sent = true;
  // The peer may have said no before it read all: its answer is worth more than our error.
  const Status written = (*exchange)->write(body);
  const auto head = (*exchange)->finish();
  if (!head.ok()) return written.ok() ? head.error() : written.error();
  Answer answer;
  answer.status = (*head)->status;
  TRY_ASSIGN(answer.body, (*exchange)->body().read_all(kAnswerMax));
  return answer;
}

Result<bool> HttpPeer::put(const NeedleRef& needle, const NeedleMeta& meta,
                           std::span<const std::byte> data, Crc32c crc, bool* sent) {
  const std::string fid = fid_of(needle);
  std::string target = "/" + fid + "?type=replicate";
  if (!meta.name.empty()) target += "&name=" + codec::percent_encode(meta.name);
  if ((meta.flags & kFlagManifest) != 0) target += "&cm=true";
  net::http::Headers headers = signed_headers(fid);
  headers.add("Content-Type", meta.mime.empty() ? "application/octet-stream" : meta.mime);
  headers.add("X-Farlift-Crc32c", crc_text(crc));
  if ((meta.flags & kFlagCompressed) != 0) headers.add("Content-Encoding", "gzip");
  TRY_ASSIGN(const Answer answer, call("POST", target, std::move(headers), data, sent));
  if (answer.status == 201) return answer.body.find("\"existed\":true") != std::string::npos;
  // A clear no leaves nothing there.
  if (answer.status >= 400 && answer.status < 500) *sent = false;
  return Error::make(answer.status == 409 ? Errc::already_exists : Errc::aborted, "replica refused",
                     static_cast<std::int32_t>(answer.status));
}

Status HttpPeer::remove(const NeedleRef& needle) {
  const std::string fid = fid_of(needle);
  bool sent = false;
  TRY_ASSIGN(const Answer answer,
             call("DELETE", "/" + fid + "?type=replicate", signed_headers(fid), {}, &sent));
  if (answer.status == 202 || answer.status == 404) return {};
  return Error::make(Errc::aborted, "replica refused", static_cast<std::int32_t>(answer.status));
}

}  // namespace farlift::s3::volume
