#include "s3/volume/http_api.h"

#include "core/base/log.h"
#include "core/codec/text.h"
#include "core/digest/crc32c.h"
#include "core/digest/hash.h"
#include "core/net/http/range.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

namespace farlift::s3::volume {

using net::http::Headers;

struct HttpApi::Call {
  net::http::Request& request;
  net::http::Response& response;
  DataTarget target;

  std::string_view query(std::string_view name) const {
    const auto found = target.query.find(name);
    return found == target.query.end() ? std::string_view() : found->second;
  }
};

namespace {

constexpr std::size_t kPieceBytes = 1u << 20;

std::string hex8(Crc32c crc) {
  std::array<char, 9> text{};
  std::snprintf(text.data(), text.size(), "%08x", crc.raw());
  return text.data();
}

Result<Crc32c> crc_of_hex(std::string_view text) {
  TRY_ASSIGN(const auto bytes, codec::hex_decode(text));
  if (bytes.size() != 4) return Error::make(Errc::invalid_argument, "crc");
  std::uint32_t value = 0;
  for (const std::byte b : bytes) value = value << 8 | std::to_integer<std::uint32_t>(b);
  return Crc32c(value);
}

// What a client may be told in a field without a quote or a line end in it.
bool is_plain_text(std::string_view text) noexcept {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
}

std::uint32_t status_of(Errc code) noexcept {
  switch (code) {
    case Errc::not_found:
    case Errc::permission:  // another cookie: no more is told than that there is nothing
      return 404;
    case Errc::invalid_argument:
    case Errc::checksum:
      return 400;
    case Errc::already_exists:
      return 409;
    case Errc::too_large:
      return 413;
    case Errc::out_of_range:
      return 416;
    case Errc::exhausted:
      return 507;
    case Errc::unsupported:
    case Errc::timeout:
    case Errc::unreachable:
    case Errc::connection_lost:
      return 503;
    default:
      return 500;
  }
}

Headers json_headers() { return {{"Content-Type", "application/json"}}; }

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 7> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

void HttpApi::fail(Call& call, std::uint32_t status, std::string_view text) {
  (status < 500 ? refused_ : failed_).fetch_add(1, std::memory_order_relaxed);
  call.response.send(status, json_headers(), "{\"error\":" + json_quoted(text) + "}\n")
      .ignore();  // the client is gone: nobody to tell
}

void HttpApi::fail(Call& call, const Error& error) {
  fail(call, status_of(error.code), error.describe());
}

bool HttpApi::allowed(Call& call, Right right, const std::string& fid) {
  const auto& headers = call.request.headers();
  const std::string jwt =
      find_jwt(call.target, headers.get("authorization"), headers.get("cookie"));
  switch (access_.check(right, jwt, fid)) {
    case JwtVerdict::valid:
      return true;
    case JwtVerdict::missing:
      fail(call, 401, "a JWT is needed");
      return false;
    case JwtVerdict::expired:
      fail(call, 401, "the JWT has expired");
      return false;
    case JwtVerdict::wrong_fid:
      fail(call, 401, "the JWT is for another file id");
      return false;
    case JwtVerdict::invalid:
      break;
  }
  fail(call, 401, "the JWT is not valid");
  return false;
}

void HttpApi::handle(net::http::Request& request, net::http::Response& response) {
  Call call{request, response, {}};
  auto target = parse_target(request.target());
  if (!target.ok()) return fail(call, 400, "the request target is malformed");
  call.target = std::move(target).value();
  const std::string& path = call.target.path;
  if (path == "/status" && request.method() == "GET") return status(call);
  if (path == "/metrics" && request.method() == "GET") return metrics(call);
  if (path == "/healthz" && request.method() == "GET") {
    response.send(200, {{"Content-Type", "text/plain"}}, "ok\n").ignore();
    return;
  }
  if (path.starts_with("/admin/")) return admin(call);
  needle(call);
}

void HttpApi::needle(Call& call) {
  const auto named = needle_of_path(call.target.path);
  if (!named.ok()) return fail(call, 400, "the path is no file id, such as /3,01637037d6");
  const std::string& method = call.request.method();
  if (method == "GET" || method == "HEAD") {
    if (allowed(call, Right::read, named->fid)) get(call, *named);
  } else if (method == "POST" || method == "PUT") {
    if (allowed(call, Right::write, named->fid)) put(call, *named);
  } else if (method == "DELETE") {
    if (allowed(call, Right::write, named->fid)) remove(call, *named);
  } else {
    fail(call, 405, "the method is not allowed");
  }
}

void HttpApi::get(Call& call, const NamedNeedle& named) {
  const auto volume = store_.find(named.ref.volume);
  if (!volume.ok()) return fail(call, volume.error());
  const auto needle = (*volume)->find(named.ref.key);
  if (!needle.ok()) return fail(call, needle.error());
  Headers headers{{"Accept-Ranges", "bytes"}, {"ETag", '"' + hex8(needle->crc()) + '"'}};
  const std::string_view unless = call.request.headers().get("if-none-match");
  if (!unless.empty() && unless == headers.get("etag")) {
    call.response.send(304, std::move(headers), {}).ignore();
    return;
  }
  const auto meta = needle->meta();
  if (!meta.ok()) return fail(call, 500, "the needle is damaged");
  const bool has_mime = !meta->mime.empty() && is_plain_text(meta->mime);
  headers.add("Content-Type", has_mime ? meta->mime : "application/octet-stream");
  if (!meta->name.empty() && is_plain_text(meta->name))
    headers.add("Content-Disposition", "inline; filename=\"" + meta->name + '"');
  if ((needle->flags() & kFlagCompressed) != 0) headers.add("Content-Encoding", "gzip");
  const std::uint64_t size = needle->length().raw();
  const auto range = net::http::parse_range(call.request.headers().get("range"), size);
  if (!range.ok()) {
    refused_.fetch_add(1, std::memory_order_relaxed);
    call.response.send(416, {{"Content-Range", "bytes */" + std::to_string(size)}}, {}).ignore();
    return;
  }
  std::uint64_t from = 0;
  std::uint64_t length = size;
  if (*range) {
    from = (*range)->from;
    length = (*range)->length;
    headers.add("Content-Range", "bytes " + std::to_string(from) + "-" +
                                     std::to_string(from + length - 1) + "/" +
                                     std::to_string(size));
  }
  // A failure after the head was sent ends the connection: the client sees a short body.
  send_needle(call, *needle, from, length, *range ? 206 : 200, std::move(headers)).ignore();
}

Status HttpApi::send_needle(Call& call, const Needle& needle, std::uint64_t from,
                            std::uint64_t length, std::uint32_t status, Headers headers) {
  if (call.request.method() == "HEAD")
    return call.response.start(status, std::move(headers), length);
  const bool whole = length <= kWholeMax;
  // A longer one is read twice: no byte of a damaged needle leaves.
  Status right = whole ? Status() : needle.verify();
  auto buffer = buffers_->take(Length(whole ? length : kPieceBytes));
  if (!buffer.ok()) right = buffer.error();
  std::span<std::byte> piece;
  if (right.ok()) {
    piece = buffer->bytes();
    const auto read = needle.read(Offset(from), piece);
    if (!read.ok()) right = read.error();
  }
  if (!right.ok()) {
    fail(call, right.error().code == Errc::checksum ? 500 : status_of(right.error().code),
         right.error().describe());
    return right;
  }
  TRY(call.response.start(status, std::move(headers), length));
  TRY(call.response.write(piece));
  for (std::uint64_t at = piece.size(); at < length; at += piece.size()) {
    piece = buffer->bytes().first(std::min<std::uint64_t>(kPieceBytes, length - at));
    TRY(needle.read(Offset(from + at), piece));
    TRY(call.response.write(piece));
  }
  reads_.fetch_add(1, std::memory_order_relaxed);
  read_bytes_.fetch_add(length, std::memory_order_relaxed);
  return {};
}

namespace {

// The whole body into `into`; one byte more is too_large.
template <class Body>
Result<std::size_t> read_body(Body& body, std::span<std::byte> into) {
  std::size_t got = 0;
  for (;;) {
    std::array<std::byte, 1> more;
    const std::span<std::byte> room = got < into.size() ? into.subspan(got) : std::span(more);
    TRY_ASSIGN(const std::size_t count, body.read(room));
    if (count == 0) return got;
    if (got == into.size()) return Error::make(Errc::too_large, "body");
    got += count;
  }
}

}  // namespace

void HttpApi::put(Call& call, const NamedNeedle& named) {
  const auto& head = call.request.head();
  const std::uint64_t form = 64u << 10;  // what a form adds to its file
  const std::uint64_t limit = options_.needle_max.raw() + form;
  const std::uint64_t announced = head.content_length.value_or(head.chunked ? limit : 0);
  if (announced == 0) return fail(call, 400, "an empty needle cannot be stored");
  if (announced > limit) return fail(call, 413, "the needle is too large");
  // Before the body comes: a client that asked first need not send it.
  const Status room = writes_.check(named.ref, Length(head.content_length.value_or(1)));
  if (!room.ok() && room.error().code != Errc::exhausted && room.error().code != Errc::unsupported)
    return fail(call, room.error());
  auto buffer = buffers_->take(Length(announced));
  if (!buffer.ok()) return fail(call, buffer.error());
  const auto got = read_body(call.request.body(), buffer->bytes());
  if (!got.ok()) {
    call.response.close_after();
    return fail(call, got.code() == Errc::too_large ? 413 : 400, "the body did not come whole");
  }
  store_body(call, named, buffer->bytes().first(*got));
}

void HttpApi::store_body(Call& call, const NamedNeedle& named, std::span<const std::byte> body) {
  const Headers& headers = call.request.headers();
  NeedleMeta meta;
  const std::string_view type = headers.get("content-type");
  if (type.starts_with("multipart/form-data")) {
    const auto part =
        find_form_part({reinterpret_cast<const char*>(body.data()), body.size()}, type);
    if (!part.ok()) return fail(call, 400, "the form holds no file");
    body = body.subspan(part->from, part->length);
    meta.name = part->name;
    meta.mime = part->mime;
    if (part->compressed) meta.flags |= kFlagCompressed;
  } else {
    meta.mime = type == "application/octet-stream" ? "" : type;
    meta.name = call.query("name");
  }
  if (codec::equal_ignoring_case(headers.get("content-encoding"), "gzip"))
    meta.flags |= kFlagCompressed;
  if (call.query("cm") == "true") meta.flags |= kFlagManifest;
  if (meta.mime.size() > 255 || meta.name.size() > 255)
    return fail(call, 400, "name or type is longer than 255 bytes");
  if (body.empty()) return fail(call, 400, "an empty needle cannot be stored");
  if (body.size() > options_.needle_max.raw()) return fail(call, 413, "the needle is too large");
  std::optional<Crc32c> expected;
  if (const std::string* crc = headers.find("x-farlift-crc32c")) {
    const auto value = crc_of_hex(*crc);
    if (!value.ok()) return fail(call, 400, "X-Farlift-Crc32c is not 8 hex digits");
    expected = *value;
  }
  if (const std::string* md5 = headers.find("content-md5")) {
    const auto value = codec::base64_decode(*md5);
    const digest::Md5Digest seen = digest::md5(body);
    if (!value.ok() || !digest::equal(*value, seen))
      return fail(call, 400, "the body does not have this Content-MD5");
  }
  const WriteOutcome outcome =
      writes_.write(named.ref, meta, body, expected, call.query("type") != "replicate");
  if (outcome.state != UploadState::committed) {
    logf(LogLevel::warning, "needle %s not stored: %s", named.fid.c_str(),
         outcome.status.error().describe().c_str());
    return fail(call, outcome.status.error());
  }
  writes_done_.fetch_add(1, std::memory_order_relaxed);
  written_bytes_.fetch_add(body.size(), std::memory_order_relaxed);
  const std::string etag = hex8(outcome.crc);
  Headers answer = json_headers();
  answer.add("ETag", '"' + etag + '"');
  call.response
      .send(201, std::move(answer),
            "{\"name\":" + json_quoted(meta.name) + ",\"size\":" + std::to_string(body.size()) +
                ",\"eTag\":\"" + etag + "\",\"existed\":" + (outcome.was_there ? "true" : "false") +
                "}\n")
      .ignore();
}

void HttpApi::remove(Call& call, const NamedNeedle& named) {
  const auto removed = writes_.remove(named.ref, call.query("type") != "replicate");
  if (!removed.ok()) return fail(call, removed.error());
  deletions_.fetch_add(1, std::memory_order_relaxed);
  call.response.send(202, json_headers(), "{\"size\":" + std::to_string(removed->raw()) + "}\n")
      .ignore();
}

void HttpApi::admin(Call& call) {
  if (call.request.method() != "POST") return fail(call, 405, "the method is not allowed");
  const auto number = codec::parse_u32(call.query("volume"));
  if (!number.ok()) return fail(call, 400, "give the volume's number: ?volume=N");
  const VolumeId id(*number);
  if (call.target.path == "/admin/assign_volume") {
    // With a key, strangers do not make files either.
    if (!allowed(call, Right::write, std::to_string(id.raw()))) return;
    const auto volume = store_.assign(id);
    if (!volume.ok()) return fail(call, volume.error());
  } else if (call.target.path == "/admin/compact") {
    if (!allowed(call, Right::write, std::to_string(id.raw()))) return;
    const auto volume = store_.find(id);
    if (!volume.ok()) return fail(call, volume.error());
    const Status done = (*volume)->compact();
    if (!done.ok()) return fail(call, done.error());
  } else {
    return fail(call, 404, "there is no such call");
  }
  call.response.send(200, json_headers(), "{}\n").ignore();
}

void HttpApi::status(Call& call) {
  std::string text = "{\"version\":" + json_quoted(options_.version) + ",\"volumes\":[";
  bool any_writable = false;
  bool first = true;
  for (const auto& volume : store_.volumes()) {
    const VolumeStats s = volume->stats();
    any_writable = any_writable || s.writable;
    if (!std::exchange(first, false)) text += ',';
    text += "{\"id\":" + std::to_string(s.id.raw()) + ",\"size\":" + std::to_string(s.size.raw()) +
            ",\"needles\":" + std::to_string(s.needles) +
            ",\"deletions\":" + std::to_string(s.deletions) +
            ",\"garbage\":" + std::to_string(s.garbage.raw()) +
            ",\"revision\":" + std::to_string(s.revision) +
            ",\"damaged\":" + std::to_string(s.damaged) +
            ",\"writable\":" + (s.writable ? "true" : "false") + "}";
  }
  const auto space = store_.free_space();
  text += "],\"free_bytes\":" + std::to_string(space.ok() ? space->raw() : 0) +
          ",\"writable\":" + (any_writable ? "true" : "false") +
          ",\"broken\":" + std::to_string(store_.broken()) +
          ",\"needle_max\":" + std::to_string(options_.needle_max.raw()) +
          ",\"disk\":" + json_quoted(store_.disk().backend);
  if (options_.more_status) text += options_.more_status();
  call.response.send(200, json_headers(), text + "}\n").ignore();
}

void HttpApi::metrics(Call& call) {
  const Counters c = counters();
  std::string text;
  const auto line = [&text](std::string_view name, std::uint64_t value) {
    text += "farlift_volume_" + std::string(name) + ' ' + std::to_string(value) + '\n';
  };
  line("http_reads_total", c.reads);
  line("http_read_bytes_total", c.read_bytes);
  line("http_writes_total", c.writes);
  line("http_written_bytes_total", c.written_bytes);
  line("http_deletions_total", c.deletions);
  line("http_refused_total", c.refused);
  line("http_failed_total", c.failed);
  for (const auto& volume : store_.volumes()) {
    const VolumeStats s = volume->stats();
    const std::string label = "{volume=\"" + std::to_string(s.id.raw()) + "\"}";
    line("size_bytes" + label, s.size.raw());
    line("garbage_bytes" + label, s.garbage.raw());
    line("needles" + label, s.needles);
    line("syncs_total" + label, s.syncs);
    line("damaged_total" + label, s.damaged);
  }
  if (options_.more_metrics) text += options_.more_metrics();
  call.response.send(200, {{"Content-Type", "text/plain; version=0.0.4"}}, text).ignore();
}

HttpApi::Counters HttpApi::counters() const noexcept {
  Counters c;
  c.reads = reads_.load(std::memory_order_relaxed);
  c.read_bytes = read_bytes_.load(std::memory_order_relaxed);
  c.writes = writes_done_.load(std::memory_order_relaxed);
  c.written_bytes = written_bytes_.load(std::memory_order_relaxed);
  c.deletions = deletions_.load(std::memory_order_relaxed);
  c.refused = refused_.load(std::memory_order_relaxed);
  c.failed = failed_.load(std::memory_order_relaxed);
  return c;
}

}  // namespace farlift::s3::volume
