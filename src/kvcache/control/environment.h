// Environment: everything a node or a client takes from outside, so that a simulation can own it
// all. Nothing in node/ and client/ reads a clock, draws a number or opens a thing by itself.
//
// Threads: all of it is used from the loop's thread. Ownership: what is referred to outlives the
//          node or client.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/fabric/fabric.h"
#include "kvcache/control/directory.h"
#include "kvcache/control/link.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace farlift::kv {

// One rail: a way to open fabric domains on it. A node opens one domain for each tenant (spec kv 3:
// keys are guessable, so a domain is the isolation), a client one.
struct Rail {
  std::string provider;  // rail_name(): "soft", "tcp", "verbs;ofi_rxm", "efa"
  std::function<Result<std::unique_ptr<fabric::Domain>>()> open_domain;
  std::string listen_ip;  // of target endpoints; empty: the domain's own
};

// What HELLO and the node record call a rail of this provider (fabric::DomainInfo::provider). Both
// ends must say the same: libfabric's tcp wire is "net" in 1.17 and "tcp" from 2.0 on.
inline std::string rail_name(const std::string& provider) {
  return provider == "net" ? "tcp" : provider;
}

// Rails whose targets must know who reads from them. HELLO then carries, behind the targets' own
// addresses, those of the endpoints that will read: the client's, and the node's that pulls (spec
// kv 3). One for each such rail, in the order of the rails.
inline bool introduces_readers(const std::string& rail) { return rail.starts_with("efa"); }

struct Environment {
  const Clock& clock;
  std::function<void(std::span<std::byte>)> random;  // secure_random outside simulations
  Directory& directory;
  Transport& transport;
  std::vector<Rail> rails;  // 1..kRailsMax
};

// While it lives, what a step says to others is gathered; then it goes out together.
class GatherSends {
 public:
  explicit GatherSends(const Environment& environment) : environment_(environment) {
    environment_.transport.hold();
    environment_.directory.hold();
  }
  GatherSends(const GatherSends&) = delete;
  GatherSends& operator=(const GatherSends&) = delete;
  ~GatherSends() {
    environment_.directory.flush();
    environment_.transport.flush();
  }

 private:
  const Environment& environment_;
};

}  // namespace farlift::kv
