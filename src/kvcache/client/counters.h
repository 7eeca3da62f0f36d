// Counters: what a client did and met, for operators and tests. All of them only grow.
//
// Threads: the loop's. Errors: none.
#pragma once

#include "kvcache/wire/types.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace farlift::kv::client {

inline constexpr std::size_t kOutcomes = static_cast<std::size_t>(Outcome::control_down) + 1;

struct Counters {
  std::array<std::uint64_t, kOutcomes> gets{};  // by how they ended; stat and exists too
  std::array<std::uint64_t, kOutcomes> puts{};
  std::uint64_t bytes_read = 0;     // of gets that ended ok
  std::uint64_t bytes_written = 0;  // of puts that ended ok
  std::uint64_t cache_hits = 0;
  std::uint64_t cache_misses = 0;  // nothing cached, or too old
  std::uint64_t resolve_calls = 0;
  std::uint64_t resolved_keys = 0;
  std::uint64_t reads_posted = 0;  // attempts, not operations of the fabric
  std::uint64_t reads_retried = 0;
  std::uint64_t rejects =
      0;  // descriptors that were not authentic: somebody forges, or keys differ
  std::uint64_t timeouts = 0;  // endpoints closed because something outlived T_op
  std::uint64_t links_opened = 0;
  std::uint64_t links_refused = 0;  // unreachable, or a proof that failed
  std::uint64_t links_lost = 0;
  std::uint64_t stale_seen_sent = 0;
  std::uint64_t touches_sent = 0;
  std::uint64_t puts_resent = 0;
  std::uint64_t puts_elsewhere = 0;         // another node tried, on FULL or UNREACHABLE
  std::uint64_t landing_registrations = 0;  // one a rail and landing memory
  std::uint64_t source_registrations = 0;   // the same memory, lent for pulls
  std::uint64_t leases_taken = 0;

  std::vector<std::pair<std::string, std::uint64_t>> list() const;
};

}  // namespace farlift::kv::client
