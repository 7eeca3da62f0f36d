#include "s3/wire/control_line.h"

#include "core/codec/json.h"
#include "core/codec/text.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace farlift::s3 {
namespace {

using codec::Json;

constexpr std::array<std::string_view, 18> kCodes = {
    "",          "AUTH_MISSING", "AUTH_INVALID", "AUTH_EXPIRED",   "AUTH_FID", "BAD_REQUEST",
    "NOT_FOUND", "COOKIE",       "UNSUPPORTED",  "RANGE",          "BUDGET",   "READ_ONLY",
    "CRC",       "RDMA",         "EXPIRED",      "UNKNOWN_HANDLE", "DEADLINE", "INTERNAL"};
static_assert(kCodes.size() == static_cast<std::size_t>(ControlCode::internal) + 1);
constexpr std::array<std::string_view, 6> kOps = {"push",  "prepare", "commit",
                                                  "abort", "query",   "ping"};
constexpr std::array<std::string_view, 4> kStates = {"prepared", "committed", "not_committed",
                                                     "unknown"};

template <class Enum, std::size_t N>
std::optional<Enum> named(const std::array<std::string_view, N>& names, std::string_view text) {
  const auto at = std::find(names.begin(), names.end(), text);
  if (at == names.end() || text.empty()) return std::nullopt;
  return static_cast<Enum>(at - names.begin());
}

const std::string* text_in(const Json& json, std::string_view name) noexcept {
  const Json* member = json.find(name);
  return member == nullptr ? nullptr : member->text();
}

std::optional<std::uint64_t> number_in(const Json& json, std::string_view name) noexcept {
  const Json* member = json.find(name);
  return member == nullptr ? std::nullopt : member->u64();
}

std::optional<std::uint32_t> number32_in(const Json& json, std::string_view name) noexcept {
  const auto number = number_in(json, name);
  if (!number || *number > 0xffffffffu) return std::nullopt;
  return static_cast<std::uint32_t>(*number);
}

bool true_in(const Json& json, std::string_view name) noexcept {
  const Json* member = json.find(name);
  return member != nullptr && member->boolean() == true;
}

std::optional<Token> token_in(const Json& json) noexcept {
  const std::string* text = text_in(json, "token");
  if (text == nullptr || text->size() != kTokenLength) return std::nullopt;
  const TokenParse parse = parse_token(*text);
  if (parse.verdict != TokenVerdict::accepted) return std::nullopt;
  return parse.token;
}

// What is wrong with the members of an op, or nullptr.
const char* read_push(const Json& json, ControlRequest& request) {
  const auto offset = number_in(json, "offset");
  const auto window = number_in(json, "window_offset");
  const auto token = token_in(json);
  if (!offset || !window) return "offset or window_offset is missing or no whole number";
  if (!token) return "token is missing or malformed";
  request.offset = *offset;
  request.window_offset = *window;
  request.token = *token;
  return nullptr;
}

const char* read_members(const Json& json, ControlRequest& request) {
  const ControlOp op = request.op;
  if (op == ControlOp::ping) return nullptr;
  const bool by_handle =
      op == ControlOp::commit || op == ControlOp::abort || op == ControlOp::query;
  if (by_handle) {
    const std::string* handle = text_in(json, "handle");
    if (handle == nullptr || !is_handle(*handle)) return "handle is missing or malformed";
    request.handle = *handle;
  }
  if (op == ControlOp::abort || op == ControlOp::query) return nullptr;
  const std::string* fid = text_in(json, "fid");
  const auto size = number_in(json, "size");
  if (fid == nullptr) return "fid is missing or no string";
  if (!size || *size == 0) return "size is missing or no positive number";
  request.fid = *fid;
  request.size = *size;
  if (op == ControlOp::commit) {
    const std::string* text = text_in(json, "crc32c");
    const auto crc = text == nullptr ? std::nullopt : parse_crc(*text);
    if (!crc) return "crc32c is missing or malformed";
    request.crc32c = *crc;
    return nullptr;
  }
  const auto deadline = number32_in(json, "deadline_ms");
  if (!deadline) return "deadline_ms is missing or no whole number";
  request.deadline_ms = std::min(*deadline, kObjectDeadlineMaxMs);
  if (const Json* jwt = json.find("jwt"); jwt != nullptr) {
    if (jwt->text() == nullptr) return "jwt is no string";
    request.jwt = *jwt->text();
  }
  return op == ControlOp::push ? read_push(json, request) : nullptr;
}

}  // namespace

std::string crc_text(Crc32c crc) {
  std::array<std::byte, 4> bytes{};
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<std::byte>(crc.raw() >> (24 - 8 * i));
  return codec::hex_encode(bytes);
}

std::optional<Crc32c> parse_crc(std::string_view text) noexcept {
  std::uint32_t value = 0;
  if (text.size() != 8) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return Crc32c(value);
}

