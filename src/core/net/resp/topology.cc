#include "core/net/resp/topology.h"

#include <algorithm>
#include <string_view>

namespace farlift::resp {
namespace {

constexpr const char* kWhere = "cluster topology";

Error malformed() { return Error::make(Errc::protocol, kWhere); }

// A map, or in RESP2 the flat list of its keys and values.
const Value* field(const Value& record, std::string_view key) {
  if (record.type() == Type::map) return record.find(key);
  if (record.type() != Type::array) return nullptr;
  const auto items = record.items();
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (items[i].is_text() && items[i].text() == key) return &items[i + 1];
  }
  return nullptr;
}

std::optional<std::int64_t> integer_of(const Value* value) {
  if (value == nullptr || value->type() != Type::integer) return std::nullopt;
  return value->integer();
}

std::optional<Endpoint> endpoint_of(const Value* host, const Value* port,
                                    const Endpoint& answered_by) {
  const auto number = integer_of(port);
  if (!number || *number <= 0 || *number > 65535) return std::nullopt;
  Endpoint node{answered_by.host, static_cast<std::uint16_t>(*number)};
  if (host != nullptr && host->is_text() && !host->text().empty() && host->text() != "?")
    node.host = host->text();
  return node;
}

}  // namespace

std::optional<std::uint16_t> Topology::index_of(const Endpoint& node) {
  const auto at = std::ranges::find(nodes_, node);
  if (at != nodes_.end()) return static_cast<std::uint16_t>(at - nodes_.begin());
  if (nodes_.size() >= kNodesMax) return std::nullopt;
  nodes_.push_back(node);
  return static_cast<std::uint16_t>(nodes_.size() - 1);
}

Status Topology::assign(std::int64_t first, std::int64_t last, const Endpoint& node) {
  if (first < 0 || last < first || last >= std::int64_t{kSlotCount}) return malformed();
  const auto index = index_of(node);
  if (!index) return Error::make(Errc::too_large, kWhere);
  std::fill(owner_.begin() + first, owner_.begin() + last + 1, *index);
  return {};
}

Result<Topology> Topology::from_slots(const Value& reply, const Endpoint& answered_by) {
  if (reply.type() != Type::array) return malformed();
  Topology topology;
  for (const Value& range : reply.items()) {
    if (range.type() != Type::array || range.items().size() < 3) return malformed();
    const auto first = integer_of(&range.items()[0]);
    const auto last = integer_of(&range.items()[1]);
    const Value& primary = range.items()[2];
    if (!first || !last || primary.type() != Type::array || primary.items().size() < 2)
      return malformed();
    const auto node = endpoint_of(&primary.items()[0], &primary.items()[1], answered_by);
    if (!node) return malformed();
    TRY(topology.assign(*first, *last, *node));
  }
  return topology;
}

Result<Topology> Topology::from_shards(const Value& reply, const Endpoint& answered_by,
                                       bool use_tls) {
  if (reply.type() != Type::array) return malformed();
  Topology topology;
  for (const Value& shard : reply.items()) {
    const Value* slots = field(shard, "slots");
    const Value* nodes = field(shard, "nodes");
    if (slots == nullptr || slots->type() != Type::array || slots->items().size() % 2 != 0)
      return malformed();
    if (nodes == nullptr || nodes->type() != Type::array) return malformed();
    std::optional<Endpoint> primary;
    for (const Value& node : nodes->items()) {
      const Value* role = field(node, "role");
      if (role == nullptr || !role->is_text()) return malformed();
      if (role->text() != "master" && role->text() != "primary") continue;
      primary = endpoint_of(field(node, "endpoint"), field(node, use_tls ? "tls-port" : "port"),
                            answered_by);
      if (!primary) return malformed();
      break;
    }
    if (!primary) continue;  // a shard that lost its primary serves nothing for now
    for (std::size_t i = 0; i + 1 < slots->items().size(); i += 2) {
      const auto first = integer_of(&slots->items()[i]);
      const auto last = integer_of(&slots->items()[i + 1]);
      if (!first || !last) return malformed();
      TRY(topology.assign(*first, *last, *primary));
    }
  }
  return topology;
}

const Endpoint* Topology::owner(std::uint16_t slot) const noexcept {
  if (slot >= kSlotCount || owner_[slot] == kNone) return nullptr;
  return &nodes_[owner_[slot]];
}

void Topology::move(std::uint16_t slot, const Endpoint& to) {
  if (slot >= kSlotCount) return;
  if (const auto index = index_of(to)) owner_[slot] = *index;
}

std::size_t Topology::slots_covered() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(owner_, [](std::uint16_t o) { return o != kNone; }));
}

}  // namespace farlift::resp
