// Error: what went wrong, in a form that is cheap to make and copy and says what the caller can do
// about it.
//
// Invariants: trivially copyable; made without allocation; `where` points to a string literal
//             (static storage).
// Threads:    immutable value; copy freely.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace farlift {

// Stable numbers, grouped by what the caller can do.
enum class Errc : std::uint16_t {
  // absent: there is nothing there
  not_found = 100,
  // refused: the request is wrong or not allowed; repeating it unchanged will fail again
  invalid_argument = 200,
  out_of_range = 201,
  access = 202,  // the target refused: key, range or right
  unsupported = 203,
  already_exists = 204,
  busy = 205,
  too_large = 206,
  protocol = 207,  // the peer broke the protocol
  closed = 208,
  permission = 209,
  wrong_type = 210,
  // retry: may succeed later
  again = 300,  // would block: the queue is full or a connection is not up yet
  no_memory = 301,
  exhausted = 302,  // a named limit was reached
  timeout = 303,
  unreachable = 304,
  connection_lost = 305,
  flushed = 306,  // a neighbour's fault ended this operation; may be retried once
  aborted = 307,
  // corrupt: bytes are not what they should be
  checksum = 400,
  corrupt = 401,
  // bug: ours, or a library's
  io = 500,  // an operating system call failed, see `os`
  internal = 501,
};

std::string_view errc_name(Errc code) noexcept;

struct [[nodiscard]] Error {
  Errc code = Errc::internal;
  // False means: a NIC (or a software provider) may still touch the buffers of the failed
  // operation; the holder must run the fence of that operation before it reuses them.
  bool quiet = true;
  std::int32_t os = 0;     // errno or a fabric code, 0 when there is none
  const char* where = "";  // what was being done, a literal

  // "<where>: <code name> (<strerror>)".
  std::string describe() const;

  static constexpr Error make(Errc code, const char* where, std::int32_t os = 0) noexcept {
    return Error{code, true, os, where};
  }
  static constexpr Error not_quiet(Errc code, const char* where, std::int32_t os = 0) noexcept {
    return Error{code, false, os, where};
  }
  static Error from_errno(
      const char* where) noexcept;  // Errc::io (or a closer code) with the current errno
  static Error from_errno(const char* where, int saved_errno) noexcept;

  friend constexpr bool operator==(const Error& a, const Error& b) noexcept {
    return a.code == b.code && a.quiet == b.quiet && a.os == b.os;
  }
};
static_assert(std::is_trivially_copyable_v<Error>);

}  // namespace farlift
