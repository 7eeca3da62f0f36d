// HttpApi: the data port of a volume server (spec s3 12), one handler for all its requests.
//
//   POST|PUT /VID,FID     201 {"name","size","eTag"}; raw body, or the first file of a form
//   GET|HEAD /VID,FID     200, 206; Range, If-None-Match
//   DELETE   /VID,FID     202 {"size"}; 404
//   GET  /status          volumes, space, what the server can do
//   GET  /metrics         counters as Prometheus reads them
//   POST /admin/assign_volume?volume=N     makes a volume
//   POST /admin/compact?volume=N           now
//
// `?type=replicate` marks a request of a peer, which sees to the other holders itself. The header
// X-Farlift-Crc32c (8 hex digits) of a POST is compared with the body that came.
//
// Invariants: a 201 means durable here and on all peers; a body that was cut off is not stored; no
//             byte is sent of a needle that is damaged (longer than kWholeMax: of the damaged
//             part).
// Threads:    handle() from any. Errors: answered, as JSON {"error": "..."}.
#pragma once

#include "core/base/result.h"
#include "core/net/http/server.h"
#include "s3/volume/access.h"
#include "s3/volume/buffers.h"
#include "s3/volume/http_request.h"
#include "s3/volume/store.h"
#include "s3/volume/writes.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>

namespace farlift::s3::volume {

struct HttpApiOptions {
  Length needle_max{64u << 20};
  std::string version = "farlift";
  // Further members of /status and lines of /metrics: what other ports know.
  std::function<std::string()> more_status = {};
  std::function<std::string()> more_metrics = {};
};

class HttpApi {
 public:
  static constexpr std::uint64_t kWholeMax = 8u << 20;  // read whole before the first byte is sent

  HttpApi(Store& store, Writes& writes, Access& access, HttpApiOptions options)
      : store_(store), writes_(writes), access_(access), options_(std::move(options)) {}
  void handle(net::http::Request& request, net::http::Response& response);

  struct Counters {
    std::uint64_t reads = 0;
    std::uint64_t read_bytes = 0;
    std::uint64_t writes = 0;
    std::uint64_t written_bytes = 0;
    std::uint64_t deletions = 0;
    std::uint64_t refused = 0;  // 4xx
    std::uint64_t failed = 0;   // 5xx
  };
  Counters counters() const noexcept;

 private:
  struct Call;
  void needle(Call& call);
  void get(Call& call, const NamedNeedle& named);
  void put(Call& call, const NamedNeedle& named);
  void store_body(Call& call, const NamedNeedle& named, std::span<const std::byte> body);
  void remove(Call& call, const NamedNeedle& named);
  void status(Call& call);
  void metrics(Call& call);
  void admin(Call& call);
  Status send_needle(Call& call, const Needle& needle, std::uint64_t from, std::uint64_t length,
                     std::uint32_t status, net::http::Headers headers);
  bool allowed(Call& call, Right right, const std::string& fid);
  void fail(Call& call, std::uint32_t status, std::string_view text);
  void fail(Call& call, const Error& error);

  Store& store_;
  Writes& writes_;
  Access& access_;
  const HttpApiOptions options_;
  const std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
  std::atomic<std::uint64_t> reads_{0}, read_bytes_{0}, writes_done_{0}, written_bytes_{0},
      deletions_{0}, refused_{0}, failed_{0};
};

std::string json_quoted(std::string_view text);

}  // namespace farlift::s3::volume
