// FakeNode: a data node for tests of the client. It speaks frames, holds an arena, and does wrong
// whatever a test asks for.
//
// Threads: the test's. Errors: ASSERTs, since a broken test bed proves nothing.
#pragma once

#include "core/base/prng.h"
#include "core/fabric/fabric.h"
#include "core/memory/mapping.h"
#include "core/transfer/engine.h"
#include "kvcache/control/link.h"
#include "kvcache/control/sim/sim_valkey.h"
#include "kvcache/wire/frames.h"
#include "kvcache/wire/keyring.h"
#include "kvcache/wire/layout.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farlift::kv::client::testing {

// What a test may ask a node to do wrong.
struct Mischief {
  bool mute = false;              // takes frames, answers none
  bool wrong_proof = false;       // of HELLO
  bool deaf_to_hello2 = false;    // refuses our proof
  bool another_node = false;      // says another node id, with a good proof
  bool full = false;              // answers FULL
  std::optional<Outcome> answer;  // of puts, instead of doing anything
  bool lose_next_put = false;     // takes it, does it, and loses the link before the answer
  bool never_answer_puts = false;
  bool garbage = false;  // replies to what was not asked
  FenceWord fence_mode = FenceWord::mr;
  Length max_read{1u << 30};
};

struct FakeNodeSeen {
  std::uint64_t hellos = 0;
  std::uint64_t pulls = 0;
  std::uint64_t allocs = 0;
  std::uint64_t seals = 0;
  std::uint64_t aborts = 0;
  std::uint64_t removes = 0;
  std::vector<StaleSeenRequest> stale;
  std::vector<KeyHash> touched;
  std::vector<Instant> touch_times;
};

// A value in the arena and its capability.
struct Stored {
  Descriptor descriptor;
  Bytes bytes;  // of the descriptor
  Bytes tag;    // empty in development mode
};

class FakeNode {
 public:
  struct Options {
    NodeId id{1};
    std::string tenant = "t1";
    const Keyring* keys = nullptr;
    Length arena{1u << 20};
    std::string host = "n1";
    const Clock* clock = nullptr;
    std::function<std::unique_ptr<fabric::Domain>()> open_domain;
    std::string provider = "sim";
    std::size_t rails = 1;
    std::uint64_t seed = 1;
    std::uint64_t free_bytes = std::uint64_t{1} << 40;
  };
  FakeNode(Options options, Transport& transport, sim::SimValkey& valkey);
  ~FakeNode();
  FakeNode(const FakeNode&) = delete;
  FakeNode& operator=(const FakeNode&) = delete;

  bool step();
  NodeId id() const { return options_.id; }
  Incarnation incarnation() const { return incarnation_; }
  NodeRecord record() const;
  const fabric::Address& target(std::size_t rail) const { return targets_[rail]->address(); }
  void announce();
  // Where the client that greeted last can be pulled from.
  fabric::Address client_target() const { return client_target_.value(); }

  Stored store(const Bytes& key, std::span<const std::byte> payload, Version version);
  Stored sign(const Bytes& key, Descriptor descriptor) const;
  void write(const Bytes& key, const Stored& stored);  // into the directory, both halves
  Stored publish(const Bytes& key, std::span<const std::byte> payload, Version version);
  // Header and payload as they stand in the arena.
  std::span<std::byte> slot(const Descriptor& descriptor);

  // Closes the registrations and fills the arena with something else under fresh keys.
  void rotate();
  // Only closes and opens the endpoints, as a fence of mode `endpoint` does.
  void fence();
  // As after a crash: another incarnation, endpoints and port; `announce`: its record says so.
  void restart(bool announce);
  void drop_links() { links_.clear(); }

  Mischief mischief;
  FakeNodeSeen seen;
  bool announcing = true;

 private:
  struct Peer {
    std::unique_ptr<Link> link;
    HelloRequest hello;
    HelloReply reply;
    bool proven = false;
  };
  void open();
  void register_arena();
  bool step_peer(Peer& peer);
  void serve(Peer& peer, const Frame& frame);
  void on_hello(Peer& peer, const Frame& frame);
  void on_pull(Peer& peer, const Frame& frame);
  void on_alloc(Peer& peer, const Frame& frame);
  void on_seal(Peer& peer, const Frame& frame);
  void on_remove(Peer& peer, const Frame& frame);
  void finish_put(const Bytes& key, std::uint64_t slot, Length length, Crc32c crc, PutMode mode,
                  Version expected, const PutId& put_id,
                  const std::function<void(PutReply)>& reply);
  std::uint64_t reserve(Length length);
  void answer(Peer& peer, const Frame& to, Bytes body);
  void answer_later(const HelloRequest& who, const Frame& to, Bytes body);
  std::uint64_t draw();

  const Options options_;
  Transport& transport_;
  sim::SimValkey& valkey_;
  Prng prng_;
  Incarnation incarnation_;
  ArenaGen gen_{1};
  std::uint32_t uid_ = 100;
  std::uint16_t last_port_ = 0;
  memory::Mapping arena_;
  std::uint64_t used_ = 4096;
  std::unique_ptr<Directory> directory_;
  std::vector<std::unique_ptr<fabric::Domain>> domains_;
  std::vector<std::unique_ptr<fabric::Registration>> registrations_;
  std::map<std::uint64_t, std::pair<std::unique_ptr<fabric::Registration>, AllocRequest>> grants_;
  std::vector<std::unique_ptr<fabric::TargetEndpoint>> targets_;
  std::unique_ptr<transfer::Engine> puller_;
  std::unique_ptr<LinkListener> listener_;
  std::vector<std::unique_ptr<Peer>> links_;
  std::optional<fabric::Address> client_target_;
  std::map<PutId, PutReply> outcomes_;
  Instant announced_;
  bool announced_once_ = false;
};

}  // namespace farlift::kv::client::testing
