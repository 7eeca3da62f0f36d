#include "s3/gateway/volume_client.h"

#include "core/codec/json.h"
#include "core/codec/text.h"

namespace farlift::s3::gateway {

namespace {

constexpr std::size_t kAnswerMax = std::size_t{4} << 20;
constexpr std::size_t kHostsMax = 1024;

Error error_of(std::uint32_t status) {
  switch (status) {
    case 401:
    case 403:
      return Error::make(Errc::permission, "volume");
    case 404:
      return Error::make(Errc::not_found, "volume");
    case 507:
      return Error::make(Errc::exhausted, "volume");
    case 503:
      return Error::make(Errc::unreachable, "volume");
    default:
      return Error::make(Errc::io, "volume", static_cast<std::int32_t>(status));
  }
}

net::http::Headers headers_of(const std::string& jwt) {
  net::http::Headers headers;
  if (!jwt.empty()) headers.add("Authorization", "Bearer " + jwt);
  return headers;
}

std::string path_of(const std::string& fid) { return "/" + fid; }

}  // namespace

Result<net::http::Client*> VolumeClient::client_of(const std::string& host) {
  const MutexLock lock(mutex_);
  auto& client = clients_[host];
  if (client == nullptr) {
    const std::size_t colon = host.rfind(':');
    const auto port = codec::parse_u32(colon == std::string::npos ? "" : host.substr(colon + 1));
    if (!port.ok() || *port > 65535 || clients_.size() > kHostsMax) {
      clients_.erase(host);
      return Error::make(Errc::invalid_argument, "a volume server's HOST:PORT");
    }
    net::http::ClientOptions options;
    options.stream.host = host.substr(0, colon);
    if (options.stream.host.starts_with('[') && options.stream.host.ends_with(']'))
      options.stream.host = options.stream.host.substr(1, options.stream.host.size() - 2);
    options.stream.port = static_cast<std::uint16_t>(*port);
    options.kept_connections_max = options_.kept_connections_max;
    options.patience = options_.answer_patience;
    client = std::make_unique<net::http::Client>(std::move(options), clock_);
  }
  return client.get();
}

Result<std::unique_ptr<VolumeClient::Upload>> VolumeClient::upload(const Place& place,
                                                                   std::uint64_t length) {
  TRY_ASSIGN(net::http::Client* const client, client_of(place.host));
  net::http::Headers headers = headers_of(place.jwt);
  headers.add("Content-Type", "application/octet-stream");
  TRY_ASSIGN(auto exchange, client->start("POST", path_of(place.fid), std::move(headers), length,
                                          net::Deadline::after(clock_, options_.answer_patience)));
  return std::make_unique<Upload>(std::move(exchange));
}

Result<Crc32c> VolumeClient::Upload::finish() {
  TRY_ASSIGN(const net::http::ResponseHead* const head, exchange_->finish());
  TRY_ASSIGN(const std::string body, exchange_->body().read_all(kAnswerMax));
  if (head->status != 201) return error_of(head->status);
  const Result<codec::Json> answer = codec::Json::parse(body);
  const codec::Json* const etag = answer.ok() ? answer->find("eTag") : nullptr;
  if (etag == nullptr || etag->text() == nullptr) return Error::make(Errc::protocol, "volume");
  const auto bytes = codec::hex_decode(*etag->text());
  if (!bytes.ok() || bytes->size() != 4) return Error::make(Errc::protocol, "volume");
  std::uint32_t value = 0;
  for (const std::byte b : *bytes) value = value << 8 | std::to_integer<std::uint32_t>(b);
  return Crc32c(value);
}

Result<std::unique_ptr<VolumeClient::Download>> VolumeClient::download(const Place& place,
                                                                       std::uint64_t offset,
                                                                       std::uint64_t length) {
  TRY_ASSIGN(net::http::Client* const client, client_of(place.host));
  net::http::Headers headers = headers_of(place.jwt);
  headers.add("Range",
              "bytes=" + std::to_string(offset) + "-" + std::to_string(offset + length - 1));
  TRY_ASSIGN(auto exchange,
             client->start("GET", path_of(place.fid), std::move(headers), std::uint64_t{0},
                           net::Deadline::after(clock_, options_.answer_patience)));
  return std::make_unique<Download>(std::move(exchange));
}

Status VolumeClient::Download::begin() {
  TRY_ASSIGN(const net::http::ResponseHead* const head, exchange_->finish());
  return head->status == 206 ? Status() : Status(error_of(head->status));
}

Status VolumeClient::remove(const Place& place) {
  TRY_ASSIGN(net::http::Client* const client, client_of(place.host));
  TRY_ASSIGN(auto exchange,
             client->start("DELETE", path_of(place.fid), headers_of(place.jwt), std::uint64_t{0},
                           net::Deadline::after(clock_, options_.answer_patience)));
  TRY_ASSIGN(const net::http::ResponseHead* const head, exchange->finish());
  const std::uint32_t status = head->status;
  TRY(exchange->body().read_all(kAnswerMax));
  return status == 202 || status == 404 ? Status() : Status(error_of(status));
}

Result<std::string> VolumeClient::call(std::string_view method, const std::string& host,
                                       const std::string& target, const std::string& jwt) {
  TRY_ASSIGN(net::http::Client* const client, client_of(host));
  TRY_ASSIGN(auto exchange, client->start(method, target, headers_of(jwt), std::uint64_t{0},
                                          net::Deadline::after(clock_, options_.connect_patience)));
  TRY_ASSIGN(const net::http::ResponseHead* const head, exchange->finish());
  const std::uint32_t status = head->status;
  TRY_ASSIGN(std::string body, exchange->body().read_all(kAnswerMax));
  if (status != 200) return error_of(status);
  return body;
}

}  // namespace farlift::s3::gateway
