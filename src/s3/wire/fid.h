// Fid: the name of a needle: "<volume decimal>,<id hex><cookie 8 hex>[_n]" (spec s3 12).
//
// Invariants: format() drops leading zero bytes of the id but keeps one, and parses back to the
//             same fid. "_n" adds n to the id; a sum past 2^64 is refused.
// Threads:    plain values. Errors: invalid_argument.
#pragma once

#include "core/base/result.h"

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace farlift::s3 {

struct Fid {
  std::uint32_t volume = 0;
  std::uint64_t needle = 0;
  std::uint32_t cookie = 0;

  static Result<Fid> parse(std::string_view text);
  std::string format() const;
  friend auto operator<=>(const Fid&, const Fid&) noexcept = default;
};

// The text without "_n": what a JWT must name (spec s3 8.2).
std::string_view fid_without_suffix(std::string_view text) noexcept;

}  // namespace farlift::s3
