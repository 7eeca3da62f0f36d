// Where a value goes (spec kv 7.1): the nodes that may take it, best first, by weighted rendezvous
// hashing of the key, so that every client asks the same nodes in the same order.
//
// Invariants: only nodes that are up and have room are named. A fresh node's share grows with its
//             age, from a tenth to a full one after `ramp_up`: it would otherwise take the puts of
//             everything it has not cached yet at once.
// Threads:    pure function. Errors: none.
#pragma once

#include "core/base/clock.h"
#include "kvcache/wire/names.h"

#include <vector>

namespace farlift::kv::client {

std::vector<NodeRecord> place(ByteView key, Length length, const std::vector<NodeRecord>& nodes,
                              Duration ramp_up);

}  // namespace farlift::kv::client
