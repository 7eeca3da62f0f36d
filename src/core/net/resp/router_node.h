// What a Router keeps for each node; for router.cc and router_leases.cc.
//
// Threads:    guarded by the router's mutex.
#pragma once

#include "core/net/resp/router.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace farlift::resp {

// Connections to one node. Idle ones are used last in, first out, so that spare ones age and are
// found out.
struct Router::Node {
  std::vector<std::unique_ptr<Connection>> idle;
  std::vector<std::unique_ptr<Connection>> lent;
  std::uint32_t existing = 0;  // idle, lent and being connected
  bool retired = false;        // left the cluster: what comes back is not kept
};

}  // namespace farlift::resp
