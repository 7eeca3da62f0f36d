#include "core/codec/json.h"
#include "s3/wire/fid.h"
#include "s3/wire/object_line.h"
#include "s3/wire/push_map.h"

#include <algorithm>
#include <array>

namespace farlift::s3 {
namespace {

using codec::Json;

constexpr std::array<std::string_view, 4> kChecksums = {"crc64nvme", "crc32c", "crc32", "sha1"};

// Reads members of one object; the first fault is kept, in words.
class Members {
 public:
  Members(const Json& object, std::string& fault) : object_(object), fault_(fault) {}

  bool text(std::string_view name, std::string& out, bool needed) {
    const Json* member = present(name, needed);
    if (member == nullptr) return !needed;
    if (member->text() == nullptr) return complain(name, "is no string");
    out = *member->text();
    return true;
  }

  bool number(std::string_view name, std::uint64_t& out, bool needed) {
    const Json* member = present(name, needed);
    if (member == nullptr) return !needed;
    if (!member->u64()) return complain(name, "is no whole number");
    out = *member->u64();
    return true;
  }

  bool boolean(std::string_view name, bool& out) {
    const Json* member = present(name, false);
    if (member == nullptr) return true;
    if (!member->boolean()) return complain(name, "is neither true nor false");
    out = *member->boolean();
    return true;
  }

  bool texts(std::string_view name, std::vector<std::string>& out) {
    const Json* member = present(name, false);
    if (member == nullptr) return true;
    if (member->array() == nullptr) return complain(name, "is no array");
    for (const Json& item : *member->array()) {
      if (item.text() == nullptr) return complain(name, "has an element that is no string");
      out.push_back(*item.text());
    }
    return true;
  }

  bool complain(std::string_view name, std::string_view what) {
    fault_ = std::string(name) + " " + std::string(what);
    return false;
  }

 private:
  const Json* present(std::string_view name, bool needed) {
    const Json* member = object_.find(name);
    if (member == nullptr && needed) complain(name, "is missing");
    return member;
  }

