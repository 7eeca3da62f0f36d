#include "tests/sim/faults.h"

#include "kvcache/wire/names.h"

#include <algorithm>

namespace farlift::kv::simulation {

using namespace std::chrono_literals;

Faults::Faults(World& world) : world_(world), due_(world.clock().now() + 2s) {
  const FaultWeights& w = world.plan().faults;
  strikes_ = {{w.partition, "partition", &Faults::partition},
              {w.lose_links, "lose links", &Faults::lose_links},
              {w.pause, "pause", &Faults::pause},
              {w.crash, "crash", &Faults::crash},
              {w.crash_client, "crash of a client", &Faults::crash_client},
              {w.valkey_down, "valkey down", &Faults::valkey_down},
              {w.fail_over, "fail-over", &Faults::fail_over},
              {w.flush_all, "FLUSHALL", &Faults::flush_all},
              {w.evict, "evict", &Faults::evict},
              {w.evict_half, "evict half", &Faults::evict_half},
              {w.forge, "forge", &Faults::forge},
              {w.replay, "replay", &Faults::replay},
              {w.swap, "swap", &Faults::swap},
              {w.across_tenants, "copy across tenants", &Faults::across_tenants},
              {w.jump, "clock jump", &Faults::jump},
              {w.rotate, "rotate", &Faults::rotate},
              {w.rotate_all, "rotate all", &Faults::rotate_all},
              {w.hand_over, "hand over", &Faults::hand_over},
              {w.drain, "drain", &Faults::drain},
              {w.reconcile, "reconcile", &Faults::reconcile}};
}

Duration Faults::some(Duration at_most) {
  return Duration(
      static_cast<Duration::rep>(world_.prng().below(static_cast<std::uint64_t>(at_most.count()))));
}
NodeParty& Faults::any_node() { return *world_.nodes_[world_.prng().below(world_.nodes_.size())]; }
ClientParty& Faults::any_client() {
  return *world_.clients_[world_.prng().below(world_.clients_.size())];
}
Name Faults::any_name() {
  return {world_.tenant(world_.prng().below(world_.plan().tenants)),
          world_.key(world_.prng().below(world_.plan().keys))};
}

Instant Faults::next() const {
  Instant next = std::min({due_, heal_links_, valkey_up_});
  for (const auto& node : world_.nodes_) {
    if (node->paused || !node->alive()) next = std::min(next, node->back_at);
  }
  return next;
}

bool Faults::come_back() {
  const Instant now = world_.clock().now();
  bool any = false;
  if (now >= heal_links_) {
    heal_links_ = Instant::max();
    world_.links().heal_all();
    any = true;
  }
  if (now >= valkey_up_) {
    valkey_up_ = Instant::max();
    world_.valkey().set_down(false);
    for (const auto& node : world_.nodes_) world_.valkey().set_down(node->name, false);
    for (const auto& client : world_.clients_) world_.valkey().set_down(client->name, false);
    any = true;
  }
  for (const auto& node : world_.nodes_) {
    if (node->alive() && node->paused && now >= node->back_at) {
      world_.pause_node(*node, false);
      any = true;
    }
    if (!node->alive() && now >= node->back_at) {
      world_.start_node(*node);
      any = true;
    }
  }
  return any;
}

bool Faults::step() {
  const bool any = come_back();
  const std::uint32_t total = world_.plan().faults.total();
  if (world_.clock().now() < due_ || total == 0) return any;
  due_ = world_.clock().now() + some(world_.plan().fault_every * 2) + 1us;
  std::uint64_t at = world_.prng().below(total);
  for (const Strike& strike : strikes_) {
    if (at < strike.weight) {
      world_.trace([&] { return std::string("strike: ") + strike.name; });
      world_.count(std::string("strike: ") + strike.name);
      (this->*strike.strike)();
      return true;
    }
    at -= strike.weight;
  }
  return any;
}

void Faults::partition() {
  const std::string a = any_node().name;
  const std::string b = world_.prng().chance(1, 3) ? any_node().name : any_client().name;
  if (a == b) return;
  world_.links().partition(a, b);
  heal_links_ = world_.clock().now() + some(8s);
}
void Faults::lose_links() { world_.links().lose_links(any_node().name, any_client().name); }
void Faults::pause() {
  NodeParty& node = any_node();
  if (!node.alive() || node.paused) return;
  world_.pause_node(node, true);
  node.back_at = world_.clock().now() + some(12s);
}
void Faults::crash() {
  NodeParty& node = any_node();
  if (!node.alive()) return;
  world_.crash_node(node, world_.prng().chance(1, 3));
  node.back_at = world_.clock().now() + some(6s);
}
void Faults::crash_client() { world_.start_client(any_client()); }
void Faults::valkey_down() {
  if (world_.prng().chance(1, 2)) {
    world_.valkey().set_down(true);
  } else if (world_.prng().chance(1, 2)) {
    world_.valkey().set_down(any_node().name, true);
  } else {
    world_.valkey().set_down(any_client().name, true);
  }
  valkey_up_ = world_.clock().now() + some(8s);
}
void Faults::fail_over() {
  world_.valkey().fail_over(some(10s));
  world_.directory_changed();
}
void Faults::flush_all() {
  world_.valkey().flush_all();
  world_.directory_changed();
}
void Faults::evict() {
  world_.valkey().evict_some(100);
  world_.directory_changed();
}
void Faults::evict_half() {
  const Name name = any_name();
  world_.valkey().evict(world_.prng().chance(1, 2) ? descriptor_name(name.first, name.second)
                                                   : tag_name(name.first, name.second));
  world_.directory_changed();
}

void Faults::put_pair(const Name& name, const std::optional<Bytes>& descriptor,
                      const std::optional<Bytes>& tag) {
  if (descriptor) world_.valkey().write(descriptor_name(name.first, name.second), *descriptor);
  if (tag) world_.valkey().write(tag_name(name.first, name.second), *tag);
  world_.directory_changed();
}

// Somebody with the directory's password and without a key: a bit, a length, random bytes, no tag.
void Faults::forge() {
  const Name name = any_name();
  const auto there = world_.valkey().state().get(descriptor_name(name.first, name.second));
  const auto tag = world_.valkey().state().get(tag_name(name.first, name.second));
  if (!there || !tag || there->empty() || tag->empty()) return;
  Bytes forged = *there;
  switch (world_.prng().below(4)) {
    case 0:
      forged[world_.prng().below(forged.size())] ^=
          static_cast<std::byte>(1u << world_.prng().below(8));
      return put_pair(name, forged, std::nullopt);
    case 1: {
      Bytes other = *tag;
      other[world_.prng().below(other.size())] ^= std::byte{1};
      return put_pair(name, std::nullopt, other);
    }
    case 2:
      forged.resize(world_.prng().below(120));
      return put_pair(name, forged, std::nullopt);
    default: {
      const NodeParty& node = any_node();  // a record that points elsewhere
      world_.valkey().write(node_name(node.id),
                            Bytes(40, static_cast<std::byte>(world_.prng().below(256))), 5s);
    }
  }
}

void Faults::replay() {
  const Name name = any_name();
  std::vector<const Record*> choice;
  for (const Record* record : world_.ledger().of(name)) {
    if (record->answered) choice.push_back(record);
  }
  if (choice.empty()) return;
  const Record* old = choice[world_.prng().below(choice.size())];
  put_pair(name, old->encoded, old->tag);
}

void Faults::swap() {
  const Name a = any_name();
  Name b = any_name();
  b.first = a.first;
  auto& state = world_.valkey().state();
  const auto a_descriptor = state.get(descriptor_name(a.first, a.second));
  const auto b_descriptor = state.get(descriptor_name(b.first, b.second));
  const auto a_tag = state.get(tag_name(a.first, a.second));
  const auto b_tag = state.get(tag_name(b.first, b.second));
  const std::uint64_t what = world_.prng().below(3);
  if (what != 1) {
    put_pair(a, b_descriptor, std::nullopt);
    put_pair(b, a_descriptor, std::nullopt);
  }
  if (what != 2) {
    put_pair(a, std::nullopt, b_tag);
    put_pair(b, std::nullopt, a_tag);
  }
}

void Faults::across_tenants() {
  const Name from = any_name();
  const Name to(world_.tenant(world_.prng().below(world_.plan().tenants)), from.second);
  if (from.first == to.first) return;
  auto& state = world_.valkey().state();
  put_pair(to, state.get(descriptor_name(from.first, from.second)),
           state.get(tag_name(from.first, from.second)));
}

void Faults::jump() {
  PartyClock& clock = world_.prng().chance(1, 2) ? any_node().clock : any_client().clock;
  clock.jump(some(world_.prng().chance(1, 2) ? Duration(10s) : Duration(90s)));
  if (world_.prng().chance(1, 4)) {
    world_.valkey().state().shift_clock(some(30s));
    world_.directory_changed();
  }
}

void Faults::rotate() {
  NodeParty& node = any_node();
  if (!node.alive() || node.paused) return;
  const auto arenas = node.probe->arenas().size();
  if (arenas > 0)
    (void)node.poke().rotate(ArenaId(static_cast<std::uint32_t>(1 + world_.prng().below(arenas))));
}
void Faults::rotate_all() {
  NodeParty& node = any_node();
  if (node.alive() && !node.paused) node.poke().rotate_all();
}
void Faults::hand_over() {
  NodeParty& node = any_node();
  if (!node.alive() || node.paused) return;
  const auto arenas = node.probe->arenas();
  if (arenas.empty()) return;
  (void)node.poke_probe().hand_over(arenas[world_.prng().below(arenas.size())].id,
                                    world_.tenant(world_.prng().below(world_.plan().tenants)));
}
void Faults::drain() {
  NodeParty& node = any_node();
  if (!node.alive() || node.paused) return;
  node.poke().drain();
}
void Faults::reconcile() {
  NodeParty& node = any_node();
  if (node.alive() && !node.paused) node.poke_probe().reconcile_now();
}

}  // namespace farlift::kv::simulation
