// The software provider (design.md 3.1): the semantics of a good card on any host, over TCP between
// hosts and by process_vm_readv on one host. docs/formats/soft.md has the wire format,
// docs/decisions/0001 says who copies and why.
//
// Threads and errors: as core/fabric/fabric.h.
#pragma once

#include "core/fabric/fabric.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace farlift::fabric::soft {

struct SoftOptions {
  std::string listen_ip =
      "127.0.0.1";  // numeric IPv4 or IPv6; what endpoints bind unless TargetOptions says otherwise
  bool virtual_addressing = false;  // remote addresses are virtual addresses, else offsets
  bool host_lane = true;            // use process_vm_readv when both ends allow it
  // Keys are (dc_key << 32) | 32 random bits, so that an rkey of 32 bits names a registration to
  // whoever holds the DC key (spec s3 11.1). Empty: 64 random bits.
  std::optional<std::uint32_t> dc_key = {};
  // An accepted connection that has not said hello by then is ended: it would hold a place of
  // TargetOptions::connections_max for ever.
  std::uint32_t hello_deadline_ms = 10'000;
  std::uint32_t spin_us = 0;  // longest spin before a blocking wait (adaptive_spin.h); 0: none
};

// invalid_argument: listen_ip is not a numeric address, or is one that nobody could connect to
// (wildcard, multicast).
Result<std::unique_ptr<Domain>> open_domain(const SoftOptions& options, const Clock& clock);

// Everything that was refused, limited or lost, and which lane served. All counters only grow.
struct SoftStats {
  // target side
  std::uint64_t links_accepted = 0;
  std::uint64_t links_refused = 0;       // connections_max was reached
  std::uint64_t links_foreign = 0;       // the peer does not speak soft, or another version of it
  std::uint64_t links_silent = 0;        // no hello within hello_deadline_ms
  std::uint64_t links_broken = 0;        // the peer broke the protocol
  std::uint64_t operations_served = 0;   // acknowledged with success
  std::uint64_t operations_refused = 0;  // key, range or right
  std::uint64_t bytes_landed = 0;        // by both lanes
  std::uint64_t bytes_mapped = 0;        // of those: copied from our view of the source's file
  std::uint64_t bytes_sent = 0;          // for remote-lane reads
  std::uint64_t pulls_failed = 0;        // the source could not be read
  // initiator side
  std::uint64_t links_connected = 0;
  std::uint64_t links_lost = 0;
  std::uint64_t connect_failures = 0;  // refused, timed out, foreign
  std::uint64_t abort_limits =
      0;                         // links given up before the target had closed its side: not quiet
  std::uint64_t host_links = 0;  // links whose host lane was proven in both directions
  std::uint64_t host_lane_refusals =
      0;  // same host, but the kernel did not allow it or the proof failed
  std::uint64_t writes_remote = 0;
  std::uint64_t writes_host = 0;
  std::uint64_t reads_remote = 0;
  std::uint64_t reads_host = 0;
  std::uint64_t posts_deferred = 0;  // in_flight_max was reached
  // registrations
  std::uint64_t registrations_refused = 0;
  std::uint64_t landed_overflows = 0;  // a registration recorded more than kLandedRunsMax runs
};

// Zeroes for a domain of another provider.
SoftStats stats(const Domain& domain) noexcept;

}  // namespace farlift::fabric::soft
