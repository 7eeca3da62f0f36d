// A world of one or more nodes, a model of Valkey, simulated links and a simulated fabric, all on
// one thread and one manual clock; and a client that speaks frames by hand.
//
// Threads: one. Errors: expectations of GoogleTest where nothing else is said.
#pragma once

#include "core/base/prng.h"
#include "core/digest/crc32c.h"
#include "core/fabric/sim/sim.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"
#include "kvcache/node/node.h"
#include "kvcache/node/node_probe.h"
#include "kvcache/wire/frames.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farlift::kv::node::testing {

Bytes bytes_of(std::string_view text);
Bytes pattern(std::size_t size, std::uint64_t seed);
Keyring keyring_of(std::uint8_t fill, KeyId id = KeyId(1));

// What a test makes of the domains a node opens: it may wrap them.
using WrapDomain =
    std::function<std::unique_ptr<fabric::Domain>(std::unique_ptr<fabric::Domain>, std::size_t)>;

struct WorldOptions {
  std::uint64_t seed = 1;
  fabric::FenceMode fence_mode = fabric::FenceMode::mr;
  bool virtual_addressing = false;
  std::size_t rails = 1;
  fabric::sim::SimFaults fabric_faults{};
  WrapDomain wrap{};
  bool soft = false;  // the software provider: real bytes, and the clock goes with real time
  // A real fabric of the test's choice, by the name of who opens it ("n1", "c1"); the clock goes
  // with real time.
  std::function<std::unique_ptr<fabric::Domain>(const std::string& party)> open{};
  std::string provider = "sim";  // as it is called in HELLO
};

class World;

// One node of a world, which may end and come back as another incarnation.
struct Party {
  std::string name;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Directory> directory;
  std::unique_ptr<Environment> environment;
  std::unique_ptr<Node> node;
};

class World {
 public:
  explicit World(WorldOptions options = {});
  ~World();

  // Small arenas, short times, tenant t1 with key 1.
  NodeOptions options(std::uint64_t id = 1) const;
  // Waits until the node has announced itself, unless `wait` is false.
  Node& start(NodeOptions options, bool wait = true);
  Status try_start(NodeOptions options, std::string& why);
  void crash(NodeId id);  // the process is gone; what it had pinned too
  Party& party(NodeId id) { return *parties_.at(id); }
  Node& node(std::uint64_t id = 1) { return *parties_.at(NodeId(id))->node; }
  NodeProbe& see(std::uint64_t id = 1) { return probe(node(id)); }

  // One round of everybody; moves the clock when nothing was to do.
  void turn();
  // False when the simulated time ran out.
  bool until(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(120));
  void pass(Duration time);

  std::unique_ptr<fabric::Domain> open_domain(const std::string& name);
  bool in_real_time() const { return with.soft || with.open != nullptr; }

  std::optional<Pair> stored(const std::string& tenant, const Bytes& key);
  std::optional<Descriptor> stored_descriptor(const std::string& tenant, const Bytes& key);

  ManualClock clock;
  SystemClock real;
  fabric::sim::SimNetwork network;
  sim::SimLinks links;
  sim::SimValkey valkey;
  Prng prng;
  WorldOptions with;
  std::vector<std::function<bool()>> others;  // stepped in every turn

 private:
  std::map<NodeId, std::unique_ptr<Party>> parties_;
};

// A client by hand. Everything it does runs the world until it has its answer.
class RawClient {
 public:
  RawClient(World& world, std::string name, std::string tenant = "t1", Keyring keys = keyring_of(1),
            std::size_t source_bytes = std::size_t{2} << 20);
  ~RawClient();

  // HELLO and HELLO2; the outcome of the first that was not ok.
  Outcome greet(std::uint64_t node = 1);
  Outcome hello(std::uint64_t node = 1);          // the first half
  Outcome hello2(std::optional<Tag> proof = {});  // the second
  bool connected() const { return link_ != nullptr && !link_->lost(); }
  void disconnect() { link_.reset(); }
  const HelloReply& welcome() const { return welcome_; }
  const HelloRequest& request() const { return hello_; }

  // nullopt: the link was lost, or nothing came within the limit.
  std::optional<Frame> call(FrameType type, Bytes body, Duration limit = std::chrono::seconds(60));
  std::uint64_t send(FrameType type, Bytes body);
  std::optional<Frame> receive(std::uint64_t request, Duration limit = std::chrono::seconds(60));
  std::optional<Frame> poll(std::uint64_t request);  // without moving the world

  PutPullRequest pull_request(const Bytes& key, const Bytes& value,
                              PutMode mode = PutMode::if_absent, Version expected = {});
  PutReply put(const Bytes& key, const Bytes& value, PutMode mode = PutMode::if_absent,
               Version expected = {});
  PutReply put(const PutPullRequest& request);
  AllocReply alloc(const Bytes& key, std::size_t length, const PutId& id);
  PutReply seal(const AllocReply& grant, const PutId& id, Crc32c crc,
                PutMode mode = PutMode::if_absent, Version expected = {});
  Outcome remove(const Bytes& key, Version version = {});
  Outcome simple(FrameType type, Bytes body);
  PutId new_put_id();

  Status write(const AllocReply& grant, const Bytes& value, std::size_t at = 0);
  // One-sided, by what the descriptor says; no checks but the fabric's.
  Result<Bytes> read(const Descriptor& descriptor, bool with_header = false);
  Result<Bytes> read(const Bytes& descriptor);
  Status move(fabric::OpKind kind, RKey key, RemoteAddr addr, std::span<std::byte> local);
  // What a get of a client comes to, without a cache: the value, or nothing.
  std::optional<Bytes> get(const Bytes& key);

  fabric::Domain& domain() { return *domain_; }
  fabric::TargetEndpoint& target(std::size_t rail = 0) { return *targets_[rail]; }
  std::span<std::byte> source() { return source_; }

 private:
  World& world_;
  std::string name_;
  std::string tenant_;
  Keyring keys_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<fabric::Domain> domain_;
  std::vector<std::byte> source_;
  std::vector<std::unique_ptr<fabric::Registration>> registrations_;
  std::vector<std::unique_ptr<fabric::TargetEndpoint>> targets_;
  std::unique_ptr<fabric::Initiator> initiator_;
  std::unique_ptr<Link> link_;
  HelloRequest hello_;
  HelloReply welcome_;
  std::map<std::uint64_t, Frame> replies_;
  std::uint64_t next_request_ = 1;
};

}  // namespace farlift::kv::node::testing