bool is_handle(std::string_view text) noexcept {
  return text.size() == kHandleDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string_view to_string(ControlOp op) noexcept { return kOps[static_cast<std::size_t>(op)]; }
std::string_view to_string(ControlCode code) noexcept {
  return kCodes[static_cast<std::size_t>(code)];
}
std::string_view to_string(HandleState state) noexcept {
  return kStates[static_cast<std::size_t>(state)];
}
std::optional<ControlCode> control_code(std::string_view text) noexcept {
  return named<ControlCode>(kCodes, text);
}

std::string ControlHello::encode() const {
  codec::JsonWriter out;
  out.begin_object().key("proto").text("swdc").key("v").number(1).key("features").begin_array();
  if (read_auth) out.text("READ_AUTH");
  if (write_auth) out.text("WRITE_AUTH");
  if (commit_query) out.text("COMMIT_QUERY");
  out.end_array().key("transport").text(transport);
  out.key("read_auth_required").boolean(read_auth_required);
  out.key("write_auth_required").boolean(write_auth_required);
  return out.key("max_transfer").number(max_transfer).end_object().line();
}

Result<ControlHello> ControlHello::parse(std::string_view line) {
  const Error malformed = Error::make(Errc::invalid_argument, "volume's hello");
  const auto json = Json::parse(line);
  if (!json.ok()) return malformed;
  const std::string* proto = text_in(*json, "proto");
  const std::string* transport = text_in(*json, "transport");
  const Json* features = json->find("features");
  if (proto == nullptr || *proto != "swdc" || number_in(*json, "v") != 1u || transport == nullptr ||
      features == nullptr || features->array() == nullptr) {
    return malformed;
  }
  ControlHello hello;
  for (const Json& feature : *features->array()) {
    if (feature.text() == nullptr) return malformed;
    if (*feature.text() == "READ_AUTH") hello.read_auth = true;
    if (*feature.text() == "WRITE_AUTH") hello.write_auth = true;
    if (*feature.text() == "COMMIT_QUERY") hello.commit_query = true;
  }
  hello.transport = *transport;
  hello.read_auth_required = true_in(*json, "read_auth_required");
  hello.write_auth_required = true_in(*json, "write_auth_required");
  hello.max_transfer = number_in(*json, "max_transfer").value_or(0);
  return hello;
}

std::string ControlRequest::encode() const {
  codec::JsonWriter out;
  out.begin_object().key("seq").number(seq).key("op").text(to_string(op));
  if (op == ControlOp::commit || op == ControlOp::abort || op == ControlOp::query)
    out.key("handle").text(handle);
  if (op == ControlOp::push || op == ControlOp::prepare || op == ControlOp::commit)
    out.key("fid").text(fid).key("size").number(size);
  if (op == ControlOp::commit) out.key("crc32c").text(crc_text(crc32c));
  if (op == ControlOp::push) {
    out.key("offset").number(offset).key("token").text(token.encode());
    out.key("window_offset").number(window_offset);
  }
  if (op == ControlOp::push || op == ControlOp::prepare) {
    if (!jwt.empty()) out.key("jwt").text(jwt);
    out.key("deadline_ms").number(deadline_ms);
  }
  return out.end_object().line();
}

ParsedControlRequest parse_control_request(std::string_view line) {
  ParsedControlRequest parsed;
  const auto json = Json::parse(line);
  if (!json.ok() || json->object() == nullptr) {
    parsed.message = "the line is no JSON object";
    return parsed;
  }
  parsed.seq = number32_in(*json, "seq");
  if (!parsed.seq) {
    parsed.message = "seq is missing or no 32-bit number";
    return parsed;
  }
  const std::string* name = text_in(*json, "op");
  const auto op = name == nullptr ? std::nullopt : named<ControlOp>(kOps, *name);
  if (!op) {
    parsed.message = "op is missing or not known";
    return parsed;
  }
  ControlRequest request;
  request.seq = *parsed.seq;
  request.op = *op;
  if (const char* fault = read_members(*json, request)) {
    parsed.message = fault;
    return parsed;
  }
  parsed.request = std::move(request);
  return parsed;
}

std::string ControlReply::encode() const {
  codec::JsonWriter out;
  out.begin_object().key("seq").number(seq).key("ok").boolean(ok);
  if (!ok) {
    out.key("code").text(to_string(code)).key("message").text(message);
    if (nothing_written) out.key("written").number(0);
  }
  if (bytes) out.key("bytes").number(*bytes);
  if (crc32c) out.key("crc32c").text(crc_text(*crc32c));
  if (!handle.empty()) out.key("handle").text(handle);
  if (token) out.key("token").text(token->encode());
  if (expires_ms) out.key("expires_ms").number(*expires_ms);
  if (state) out.key("state").text(to_string(*state));
  if (size) out.key("size").number(*size);
  if (!etag.empty()) out.key("etag").text(etag);
  return out.end_object().line();
}

Result<ControlReply> ControlReply::parse(std::string_view line) {
  const Error malformed = Error::make(Errc::invalid_argument, "volume's reply");
  const auto json = Json::parse(line);
  if (!json.ok()) return malformed;
  const auto seq = number32_in(*json, "seq");
  const Json* ok = json->find("ok");
  if (!seq || ok == nullptr || !ok->boolean()) return malformed;
  ControlReply reply;
  reply.seq = *seq;
  reply.ok = *ok->boolean();
  if (!reply.ok) {
    const std::string* code = text_in(*json, "code");
    reply.code = code == nullptr ? ControlCode::internal
                                 : control_code(*code).value_or(ControlCode::internal);
  }
  if (const std::string* message = text_in(*json, "message")) reply.message = *message;
  reply.nothing_written = number_in(*json, "written") == 0u;
  reply.bytes = number_in(*json, "bytes");
  if (const std::string* crc = text_in(*json, "crc32c")) reply.crc32c = parse_crc(*crc);
  if (const std::string* handle = text_in(*json, "handle")) {
    if (!is_handle(*handle)) return malformed;
    reply.handle = *handle;
  }
  if (json->find("token") != nullptr) {
    reply.token = token_in(*json);
    if (!reply.token) return malformed;
  }
  reply.expires_ms = number32_in(*json, "expires_ms");
  if (const std::string* state = text_in(*json, "state")) {
    reply.state = named<HandleState>(kStates, *state);
    if (!reply.state) return malformed;
  }
  reply.size = number_in(*json, "size");
  if (const std::string* etag = text_in(*json, "etag")) reply.etag = *etag;
  return reply;
}

}  // namespace farlift::s3
