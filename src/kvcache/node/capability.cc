#include "kvcache/node/capability.h"

#include "core/base/assert.h"

#include <algorithm>

namespace farlift::kv::node {

void seal_copy(const SlotRef& slot, Version version, Crc32c crc) {
  ASSERT(slot.valid());
  ValueHeader header;
  header.crc = crc;
  header.key_hash = slot.slot().key_hash;
  header.version = version;
  header.length = Length(slot.slot().length);
  const auto bytes = encode_header(header);
  std::copy(bytes.begin(), bytes.end(), slot.arena->header_for_write(slot.index).begin());
  slot.arena->slots().seal(slot.index, version, crc);
}

void seal_slot(Core& core, const SlotRef& slot, std::uint32_t rev, Crc32c crc) {
  seal_copy(slot, Version(rev, core.next_uid()), crc);
}

Capability make_capability(const Core& core, const Tenant& tenant, const SlotRef& ref) {
  const Slot& slot = ref.slot();
  ASSERT(ref.valid() && slot.state() == SlotState::sealed);  // P4
  Descriptor descriptor;
  descriptor.virtual_address = core.virtual_address;
  descriptor.location = core.locate(ref);
  descriptor.length = Length(slot.length);
  descriptor.version = slot.version;
  descriptor.key_hash = slot.key_hash;
  descriptor.crc = slot.crc;
  descriptor.key_id = tenant.keys().signing_id();
  for (std::size_t rail = 0; rail < ref.arena->rails(); ++rail) {
    descriptor.rkeys.push_back(ref.arena->registration(rail)->key());
  }
  Capability capability;
  capability.descriptor = encode_descriptor(descriptor);
  if (!tenant.keys().is_development()) {
    const ByteView key =
        core.planted(PlantedBug::tag_without_key) ? ByteView() : ref.arena->slots().key(ref.index);
    const Tag tag = make_tag(tenant.keys().signing(), tenant.name(), key, capability.descriptor);
    capability.tag.assign(tag.begin(), tag.end());
  }
  return capability;
}

}  // namespace farlift::kv::node
