#include "core/codec/json.h"
#include "core/codec/text.h"
#include "s3/wire/object_line.h"

#include <algorithm>

namespace farlift::s3 {
namespace {

using codec::Json;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && codec::hex_decode(text).ok();
}

// Bytes of an algorithm's value, in base64.
std::size_t checksum_bytes(std::string_view algorithm) noexcept {
  if (algorithm == "crc64nvme") return 8;
  return algorithm == "sha1" ? 20 : 4;
}

// An optional string member; false when it is there and no string.
bool take_text(const Json& json, std::string_view name, std::string& out) {
  const Json* member = json.find(name);
  if (member == nullptr || member->is_null()) return true;
  if (member->text() == nullptr) return false;
  out = *member->text();
  return true;
}

std::optional<ChunkState> state_of(const std::string* text) {
  if (text == nullptr) return std::nullopt;
  if (*text == "committed") return ChunkState::committed;
  if (*text == "not_committed") return ChunkState::not_committed;
  if (*text == "unknown") return ChunkState::unknown;
  return std::nullopt;
}

// Fills what is said for certain; false unless each chunk is listed exactly once, in form.
bool read_chunks(const Json& json, std::size_t wanted, std::vector<ChunkResult>& out) {
  const Json* chunks = json.find("chunks");
  if (chunks == nullptr || chunks->array() == nullptr) return false;
  std::vector<bool> seen(wanted, false);
  bool whole = chunks->array()->size() == wanted;
  for (const Json& item : *chunks->array()) {
    const Json* i = item.find("i");
    const Json* state = item.find("state");
    const Json* size = item.find("size");
    const auto known = state_of(state == nullptr ? nullptr : state->text());
    ChunkResult chunk;
    if (i == nullptr || !i->u64() || *i->u64() >= wanted || !known || size == nullptr ||
        !size->u64() || !take_text(item, "etag", chunk.etag)) {
      whole = false;
      continue;
    }
    const auto index = static_cast<std::size_t>(*i->u64());
    chunk.state = *known;
    chunk.size = *size->u64();
    if (seen[index]) {  // two answers for one chunk are none
      whole = false;
      chunk.state = ChunkState::unknown;
    }
    seen[index] = true;
    out[index] = std::move(chunk);
  }
  return whole;
}

bool read_checksums(const Json& json, std::map<std::string, std::string>& out) {
  const Json* checksums = json.find("checksums");
  if (checksums == nullptr || checksums->is_null()) return true;
  if (checksums->object() == nullptr) return false;
  for (const auto& [name, value] : *checksums->object()) {
    if (value.text() == nullptr) return false;
    out[name] = *value.text();
  }
  return true;
}

// Why an `ok` may not be believed, or nullptr (spec s3 4.4).
const char* doubt(const ObjectRequest& request, const ObjectResult& result, bool chunks_whole) {
  if (result.bytes != request.size) return "status ok with another number of bytes";
  if (result.chunks_fail != 0) return "status ok with failed chunks";
  if (request.op != ObjectOp::put) return nullptr;
  if (!is_hex(result.md5, 32)) return "status ok without a valid md5";
  if (request.want_sha256 ? !is_hex(result.sha256, 64) : !result.sha256.empty())
    return "status ok, and sha256 is not as it was asked for";
  for (const std::string& algorithm : request.want_checksums) {
    const auto at = result.checksums.find(algorithm);
    if (at == result.checksums.end()) return "status ok without a checksum that was asked for";
    const auto value = codec::base64_decode(at->second);
    if (!value.ok() || value->size() != checksum_bytes(algorithm))
      return "status ok with a malformed checksum";
  }
  if (!chunks_whole) return "status ok, and not each chunk is listed once";
  for (std::size_t i = 0; i < request.chunks.size(); ++i) {
    if (result.chunks[i].state != ChunkState::committed) return "status ok with a lost chunk";
    if (result.chunks[i].size != request.chunks[i].size)
      return "status ok with a chunk of another size";
  }
  return nullptr;
}

void all_unknown(const ObjectRequest& request, ObjectResult& result) {
  result.chunks.clear();
  if (request.op != ObjectOp::put) return;
  for (const ObjectChunk& chunk : request.chunks)
    result.chunks.push_back(ChunkResult{ChunkState::unknown, chunk.size, {}});
}

bool read_status(const Json& json, ObjectStatus& status) {
  const Json* member = json.find("status");
  const std::string* text = member == nullptr ? nullptr : member->text();
  if (text == nullptr) return false;
  for (const ObjectStatus one : {ObjectStatus::ok, ObjectStatus::refused, ObjectStatus::error}) {
    if (*text != to_string(one)) continue;
    status = one;
    return true;
  }
  return false;
}

// The members that each result has; null is as bad as absent (spec s3 4.4, [R]).
const char* read_required(const Json& json, ObjectResult& result) {
  if (!read_status(json, result.status)) return "the result's status is missing or unknown";
  const Json* bytes = json.find("bytes");
  if (bytes == nullptr || !bytes->u64()) return "the result has no bytes";
  const Json* fail = json.find("chunks_fail");
  if (fail == nullptr || !fail->u64()) return "the result has no chunks_fail";
  result.bytes = *bytes->u64();
  result.chunks_fail = *fail->u64();
  std::string id;
  const Json* named = json.find("id");
  if (named != nullptr && named->text() != nullptr) result.id = *named->text();
  if (!take_text(json, "transfer_path", result.transfer_path) ||
      !take_text(json, "md5", result.md5) || !take_text(json, "sha256", result.sha256) ||
      !take_text(json, "code", result.code) || !take_text(json, "message", result.message) ||
      !read_checksums(json, result.checksums)) {
    return "a member of the result has a wrong type";
  }
  return nullptr;
}

}  // namespace

