#include "kvcache/client/counters.h"

#include <string_view>

namespace farlift::kv::client {

std::vector<std::pair<std::string, std::uint64_t>> Counters::list() const {
  std::vector<std::pair<std::string, std::uint64_t>> all = {
      {"bytes_read", bytes_read},
      {"bytes_written", bytes_written},
      {"cache_hits", cache_hits},
      {"cache_misses", cache_misses},
      {"resolve_calls", resolve_calls},
      {"resolved_keys", resolved_keys},
      {"reads_posted", reads_posted},
      {"reads_retried", reads_retried},
      {"rejects", rejects},
      {"timeouts", timeouts},
      {"links_opened", links_opened},
      {"links_refused", links_refused},
      {"links_lost", links_lost},
      {"stale_seen_sent", stale_seen_sent},
      {"touches_sent", touches_sent},
      {"puts_resent", puts_resent},
      {"puts_elsewhere", puts_elsewhere},
      {"landing_registrations", landing_registrations},
      {"source_registrations", source_registrations},
      {"leases_taken", leases_taken},
  };
  for (std::size_t i = 0; i < kOutcomes; ++i) {
    const std::string name(outcome_name(static_cast<Outcome>(i)));
    if (gets[i] > 0) all.emplace_back("gets." + name, gets[i]);
    if (puts[i] > 0) all.emplace_back("puts." + name, puts[i]);
  }
  return all;
}

}  // namespace farlift::kv::client
