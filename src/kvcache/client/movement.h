// Movement: the bytes of one read or one pushed write, split at the node's longest operation and
// striped over the rails of a link (spec kv 9.5): part r goes over rail r mod R with that rail's
// key.
//
// Invariants: the outcome is told once, after every part is quiet; memory that was lent (the
//             landing, the header's place) is given back after that, whoever waits. A header is
//             the first bytes of part 0, so that the parts together are one run of remote memory.
// Threads:    the loop's. Errors: the first failed part's; quiet == false if any part's was.
#pragma once

#include "core/transfer/engine.h"
#include "kvcache/client/landing.h"
#include "kvcache/wire/types.h"

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace farlift::kv::client {

struct Movement {
  fabric::OpKind kind = fabric::OpKind::read;
  HeaderPool* headers = nullptr;  // where `header` is from, and goes back to
  std::span<std::byte> header;    // empty: the payload alone
  std::span<std::byte> payload;
  std::shared_ptr<Landing> memory;  // the payload's; may be null when that is empty
  RemoteAddr addr;                  // of the first byte
  std::vector<RKey> rkeys;          // in the order of the node's rails
};

struct Moved {
  Status status;
  Crc32c crc;  // of what landed, header included; of reads that ended ok
};
using OnMoved = std::function<void(const Moved&)>;  // from inside Engine::step() or close()

// A rail of a link: ours joined with the node's.
struct LinkRail {
  std::size_t own = 0;  // index of our domain
  fabric::Address peer;
  transfer::Engine* engine = nullptr;  // null: we have no such rail
};

struct MovementLimits {
  Length part_max;  // of striped parts
  Length max_read;  // the node's
};

// unreachable: none of the rails has both a key and an engine.
Status start_movement(std::span<const LinkRail> rails, const MovementLimits& limits,
                      Movement movement, OnMoved done);

}  // namespace farlift::kv::client
