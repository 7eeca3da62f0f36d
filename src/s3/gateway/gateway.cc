#include "s3/gateway/gateway.h"

#include "core/base/prng.h"
#include "core/codec/json.h"
#include "core/codec/text.h"
#include "s3/gateway/operations.h"

#include <algorithm>
#include <array>

namespace farlift::s3::gateway {

namespace {

std::string new_request_id() {
  std::array<std::byte, 8> bytes;
  secure_random(bytes);
  std::string id = codec::hex_encode(bytes);
  for (char& c : id) {
    if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');
  }
  return id;
}

std::string resource_of(const Call& call) {
  return call.key().empty() ? call.bucket() : call.bucket() + "/" + call.key();
}

// The header families by which clients ask for a transfer into or out of their memory (spec
// s3 2.2, 2.5).
constexpr std::array kRdmaFields = {"x-amz-rdma-token", "x-rdma-info", "x-cuobj-rdma-descr",
                                    "x-amz-rdma-client-endpoint", "x-amz-rdma-client-descriptor"};

bool asks_for_transfer(const Call& call, const Operation& operation) {
  const bool moves_bytes = operation.run == put_object || operation.run == upload_part ||
                           (operation.run == get_object && !call.is_head());
  return moves_bytes && std::any_of(kRdmaFields.begin(), kRdmaFields.end(),
                                    [&](const char* name) { return call.headers().has(name); });
}

// Nothing was moved and nothing stored, so the client may ask again without the token. Never a 2xx:
// some take that for success without reading further, and an empty object would be stored (spec
// s3 2.4).
S3Error decline(std::string why) {
  S3Error error = refuse(S3Code::not_implemented, std::move(why));
  error.headers.emplace_back("x-amz-rdma-reply", "501");
  return error;
}

const char* signature_version(const Call& call) {
  return call.auth.kind == AuthKind::anonymous ? "-" : "SigV4";
}

}  // namespace

Result<std::unique_ptr<Gateway>> Gateway::start(Services services, net::http::ServerOptions server,
                                                AccessLog access_log) {
  auto gateway = std::make_unique<Gateway>(std::move(services), std::move(access_log));
  Gateway* const raw = gateway.get();
  const auto malformed = [](const net::http::Refusal& refusal, net::http::Headers& headers) {
    headers.set("Content-Type", "application/xml");
    return error_xml(refuse(S3Code::invalid_request, refusal.text), "", "");
  };
  TRY_ASSIGN(gateway->server_,
             net::http::Server::start(
                 std::move(server),
                 [raw](net::http::Request& request, net::http::Response& response) {
                   raw->handle(request, response);
                 },
                 raw->services_.clock, malformed));
  return gateway;
}

void Gateway::handle(net::http::Request& request, net::http::Response& response) {
  const Instant from = services_.clock.now();
  const std::int64_t began_ms = services_.now_ms();
  Call call(services_, request, response);
  call.request_id = new_request_id();
  const S3Status done = serve(call);
  if (!done.ok()) answer(call, done.error());
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(services_.clock.now() - from);
  log(call, began_ms, took.count());
}

S3Status Gateway::serve(Call& call) {
  net::http::Request& request = call.request();
  // The other family's control requests, for which there is no bucket (spec s3 2.5).
  if (request.method() == "POST" && request.target().starts_with("/.hipobj-rc/")) {
    S3Error error = decline("This RDMA protocol is not served.");
    error.headers.emplace_back("x-amz-rdma-protocol-status", "unsupported");
    return error;
  }
  TRY_ASSIGN(call.target, parse_target(request.target(), request.headers().get("Host"),
                                       services_.options.domain));
  const Operation& operation = operation_of(call);
  call.operation = operation.log_name;
  TRY(authenticate(call));
  const auto identities = services_.identities.now();
  const Identity& who = call.identity ? *call.identity : identities->anonymous();
  if (!who.may(operation.action, resource_of(call))) return refuse(S3Code::access_denied);
  if (asks_for_transfer(call, operation))
    return decline("No RDMA transport is configured; repeat the request without the token.");
  return operation.run(call);
}

S3Status Gateway::authenticate(Call& call) {
  const net::http::RequestHead& head = call.request().head();
  TRY_ASSIGN(call.auth, read_authorization(head, call.target));
  SigningKey key{};
  if (call.auth.kind != AuthKind::anonymous) {
    const auto identities = services_.identities.now();
    const Identities::Credential* const credential = identities->find(call.auth.access_key);
    if (credential == nullptr) {
      S3Error error = refuse(S3Code::invalid_access_key_id);
      error.elements.emplace_back("AWSAccessKeyId", call.auth.access_key);
      return error;
    }
    key = signing_key(credential->secret, call.auth.date, call.auth.region, call.auth.service);
    VerifyOptions options;
    options.region = services_.options.region;
    TRY(verify(call.auth, head, call.target, key, options, services_.now_ms() / 1000));
    call.identity = credential->identity;
  }
  call.payload.emplace(call.request(), call.auth, key);
  return {};
}

void Gateway::answer(Call& call, const S3Error& error) {
  call.error_code = std::string(error.name());
  net::http::Response& response = call.response();
  if (response.started()) {
    response.close_after();  // it falls short of what was announced: the client sees that
    return;
  }
  net::http::Headers headers;
  for (const auto& [name, value] : error.headers) headers.add(name, value);
  const bool has_body = !call.is_head() && error.status() != 304;
  std::string body;
  if (has_body) {
    headers.add("Content-Type", "application/xml");
    body = error_xml(error, "/" + resource_of(call), call.request_id);
  }
  response.send(error.status(), call.with_id(std::move(headers)), body).ignore();
}

void Gateway::log(const Call& call, std::int64_t began_ms, std::int64_t took_us) {
  if (!access_log_) return;
  auto& shared = const_cast<Call&>(call);
  codec::JsonWriter json;
  json.begin_object();
  const auto text = [&](std::string_view name, std::string_view value) {
    json.key(name).text(value);
  };
  text("time", iso_time(began_ms));
  text("bucket", call.bucket());
  text("key", call.key());
  text("remote_ip", shared.request().peer());
  text("requester", call.owner());
  text("request_id", call.request_id);
  text("operation", call.operation);
  json.key("status").number(shared.response().status());
  text("error_code", call.error_code);
  json.key("bytes_sent").number(shared.response().body_bytes_sent());
  json.key("total_time_us").number(static_cast<std::uint64_t>(took_us));
  text("host_header", call.header("Host"));
  text("user_agent", call.header("User-Agent"));
  text("signature_version", signature_version(call));
  if (call.rdma_bytes) {
    json.key("rdma_bytes").number(*call.rdma_bytes);
    text("rdma_transfer_path",
         call.rdma_transfer_path.empty() ? "unreported" : call.rdma_transfer_path);
  }
  json.end_object();
  access_log_(json.line());
}

}  // namespace farlift::s3::gateway
