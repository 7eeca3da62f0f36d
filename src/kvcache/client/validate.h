// What landed against what the descriptor promised (spec kv 9.8), and what came out of the
// directory against the key ring (9.2, 9.3).
//
// Threads: pure functions. Errors: outcomes.
#pragma once

#include "kvcache/client/client.h"
#include "kvcache/wire/layout.h"

#include <span>

namespace farlift::kv::client {

struct Landed {
  std::span<const std::byte> header;  // empty: the payload alone was read
  Crc32c crc;                         // over header and payload, in this order
};

// In the normative order: magic, key, version, length, CRC.
Outcome validate(const Descriptor& descriptor, const Landed& landed, PlantedClientBugs bugs);

// verify_pair(), but for a planted bug.
Verified verify(const ClientOptions& options, const Keyring& keys, ByteView key, const Pair& pair,
                std::uint32_t min_rev);

}  // namespace farlift::kv::client
