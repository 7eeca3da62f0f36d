// One conformance suite for every provider: rights, ranges, keys, rotation, fencing, refusals,
// delivery, aborts, dead and stopped peers.
//
// A test program lists its providers and links farlift::fabric_conformance, which brings the tests
// and main():
//
//   std::vector<ConformanceProvider> farlift::fabric::conformance_providers() {
//     return {{.name = "soft", .open = [] { return soft::open_domain({}, clock); }}};
//   }
//
// What a provider is expected to do follows from DomainInfo (FenceMode above all) and from the
// fields below.
#pragma once

#include "core/fabric/fabric.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace farlift::fabric {

struct ConformanceProvider {
  std::string name;  // letters, digits and _
  std::function<Result<std::unique_ptr<Domain>>()>
      open;  // called in each process, once or more often
  bool separate_processes =
      true;                   // run the cases that need a peer process; it is this program again
  bool exact_refusal = true;  // a refused operation is `access` and its neighbours succeed; else
                              // any of them may be `access` or `flushed`, and only "no byte was
                              // touched" is checked
  bool pump_target = false;   // targets move only when the test calls progress(0)
  bool one_thread = false;    // simulated: everything of one network belongs to the test's thread
  bool socket_addresses = true;  // 16 or 28 byte addresses: the address rules are checked
  std::uint32_t streams_per_peer = 1;
  std::uint32_t rounds_percent = 100;  // slow providers do fewer rounds of the repeated cases
  bool abort_is_fence = true;  // else bytes of a write that abort() ended may still land: the
                               // owner of the memory fences before it is reused
  std::size_t bulk_bytes = 16u << 20;  // an operation long enough to be caught in the middle
};

// GoogleTest's name for it.
// NOLINTNEXTLINE(readability-identifier-naming)
inline void PrintTo(const ConformanceProvider& provider, std::ostream* out) {
  *out << provider.name;
}

std::vector<ConformanceProvider> conformance_providers();  // defined by the test program

}  // namespace farlift::fabric
