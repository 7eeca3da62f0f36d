// The start-up self-test of a rail: proves by loopback through it what the doors rely on (spec kv
// 3): a read-only registration serves reads and refuses writes, a closed registration is refused,
// and registering again gives another key. A provider that keeps closed registrations alive or
// widens their rights (a registration cache) fails here.
//
// Works on any Domain. Opens and closes a target endpoint and an initiator of its own; moves a few
// KiB. Threads: blocks the caller until it is done. Errors: in the report.
#pragma once

#include "core/base/clock.h"
#include "core/fabric/fabric.h"

#include <chrono>
#include <string>
#include <vector>

namespace farlift::fabric {

struct SelfTestStep {
  std::string name;
  bool passed = false;
  std::string detail;
};
struct SelfTestReport {
  bool passed = false;
  std::vector<SelfTestStep> steps;  // in order; ends at the first that failed
};
// `initiator_side` is another domain where a card cannot reach itself.
SelfTestReport self_test(Domain& target_side, Domain& initiator_side, const Clock& clock,
                         Duration step_deadline = std::chrono::seconds(10));
inline SelfTestReport self_test(Domain& domain, const Clock& clock) {
  return self_test(domain, domain, clock);
}

}  // namespace farlift::fabric
