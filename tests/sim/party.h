// The parties of a simulated world: nodes and clients that may end and come back, each with a clock
// of its own that runs with the world's and may jump ahead.
//
// Threads: one. Ownership: members are declared so that what is used outlives its user.
#pragma once

#include "core/base/prng.h"
#include "kvcache/client/client.h"
#include "kvcache/node/node.h"
#include "kvcache/node/node_probe.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/watch.h"

namespace farlift::kv::simulation {

class PartyClock final : public Clock {
 public:
  explicit PartyClock(const Clock& base) : base_(base) {}
  Instant now() const noexcept override { return base_.now() + ahead_; }
  void jump(Duration by) { ahead_ += by; }
  Instant to_world(Instant local) const { return local == Instant::max() ? local : local - ahead_; }

 private:
  const Clock& base_;
  Duration ahead_{};
};

// When a party has to be stepped, as the loop of a process decides it: its own deadline, something
// for it, or a call from outside. A deadline that comes too late thus shows as a stall (L1, L2).
class Wakefulness {
 public:
  void stir() { stirred_ = true; }
  bool due(Instant now) const { return stirred_ || now >= deadline_; }
  template <class Stepped>
  void stepped(bool moved, const Stepped& it) {
    stirred_ = moved;
    if (!moved) deadline_ = it.next_deadline();
  }

 private:
  bool stirred_ = true;
  Instant deadline_{};
};

struct NodeParty {
  NodeParty(const Clock& base, std::string its_name, NodeId its_id)
      : clock(base), name(std::move(its_name)), id(its_id) {}
  PartyClock clock;
  const std::string name;
  const NodeId id;
  std::uint64_t life = 0;
  bool paused = false;
  Instant back_at{};  // of a paused or dead one
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<Environment> environment;
  std::unique_ptr<Node> node;
  node::NodeProbe* probe = nullptr;
  Wakefulness wake;

  // To call what is no part of step().
  Node& poke() {
    wake.stir();
    return *node;
  }
  node::NodeProbe& poke_probe() {
    wake.stir();
    return *probe;
  }
  bool alive() const { return node != nullptr; }
  Incarnation incarnation() const { return node->incarnation(); }
};

// One destination or source inside a client's memory, with guards on both sides.
struct Area {
  static constexpr std::size_t kGuard = 64;
  std::span<std::byte> whole;  // guards included
  std::span<std::byte> inner() const { return whole.subspan(kGuard, whole.size() - 2 * kGuard); }
  bool busy = false;
  Bytes key;  // while busy
  std::size_t cap = 0;
  std::uint64_t fill = 0;
  Instant began{};  // on the client's clock
  Bytes quiet;      // what it held when it was reported
};

// Operations of a client that run one after another.
struct Lane {
  static constexpr std::size_t kAreas = 3;
  std::vector<Area> areas;  // the last one is the source of puts
  bool busy = false;
  std::string doing;
  Instant due{};  // of the next one
  Area& source() { return areas.back(); }
};

struct ClientParty {
  ClientParty(const Clock& base, std::string its_name, std::string its_tenant)
      : clock(base), name(std::move(its_name)), tenant(std::move(its_tenant)) {}
  PartyClock clock;
  const std::string name;
  const std::string tenant;
  std::uint64_t life = 0;
  Told told;
  std::vector<std::byte> memory;
  std::vector<Lane> lanes;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<Environment> environment;
  std::unique_ptr<Client> client;
  std::unique_ptr<LandingMemory> landing;
  Wakefulness wake;

  Client& poke() {
    wake.stir();
    return *client;
  }
  void end() {
    client.reset();  // reports what is left; then nothing touches the memory
    landing.reset();
    environment.reset();
    directory.reset();
    transport.reset();
  }
};

}  // namespace farlift::kv::simulation
