// The bytes of a soft link (docs/formats/soft.md): hello, request and reply headers, all of fixed
// size and little-endian.
//
// Invariants: encode() of a decoded header gives the same bytes back; decode() accepts nothing
//             else. Lengths are bounded here, so no caller ever sees a larger one; ranges are
//             checked against registrations elsewhere.
// Threads:    pure functions. Errors: unsupported: not a hello of this protocol and version;
//             protocol: a header that no conforming peer sends.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace farlift::fabric::soft {

inline constexpr std::size_t kMagicBytes = 8;
inline constexpr std::size_t kHelloBytes = 96;
inline constexpr std::size_t kRequestBytes = 48;
inline constexpr std::size_t kReplyBytes = 24;
inline constexpr std::uint16_t kVersion = 1;
inline constexpr std::uint64_t kOperationBytesMax = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kReadFrameBytesMax = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kSourceBytesMax = std::uint64_t{1} << 46;
// What an initiator puts where a target has the slots of its table. Older targets do not look.
inline constexpr std::uint32_t kAnnouncesSources = 1;

using Token16 = std::array<std::byte, 16>;  // a boot id, or a challenge

enum class HelloStatus : std::uint8_t { ok = 0, full = 1 };  // full: connections_max, try later

// First thing on a link, in both directions; the initiator speaks first.
struct Hello {
  HelloStatus status = HelloStatus::ok;
  bool host_lane = false;      // offered; the fields below up to socket_fd are meaningful
  bool takes_sources = false;  // target only: kinds 5 and 6 are welcome
  std::uint32_t pid = 0;
  Token16 boot_id{};
  Token16 challenge{};               // the receiver is to place it in its own proof cell
  std::uint64_t cell_addr = 0;       // where the sender's proof cell is
  std::uint64_t registry_addr = 0;   // target only
  std::uint32_t registry_slots = 0;  // of an initiator: kAnnouncesSources or 0
  std::uint32_t socket_fd = 0;       // the sender's descriptor of this very link
  friend bool operator==(const Hello&, const Hello&) = default;
};

enum class RequestKind : std::uint8_t {
  write = 1,  // `length` payload bytes follow
  read = 2,
  pull = 3,         // host lane: fetch `length` bytes at `source` of the initiator's process
  host_ready = 4,   // the initiator's cell holds the target's challenge; only `length` is set: 1
                    // when it could read ours
  source = 5,       // host lane: `length` bytes at `source` of the initiator's process are its
                    // descriptor `key`, file number `id`, from `addr` on; length 0: no longer
  pull_source = 6,  // a pull from memory that was announced: may be copied from the file
};

struct Request {
  RequestKind kind = RequestKind::write;
  std::uint64_t id = 0;
  RKey key;
  RemoteAddr addr;
  Length length;
  std::uint64_t source = 0;
  friend bool operator==(const Request&, const Request&) = default;
};

enum class ReplyKind : std::uint8_t {
  done = 1,        // the operation is over
  data = 2,        // `length` bytes of a read follow; the next frame of the same read follows on
  host_proof = 3,  // answers host_ready: ok when the target could read the initiator's cell
};
enum class ReplyStatus : std::uint8_t { ok = 0, access = 1, io = 2 };

struct Reply {
  ReplyKind kind = ReplyKind::done;
  ReplyStatus status = ReplyStatus::ok;
  std::uint64_t id = 0;
  Length length;  // data only
  friend bool operator==(const Reply&, const Reply&) = default;
};

// True when `bytes` (any length) can still become a hello: compares what there is of the magic.
bool magic_matches(std::span<const std::byte> bytes) noexcept;

void encode(const Hello& hello, std::span<std::byte, kHelloBytes> out) noexcept;
void encode(const Request& request, std::span<std::byte, kRequestBytes> out) noexcept;
void encode(const Reply& reply, std::span<std::byte, kReplyBytes> out) noexcept;
Result<Hello> decode_hello(std::span<const std::byte> bytes) noexcept;
Result<Request> decode_request(std::span<const std::byte> bytes) noexcept;
Result<Reply> decode_reply(std::span<const std::byte> bytes) noexcept;

}  // namespace farlift::fabric::soft