  const Json& object_;
  std::string& fault_;
};

bool read_chunk(const Json& json, std::size_t index, ObjectOp op, ObjectChunk& chunk,
                std::string& fault) {
  Members members(json, fault);
  std::uint64_t i = 0;
  if (!members.number("i", i, true) || !members.text("fid", chunk.fid, true) ||
      !members.text("host", chunk.host, true) || !members.texts("replicas", chunk.replicas) ||
      !members.number("chunk_offset", chunk.chunk_offset, op == ObjectOp::get) ||
      !members.number("size", chunk.size, true) ||
      !members.number("window_offset", chunk.window_offset, true) ||
      !members.text("jwt", chunk.jwt, false)) {
    return false;
  }
  if (i != index) return members.complain("i", "is not the chunk's index");
  if (!Fid::parse(chunk.fid).ok()) return members.complain("fid", "is malformed");
  if (chunk.size == 0) return members.complain("size", "is zero");
  if (op == ObjectOp::put && chunk.chunk_offset != 0)
    return members.complain("chunk_offset", "of a put is not 0");
  return true;
}

bool read_chunks(const Json& line, ObjectRequest& request, std::string& fault) {
  Members members(line, fault);
  const Json* chunks = line.find("chunks");
  if (chunks == nullptr || chunks->array() == nullptr || chunks->array()->empty())
    return members.complain("chunks", "is missing or empty");
  std::uint64_t sum = 0;
  for (const Json& json : *chunks->array()) {
    ObjectChunk chunk;
    const std::size_t index = request.chunks.size();
    if (!read_chunk(json, index, request.op, chunk, fault)) {
      fault = "chunk " + std::to_string(index) + ": " + fault;
      return false;
    }
    // spec s3 4.3: no gaps, no overlap, and nothing past `size`.
    if (chunk.window_offset != sum) {
      fault = "chunk " + std::to_string(index) + ": window_offset leaves a gap or overlaps";
      return false;
    }
    if (chunk.size > request.size - sum)
      return members.complain("size", "is less than the sum of its chunks");
    sum += chunk.size;
    request.chunks.push_back(std::move(chunk));
  }
  if (sum != request.size) return members.complain("size", "is more than the sum of its chunks");
  return true;
}

bool read_transfer(const Json& line, ObjectRequest& request, std::string& fault) {
  Members members(line, fault);
  std::string token;
  if (!members.text("bucket", request.bucket, false) || !members.text("key", request.key, false) ||
      !members.text("token", token, true) || !members.number("size", request.size, true) ||
      !members.boolean("want_sha256", request.want_sha256) ||
      !members.texts("want_checksums", request.want_checksums)) {
    return false;
  }
  const TokenParse parse = parse_token(token);
  if (parse.verdict != TokenVerdict::accepted || token.size() != kTokenLength)
    return members.complain("token", "is malformed");
  request.token = parse.token;
  if (request.size == 0) return members.complain("size", "is zero");
  if (request.size > request.token.size.raw())
    return members.complain("size", "is more than the token covers");
  return read_chunks(line, request, fault);
}

bool read_request(const Json& line, ObjectRequest& request, std::string& fault) {
  Members members(line, fault);
  std::uint64_t version = 0;
  std::uint64_t deadline = 0;
  std::string op;
  if (!members.number("v", version, true) || !members.text("id", request.id, true) ||
      !members.text("op", op, true) || !members.number("deadline_ms", deadline, true)) {
    return false;
  }
  if (version != 1) return members.complain("v", "is not 1");
  if (deadline > kObjectDeadlineMaxMs) return members.complain("deadline_ms", "is over 30000");
  request.deadline_ms = static_cast<std::uint32_t>(deadline);
  if (op == "ping") {
    request.op = ObjectOp::ping;
    return true;
  }
  if (op != "get" && op != "put") return members.complain("op", "is not known");
  request.op = op == "get" ? ObjectOp::get : ObjectOp::put;
  return read_transfer(line, request, fault);
}

}  // namespace

bool known_checksum(std::string_view algorithm) noexcept {
  return std::find(kChecksums.begin(), kChecksums.end(), algorithm) != kChecksums.end();
}

std::string_view to_string(ObjectOp op) noexcept {
  switch (op) {
    case ObjectOp::get:
      return "get";
    case ObjectOp::put:
      return "put";
    case ObjectOp::ping:
      return "ping";
  }
  return "ping";
}

ParsedRequest parse_object_request(std::string_view line) {
  ParsedRequest parsed;
  const auto json = Json::parse(line);
  if (!json.ok() || json->object() == nullptr) {
    parsed.unreadable = true;
    parsed.message = "the line is no JSON object";
    return parsed;
  }
  ObjectRequest request;
  if (!read_request(*json, request, parsed.message)) {
    const Json* id = json->find("id");
    if (id != nullptr && id->text() != nullptr) parsed.id = *id->text();
    return parsed;
  }
  parsed.id = request.id;
  parsed.request = std::move(request);
  return parsed;
}

std::string encode(const ObjectRequest& request) {
  codec::JsonWriter out;
  out.begin_object().key("v").number(1).key("id").text(request.id);
  out.key("op").text(to_string(request.op)).key("deadline_ms").number(request.deadline_ms);
  if (request.op == ObjectOp::ping) return out.end_object().line();
  const bool put = request.op == ObjectOp::put;
  out.key("bucket").text(request.bucket).key("key").text(request.key);
  out.key("token").text(request.token.encode()).key("size").number(request.size);
  if (put) {
    out.key("want_sha256").boolean(request.want_sha256).key("want_checksums").begin_array();
    for (const std::string& algorithm : request.want_checksums) out.text(algorithm);
    out.end_array();
  }
  out.key("chunks").begin_array();
  for (std::size_t i = 0; i < request.chunks.size(); ++i) {
    const ObjectChunk& chunk = request.chunks[i];
    out.begin_object().key("i").number(i).key("fid").text(chunk.fid).key("host").text(chunk.host);
    if (!put && !chunk.replicas.empty()) {
      out.key("replicas").begin_array();
      for (const std::string& replica : chunk.replicas) out.text(replica);
      out.end_array();
    }
    out.key("chunk_offset").number(put ? 0 : chunk.chunk_offset).key("size").number(chunk.size);
    out.key("window_offset").number(chunk.window_offset);
    if (!chunk.jwt.empty()) out.key("jwt").text(chunk.jwt);
    out.end_object();
  }
  return out.end_array().end_object().line();
}

}  // namespace farlift::s3
