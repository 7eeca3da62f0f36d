// World: one client, some FakeNodes, a model of Valkey and of the network, for tests of the client.
// Simulated: one thread, a ManualClock, and the fabric of core/fabric/sim. Real: the same control
// plane under the system's clock, and the fabric of core/fabric/soft.
//
// Threads: the test's (soft has its own inside). Errors: ASSERTs.
#pragma once

#include "core/base/prng.h"
#include "core/fabric/sim/sim.h"
#include "kvcache/client/client.h"
#include "kvcache/client/testing/fake_node.h"
#include "kvcache/control/sim/sim_links.h"
#include "kvcache/control/sim/sim_valkey.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace farlift::kv::client::testing {

inline Bytes bytes_of_text(std::string_view text) {
  Bytes bytes(text.size());
  std::transform(text.begin(), text.end(), bytes.begin(),
                 [](char c) { return static_cast<std::byte>(c); });
  return bytes;
}
inline Bytes key_of(std::uint64_t number) { return bytes_of_text("key-" + std::to_string(number)); }
// Bytes that depend on their place, so that a piece that lands elsewhere shows.
Bytes pattern(std::size_t length, std::uint64_t seed);
Keyring ring_of(std::uint32_t id, std::uint8_t fill);

struct WorldOptions {
  std::uint64_t seed = 1;
  bool soft = false;
  bool development = false;
  std::size_t nodes = 1;
  std::size_t rails = 1;
  Length arena{1u << 20};
  std::size_t landing = 1u << 20;
  fabric::sim::SimOptions fabric{};
  std::function<void(ClientOptions&)> tune{};
};

class World {
 public:
  explicit World(WorldOptions options = {});
  ~World();

  const Clock& clock() const;
  void step();
  // Runs until it is so; false: the world stood still, or `limit` of its time passed.
  bool run(const std::function<bool()>& so, Duration limit = std::chrono::seconds(60));
  void pass(Duration time);  // lets time go by, and what is due happen

  FakeNode& node(std::size_t i = 0) { return *nodes[i]; }
  std::span<std::byte> dest(std::size_t length, std::size_t at = 0) const {
    return landing_bytes().subspan(at, length);
  }
  std::span<std::byte> landing_bytes() const { return landing->bytes(); }
  std::uint64_t counter(const std::string& name) const;
  // Reads that reached the fabric from the client.
  std::uint64_t posts() const { return counter("reads_posted"); }

  GetResult get(const Bytes& key, std::span<std::byte> into, ReadMode mode = ReadMode::framed,
                std::uint32_t min_rev = 0);
  std::vector<GetResult> mget(std::vector<GetRequest> requests);
  PutResult put(const Bytes& key, std::span<const std::byte> payload,
                PutMode mode = PutMode::if_absent, Version expected = {}, bool push = false);
  Outcome remove(const Bytes& key, std::optional<Version> version = {});
  std::vector<bool> exists(std::vector<Bytes> keys);
  void open_client();

  const WorldOptions options;
  ManualClock manual;
  SystemClock system;
  Keyring keys;  // the nodes'
  std::unique_ptr<fabric::sim::SimNetwork> network;
  std::unique_ptr<sim::SimLinks> links;
  std::unique_ptr<sim::SimValkey> valkey;
  std::unique_ptr<Transport> node_transport;
  std::vector<std::unique_ptr<Transport>> node_transports;
  std::vector<std::unique_ptr<FakeNode>> nodes;
  std::unique_ptr<Transport> client_transport;
  std::unique_ptr<Directory> client_directory;
  std::unique_ptr<Environment> environment;
  memory::Mapping memory;
  std::unique_ptr<Client> client;
  std::unique_ptr<LandingMemory> landing;

 private:
  std::unique_ptr<fabric::Domain> open_domain(const std::string& name);
  Prng prng_;
};

}  // namespace farlift::kv::client::testing
