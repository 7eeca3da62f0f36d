// NodeProbe: what tests and simulations see of a node beyond its interface. No process uses it.
//
// Threads: the node's. Errors: none; empty where there is nothing.
#pragma once

#include "kvcache/node/arena.h"
#include "kvcache/node/node.h"

#include <span>
#include <string>
#include <vector>

namespace farlift::kv::node {

struct ArenaView {
  ArenaId id;
  ArenaGen gen;
  ArenaState state = ArenaState::active;
  std::string tenant;
  std::uint64_t free = 0, reserved = 0, sealed = 0, published = 0, quarantined = 0;
  Length used, live;
  std::vector<RKey> keys;  // a rail; empty between two generations
};
struct SlotView {
  Bytes key;
  SlotState state = SlotState::free;
  bool unknown = false;
  bool granted = false;
  Version version;
  Crc32c crc;
  Location location;
  std::span<const std::byte> header;
  std::span<const std::byte> payload;
};

class NodeProbe {
 public:
  virtual ~NodeProbe() = default;
  std::vector<ArenaView> arenas() const {
    std::vector<ArenaView> views(arena_count());
    for (std::size_t i = 0; i < views.size(); ++i) {
      look(ArenaId(static_cast<std::uint32_t>(i + 1)), views[i]);
    }
    return views;
  }
  // Of an arena of the current generation, in ascending order.
  std::vector<SlotView> slots(ArenaId arena) const {
    std::vector<SlotView> views;
    look(arena, views);
    return views;
  }
  // The same into views that are used again. Arenas are numbered from 1.
  virtual std::size_t arena_count() const = 0;
  virtual void look(ArenaId arena, ArenaView& into) const = 0;
  virtual void look(ArenaId arena, std::vector<SlotView>& into) const = 0;
  virtual std::pair<ArenaGen, ArenaState> phase(ArenaId arena) const = 0;
  // The arena's bytes, to corrupt or to watch.
  virtual std::span<std::byte> memory(ArenaId arena) const = 0;
  // The header's first byte, when the location is of this incarnation and in use.
  virtual std::byte* at(const Location& location) const = 0;
  virtual bool hand_over(ArenaId arena, const std::string& tenant) = 0;
  virtual std::uint64_t counter(std::string_view name) const = 0;
  virtual void reconcile_now() = 0;
  virtual std::size_t open_grants() const = 0;
};

NodeProbe& probe(Node& node);  // of a node made by Node::create()

}  // namespace farlift::kv::node
