// The lines between object service and volume (spec s3 6): hello, request, reply.
//
// Invariants: a parsed request has every member its op needs, within its bounds; a CRC-32C is
//             written as 8 lower-case hex digits. Unknown members are ignored, so that either side
//             may be newer.
// Threads:    plain values. Errors: in words, inside what is returned.
#pragma once

#include "core/base/types.h"
#include "s3/wire/object_line.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace farlift::s3 {

inline constexpr std::size_t kControlLineMax = std::size_t{64} << 10;
inline constexpr std::uint32_t kControlOutstandingMax = 64;
inline constexpr std::uint32_t kHelloDeadlineMs = 2'000;
inline constexpr std::uint32_t kPreparedLifeMs = 35'000;
inline constexpr std::uint32_t kPreparedOrphanMs = 5'000;  // after its connection was lost
inline constexpr std::uint32_t kHandleMemoryMs = 120'000;  // after its end
inline constexpr std::size_t kHandleDigits = 32;
inline constexpr std::string_view kTransportDc = "mlx5-dc";
inline constexpr std::string_view kTransportSoft = "soft";

struct ControlHello {
  bool read_auth = false;  // features
  bool write_auth = false;
  bool commit_query = false;
  std::string transport;
  bool read_auth_required = false;
  bool write_auth_required = false;
  std::uint64_t max_transfer = 0;

  std::string encode() const;  // with LF
  // invalid_argument: no JSON, another protocol or version.
  static Result<ControlHello> parse(std::string_view line);
};

enum class ControlOp : std::uint8_t { push, prepare, commit, abort, query, ping };
std::string_view to_string(ControlOp op) noexcept;

struct ControlRequest {
  std::uint32_t seq = 0;
  ControlOp op = ControlOp::ping;
  std::string fid;                  // push, prepare, commit
  std::uint64_t offset = 0;         // push
  std::uint64_t size = 0;           // push, prepare, commit
  Token token;                      // push
  std::uint64_t window_offset = 0;  // push
  std::string jwt;                  // push, prepare; empty: none
  std::uint32_t deadline_ms = 0;    // push, prepare
  std::string handle;               // commit, abort, query
  Crc32c crc32c;                    // commit

  std::string encode() const;
};

enum class ControlCode : std::uint8_t {
  none,
  auth_missing,
  auth_invalid,
  auth_expired,
  auth_fid,
  bad_request,
  not_found,
  cookie,
  unsupported,
  range,
  budget,
  read_only,
  crc,
  rdma,
  expired,
  unknown_handle,
  deadline,
  internal,
};
std::string_view to_string(ControlCode code) noexcept;
std::optional<ControlCode> control_code(std::string_view text) noexcept;

struct ParsedControlRequest {
  std::optional<ControlRequest> request;
  // Known when the line was JSON with a seq; then answer `code` under it. Otherwise close.
  std::optional<std::uint32_t> seq;
  ControlCode code = ControlCode::bad_request;
  std::string message;
};
// A malformed fid is not looked at here: the JWT comes first (spec s3 6).
ParsedControlRequest parse_control_request(std::string_view line);

enum class HandleState : std::uint8_t { prepared, committed, not_committed, unknown };
std::string_view to_string(HandleState state) noexcept;

struct ControlReply {
  std::uint32_t seq = 0;
  bool ok = false;
  ControlCode code = ControlCode::none;  // when not ok
  std::string message;
  bool nothing_written = false;             // "written":0
  std::optional<std::uint64_t> bytes;       // push
  std::optional<Crc32c> crc32c;             // push
  std::string handle;                       // prepare
  std::optional<Token> token;               // prepare
  std::optional<std::uint32_t> expires_ms;  // prepare
  std::optional<HandleState> state;         // commit, abort, query
  std::optional<std::uint64_t> size;        // commit
  std::string etag;                         // commit

  std::string encode() const;
  // invalid_argument when it is no reply in form. An unknown code is read as `internal`.
  static Result<ControlReply> parse(std::string_view line);
};

// 8 hex digits, either case in, lower case out.
std::string crc_text(Crc32c crc);
std::optional<Crc32c> parse_crc(std::string_view text) noexcept;
bool is_handle(std::string_view text) noexcept;  // 32 lower-case hex digits

}  // namespace farlift::s3
