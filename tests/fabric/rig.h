// Rig: a real node and real clients in one process over a real fabric, between them a model of
// Valkey and of the control connections, all under the system's clock.
//
// Invariants: a client that is held is not stepped: over libfabric's tcp it then takes nothing from
//             its sockets, as a slow reader does.
// Threads: one (the fabric has its own inside). Errors: expectations of GoogleTest.
#pragma once

#include "core/memory/mapping.h"
#include "kvcache/client/client.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"
#include "kvcache/node/node.h"
#include "kvcache/node/node_probe.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/fabric/lane.h"

namespace farlift::kv::rig {

Bytes key_of(std::string_view text);
// Bytes that depend on their place, so that a piece that lands elsewhere shows.
Bytes pattern(std::size_t length, std::uint64_t seed);
bool same(std::span<const std::byte> a, std::span<const std::byte> b);

struct RigOptions {
  lane::Lane lane;
  Length arena{4u << 20};
  std::uint64_t arenas = 1;  // the tenant's quota
  std::size_t clients = 1;
  std::size_t memory = 8u << 20;  // of each client; puts are from its second half
  std::function<void(NodeOptions&)> node{};
  std::function<void(ClientOptions&)> client{};
};

class Rig;

class User {
 public:
  User(Rig& rig, const std::string& name);
  ~User();

  PutResult put(const Bytes& key, const Bytes& value, PutMode mode = PutMode::if_absent,
                bool push = false);
  GetResult get(const Bytes& key, std::size_t cap, ReadMode mode = ReadMode::framed);
  Outcome remove(const Bytes& key);
  // Starts a read; its result comes to `late`.
  void begin_get(const Bytes& key, std::size_t cap, ReadMode mode);
  std::span<std::byte> dest(std::size_t length) const { return memory_.bytes().first(length); }
  std::uint64_t counter(std::string_view name) const;
  bool step() { return !held && client_->step(); }

  bool held = false;
  std::optional<GetResult> late;

 private:
  Rig& rig_;
  memory::Mapping memory_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<LandingMemory> landing_;
};

class Rig {
 public:
  explicit Rig(RigOptions options);
  ~Rig();

  Node& node() { return *node_; }
  node::NodeProbe& see() { return node::probe(*node_); }
  User& user(std::size_t i = 0) { return *users_[i]; }

  void step();  // everybody once
  bool run(const std::function<bool()>& so, Duration limit = std::chrono::seconds(90));
  // One rotation of everything, to its end; false: an arena got lost, or it never ended.
  bool rotate();
  std::optional<Descriptor> stored(const Bytes& key);

  const RigOptions options;
  sim::SimLinks links;
  sim::SimValkey valkey;

 private:
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Directory> directory_;
  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Node> node_;
  std::vector<std::unique_ptr<User>> users_;
};

}  // namespace farlift::kv::rig
