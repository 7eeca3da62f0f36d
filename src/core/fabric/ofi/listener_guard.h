// What libfabric's tcp provider leaves open around its listeners, closed from outside. Each of its
// endpoints listens. A connection that it accepted but that has not introduced itself yet points at
// the listener; when the endpoint closes first, the next event of that connection touches freed
// memory (a TODO in its sources until 2.x; seen here as a crash on 1.17). So a closing target hangs
// up on such connections while its listener still lives, and endpoints that nobody should connect
// to drop every packet that tries.
//
// The sockets are the provider's and are found by their local address in this process's table.
// Threads: any. Errors: none; where the table cannot be read nothing is found, and nothing is
// worse.
#pragma once

#include "core/fabric/fabric.h"

#include <cstddef>

namespace farlift::fabric::ofi {

// From now on nobody gets through to the listener at `address`.
void refuse_connections(const Address& address) noexcept;

struct Accepted {
  std::size_t connections = 0;  // accepted from the listener and hung up on, now or before
  bool backlog = false;         // there are more that the provider has not accepted yet
};
// Hangs up on what was accepted from the listener. The provider notices when it makes progress.
Accepted hang_up(const Address& address) noexcept;

}  // namespace farlift::fabric::ofi
