// Call: one request as an operation sees it, after it was authenticated and authorized.
//
// An operation answers by xml(), empty(), or by response().start() and what follows, and returns
// ok; or it returns an S3Error without having answered, and the front answers for it.
//
// Threads: one.
#pragma once

#include "core/net/http/exchange.h"
#include "s3/gateway/payload.h"
#include "s3/gateway/services.h"
#include "s3/gateway/sigv4.h"
#include "s3/gateway/target.h"
#include "s3/gateway/xml.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace farlift::s3::gateway {

class Call {
 public:
  Call(Services& services, net::http::Request& request, net::http::Response& response)
      : services_(services), request_(request), response_(response) {}

  Services& services() noexcept { return services_; }
  catalog::Store& store() noexcept { return services_.store; }
  net::http::Request& request() noexcept { return request_; }
  net::http::Response& response() noexcept { return response_; }
  const net::http::Headers& headers() const noexcept { return request_.headers(); }
  std::string_view header(std::string_view name) const noexcept {
    return request_.headers().get(name);
  }
  const Query& query() const noexcept { return target.query; }
  const std::string& bucket() const noexcept { return target.bucket; }
  const std::string& key() const noexcept { return target.key; }
  bool is_head() const noexcept { return request_.method() == "HEAD"; }

  // Adds what every answer carries.
  net::http::Headers with_id(net::http::Headers headers = {}) const;
  S3Status xml(std::string body, net::http::Headers headers = {});
  S3Status empty(std::uint32_t status, net::http::Headers headers = {});

  Target target;
  Authorization auth;
  std::shared_ptr<const Identity> identity;  // null: anonymous
  std::optional<Payload> payload;
  std::string request_id;
  const char* operation = "REST.UNKNOWN";  // for the access log
  std::string error_code;
  // Of a transfer through the object service (spec s3 9); unset: it was not reached.
  std::optional<std::uint64_t> rdma_bytes;
  std::string rdma_transfer_path;
  // The bytes of objects, whichever way they went.
  const std::string& owner() const;

 private:
  Services& services_;
  net::http::Request& request_;
  net::http::Response& response_;
};

// What the catalog said, in S3's words. `key` and `bucket` are named in the answer.
S3Error catalog_error(const Error& error, const Call& call);

// "2026-12-01T11:00:00.000Z"
std::string iso_time(std::int64_t ms);
std::string http_time(std::int64_t ms);
std::string quoted(std::string_view etag);

// Evaluates to the value of a Result of the catalog, or returns its S3Error from an operation.
#define CATALOG_ASSIGN(lhs, expr, call)                                            \
  auto FARLIFT_CONCAT(catalog_result_, __LINE__) = (expr);                         \
  if (!FARLIFT_CONCAT(catalog_result_, __LINE__).ok())                             \
    return catalog_error(FARLIFT_CONCAT(catalog_result_, __LINE__).error(), call); \
  lhs = std::move(FARLIFT_CONCAT(catalog_result_, __LINE__)).value()
#define CATALOG_TRY(expr, call)                               \
  do {                                                        \
    if (auto catalog_status_ = (expr); !catalog_status_.ok()) \
      return catalog_error(catalog_status_.error(), call);    \
  } while (false)

}  // namespace farlift::s3::gateway
