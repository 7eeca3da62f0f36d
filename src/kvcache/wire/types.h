// The numbers, limits and outcomes of the one-sided protocol (spec kv 2, 9).
//
// Threads: plain values.
#pragma once

#include "core/base/types.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace farlift::kv {

using Bytes = std::vector<std::byte>;
using ByteView = std::span<const std::byte>;

using NodeId = StrongInt<struct NodeIdTag, std::uint64_t>;            // configured, stable
using Incarnation = StrongInt<struct IncarnationTag, std::uint64_t>;  // random at start, not 0
using ArenaId = StrongInt<struct ArenaIdTag, std::uint32_t>;
using ArenaGen = StrongInt<struct ArenaGenTag, std::uint32_t>;  // +1 at every rotation
using KeyId = StrongInt<struct KeyIdTag, std::uint32_t>;        // 0: development mode, no key ring
using KeyHash = StrongInt<struct KeyHashTag, std::uint64_t>;

// rev(u32) << 32 | uid(u32). Equality is over the whole; order is by rev, and only within one
// undeleted history of the key (spec kv 2).
class Version {
 public:
  constexpr Version() noexcept = default;
  explicit constexpr Version(std::uint64_t raw) noexcept : raw_(raw) {}
  constexpr Version(std::uint32_t rev, std::uint32_t uid) noexcept
      : raw_(std::uint64_t{rev} << 32 | uid) {}
  constexpr std::uint64_t raw() const noexcept { return raw_; }
  constexpr std::uint32_t rev() const noexcept { return static_cast<std::uint32_t>(raw_ >> 32); }
  constexpr std::uint32_t uid() const noexcept { return static_cast<std::uint32_t>(raw_); }
  constexpr bool none() const noexcept { return raw_ == 0; }
  friend constexpr bool operator==(Version, Version) noexcept = default;

 private:
  std::uint64_t raw_ = 0;
};

using Nonce = std::array<std::byte, 16>;
using ClientId = std::array<std::byte, 16>;
using PutId = std::array<std::byte, 16>;
using Tag = std::array<std::byte, 32>;

inline constexpr std::size_t kKeyBytesMax = 1024;  // of a key; at least 1
inline constexpr std::size_t kTenantBytesMax = 64;
inline constexpr std::size_t kSecretBytes = 32;
inline constexpr std::size_t kRailsMax = 16;
inline constexpr std::size_t kHeaderBytes = 32;
inline constexpr std::size_t kFrameBodyBytesMax = std::size_t{1} << 20;
inline constexpr std::uint64_t kArenaAlign = 4096;
inline constexpr std::uint64_t kPayloadAlignSmall = 64;
inline constexpr std::uint64_t kPayloadAlignLarge = 4096;  // from kLargePayload on
inline constexpr std::uint64_t kLargePayload = 64 << 10;

// Durations of the protocol; options may change them.
inline constexpr std::chrono::milliseconds kCacheLease{10'000};     // L
inline constexpr std::chrono::milliseconds kOperationLimit{5'000};  // T_op
inline constexpr std::chrono::milliseconds kGrace{20'000};          // G
inline constexpr std::chrono::milliseconds kPostponeMax{60'000};    // reader leases
inline constexpr std::chrono::milliseconds kNodeLease{5'000};       // PX of the node record
inline constexpr std::chrono::milliseconds kNodeRenew{1'000};
inline constexpr std::chrono::milliseconds kControlTimeout{1'000};
inline constexpr std::chrono::milliseconds kReconcileEvery{30'000};
inline constexpr std::chrono::milliseconds kOutcomeKept{60'000};  // put_id idempotence
inline constexpr std::chrono::hours kDescriptorTtl{24};
inline constexpr std::uint32_t kGrantsMax = 4096;  // open grants of a node

// How an operation ended (spec kv 9). The numbers are those of the frames' status field and stay.
enum class Outcome : std::uint32_t {
  ok = 0,
  miss = 1,
  stale = 2,
  reject_nosig = 3,
  reject_sig = 4,
  reject_format = 5,
  bad_magic = 6,
  bad_key = 7,
  bad_version = 8,
  bad_length = 9,
  bad_crc = 10,
  access = 11,
  unreachable = 12,
  timeout = 13,
  too_small = 14,
  too_large = 15,
  full = 16,
  exists = 17,
  conflict = 18,
  bad_arg = 19,
  control_down = 20,
};
std::string_view outcome_name(Outcome outcome) noexcept;  // "REJECT_SIG"

enum class PutMode : std::uint32_t { if_absent = 0, if_version = 1, replace = 2 };  // A, C, R

}  // namespace farlift::kv
