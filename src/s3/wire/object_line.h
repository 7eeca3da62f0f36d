// The lines between gateway and object service (spec s3 4): one request, one result.
//
//   stream.write_all(as_bytes(encode(request)), deadline);
//   const ResultVerdict verdict = judge_result(request, line);     // in the gateway
//
//   const ParsedRequest parsed = parse_object_request(line);       // in the service
//
// Invariants: a request that parses has its chunks in window order without gap or overlap, their
//             sizes sum up to `size`, and `size` is within the token. A result is `success` only if
//             every rule of spec s3 4.4 holds; what is not certain is a failure.
// Threads:    plain values. Errors: in words, inside what is returned.
#pragma once

#include "s3/wire/token.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::s3 {

inline constexpr std::size_t kObjectLineMax = std::size_t{8} << 20;
inline constexpr std::uint32_t kObjectDeadlineMaxMs = 30'000;
// The service starts no operation when less than this is left.
inline constexpr std::uint32_t kObjectLastStartMs = 500;
inline constexpr std::uint64_t kChunkSize = std::uint64_t{4} << 20;
inline constexpr std::size_t kInFlightMax = 8;

enum class ObjectOp : std::uint8_t { get, put, ping };
std::string_view to_string(ObjectOp op) noexcept;

struct ObjectChunk {
  std::string fid;
  std::string host;                   // as assign or the catalog reported it
  std::vector<std::string> replicas;  // get only
  std::uint64_t chunk_offset = 0;     // get only
  std::uint64_t size = 0;
  std::uint64_t window_offset = 0;
  std::string jwt;  // empty: none
};

struct ObjectRequest {
  std::string id;
  ObjectOp op = ObjectOp::ping;
  std::string bucket;  // for logs only
  std::string key;
  Token token;  // not of a ping
  std::uint64_t size = 0;
  std::uint32_t deadline_ms = kObjectDeadlineMaxMs;
  bool want_sha256 = false;
  std::vector<std::string> want_checksums;  // crc64nvme crc32c crc32 sha1
  std::vector<ObjectChunk> chunks;          // element i is chunk i
};

// A line with its LF.
std::string encode(const ObjectRequest& request);

struct ParsedRequest {
  std::optional<ObjectRequest> request;
  // When there is none: a line that is no JSON object ends the connection after its result.
  bool unreadable = false;
  std::optional<std::string> id;
  std::string message;
};

// The line without its LF (a CR before it is tolerated).
ParsedRequest parse_object_request(std::string_view line);

// True for the algorithms that want_checksums may name.
bool known_checksum(std::string_view algorithm) noexcept;

enum class ObjectStatus : std::uint8_t { ok, refused, error };
enum class ChunkState : std::uint8_t { committed, not_committed, unknown };
std::string_view to_string(ObjectStatus status) noexcept;
std::string_view to_string(ChunkState state) noexcept;

struct ChunkResult {
  ChunkState state = ChunkState::not_committed;
  std::uint64_t size = 0;
  std::string etag;  // CRC-32C as 8 hex digits; empty when not committed
};

struct ObjectResult {
  ObjectStatus status = ObjectStatus::error;
  std::uint64_t bytes = 0;
  std::uint64_t chunks_fail = 0;
  std::optional<std::string> id;
  std::string transfer_path;                     // empty: not said
  std::string md5;                               // 32 hex digits, put
  std::string sha256;                            // 64 hex digits, put
  std::map<std::string, std::string> checksums;  // algorithm → base64 of the big-endian value
  std::vector<ChunkResult> chunks;               // put: element i is chunk i
  std::string code;
  std::string message;
};

std::string encode(const ObjectResult& result);

enum class Outcome : std::uint8_t {
  success,
  refused,  // nothing moved, nothing stored: 501
  failed,   // 500
};

struct ResultVerdict {
  Outcome outcome = Outcome::failed;
  bool valid = false;  // the line was a result in form; then `result` may be logged
  // Of a put every chunk is listed, as unknown where the line did not say for certain.
  ObjectResult result;
  std::string reason;  // in words, for the log, unless success
};

ResultVerdict judge_result(const ObjectRequest& request, std::string_view line);

}  // namespace farlift::s3