std::string_view to_string(ObjectStatus status) noexcept {
  switch (status) {
    case ObjectStatus::ok:
      return "ok";
    case ObjectStatus::refused:
      return "refused";
    case ObjectStatus::error:
      return "error";
  }
  return "error";
}

std::string_view to_string(ChunkState state) noexcept {
  switch (state) {
    case ChunkState::committed:
      return "committed";
    case ChunkState::not_committed:
      return "not_committed";
    case ChunkState::unknown:
      return "unknown";
  }
  return "unknown";
}

std::string encode(const ObjectResult& result) {
  codec::JsonWriter out;
  out.begin_object().key("id");
  if (result.id) {
    out.text(*result.id);
  } else {
    out.null();
  }
  out.key("status").text(to_string(result.status)).key("bytes").number(result.bytes);
  out.key("chunks_fail").number(result.chunks_fail);
  const auto optional = [&](std::string_view name, const std::string& value) {
    if (!value.empty()) out.key(name).text(value);
  };
  optional("transfer_path", result.transfer_path);
  optional("md5", result.md5);
  optional("sha256", result.sha256);
  if (!result.checksums.empty()) {
    out.key("checksums").begin_object();
    for (const auto& [algorithm, value] : result.checksums) out.key(algorithm).text(value);
    out.end_object();
  }
  if (!result.chunks.empty()) {
    out.key("chunks").begin_array();
    for (std::size_t i = 0; i < result.chunks.size(); ++i) {
      const ChunkResult& chunk = result.chunks[i];
      out.begin_object().key("i").number(i).key("state").text(to_string(chunk.state));
      out.key("size").number(chunk.size);
      optional("etag", chunk.etag);
      out.end_object();
    }
    out.end_array();
  }
  optional("code", result.code);
  optional("message", result.message);
  return out.end_object().line();
}

ResultVerdict judge_result(const ObjectRequest& request, std::string_view line) {
  ResultVerdict verdict;
  all_unknown(request, verdict.result);
  const auto malformed = [&](const char* why) {
    all_unknown(request, verdict.result);  // spec s3 4.4, last sentence
    verdict.outcome = Outcome::failed;
    verdict.reason = why;
    return verdict;
  };
  const auto json = Json::parse(line);
  if (!json.ok() || json->object() == nullptr) return malformed("the result is no JSON object");
  ObjectResult& result = verdict.result;
  if (const char* fault = read_required(*json, result)) {
    result = ObjectResult();
    return malformed(fault);
  }
  // An answer to another request says nothing about this one.
  if (result.id != request.id) {
    result = ObjectResult();
    return malformed("the result is for another request");
  }
  verdict.valid = true;
  bool whole = true;
  if (request.op == ObjectOp::put) {
    whole = read_chunks(*json, request.chunks.size(), result.chunks);
  }
  if (result.status == ObjectStatus::ok) {
    if (const char* why = doubt(request, result, whole)) return malformed(why);
    verdict.outcome = Outcome::success;
    return verdict;
  }
  if (result.status == ObjectStatus::refused) {
    if (result.bytes != 0) return malformed("status refused with bytes moved");
    verdict.outcome = Outcome::refused;
  }
  verdict.reason = result.code + (result.message.empty() ? "" : ": " + result.message);
  return verdict;
}

}  // namespace farlift::s3
