// What a node hands out for a sealed slot: header, descriptor, tag (spec kv 4).
//
// Threads: one. Errors: none; the slot is sealed (ASSERT).
#pragma once

#include "kvcache/node/core.h"
#include "kvcache/wire/layout.h"

namespace farlift::kv::node {

// Writes the header of a reserved slot and seals it.
void seal_slot(Core& core, const SlotRef& slot, std::uint32_t rev, Crc32c crc);
// The same with a version given: the copy of a migration keeps that of its source.
void seal_copy(const SlotRef& slot, Version version, Crc32c crc);

struct Capability {
  Bytes descriptor;
  Bytes tag;  // empty in development mode
};
Capability make_capability(const Core& core, const Tenant& tenant, const SlotRef& slot);

inline Bytes to_bytes(ByteView view) { return {view.begin(), view.end()}; }

}  // namespace farlift::kv::node
