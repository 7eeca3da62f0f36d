#include "tests/sim/ledger.h"

#include <cstring>
#include <sstream>

namespace farlift::kv::simulation {

std::string text_of(const Name& name) {
  std::string text = name.first + "/";
  for (const std::byte b : name.second) text += static_cast<char>(b);
  return text;
}

std::string text_of(const Location& location) {
  std::ostringstream out;
  out << "node " << location.node.raw() << " incarnation " << std::hex << location.incarnation.raw()
      << std::dec << " arena " << location.arena.raw() << " gen " << location.gen.raw() << " addr "
      << location.addr.raw();
  return out.str();
}

Record* Ledger::published(const PublishRequest& request, const std::byte* at) {
  const Name name(request.tenant, request.key);
  const auto decoded = decode_descriptor(request.descriptor);
  if (!decoded.ok() || at == nullptr) {
    fail("P4: " + text_of(name) + " is published with a descriptor of nothing that is there");
    return nullptr;
  }
  Record record{request.tenant,
                request.key,
                *decoded,
                request.descriptor,
                request.tag,
                Bytes(at, at + kHeaderBytes),
                Bytes(at + kHeaderBytes, at + kHeaderBytes + decoded->length.raw())};
  const std::string where = text_of(name) + " at " + text_of(decoded->location);
  const auto header = decode_header(std::span(record.header).first<kHeaderBytes>());
  if (!header || header->version != decoded->version || header->crc != decoded->crc ||
      header->length != decoded->length || header->key_hash != decoded->key_hash) {
    fail("P4: the header and the descriptor differ: " + where);
  }
  const auto [same, fresh] = versions_.try_emplace({name, decoded->version.raw()}, nullptr);
  if (!fresh &&
      (same->second->payload != record.payload || same->second->descriptor.crc != decoded->crc ||
       same->second->descriptor.key_hash != decoded->key_hash)) {
    fail("P15: one version, two values: " + where);
  }
  if (!was_written(name, record.payload)) fail("P1: nobody wrote what is published: " + where);
  records_.push_back(std::move(record));
  Record* const kept = &records_.back();
  if (fresh) same->second = kept;
  names_[name].push_back(kept);
  const Location& l = kept->descriptor.location;
  places_[{l.incarnation, l.arena, l.gen}].emplace(l.addr, kept);
  return kept;
}

void Ledger::check_result(const Name& name, Version version, const Bytes& payload) {
  const auto at = versions_.find({name, version.raw()});
  if (at == versions_.end()) {
    fail("P1: ok with a version nobody published: " + text_of(name));
  } else if (at->second->payload != payload) {
    fail("P1: wrong bytes: " + text_of(name) + ", " + text_of(at->second->descriptor.location));
  }
}

}  // namespace farlift::kv::simulation
