#include "kvcache/client/testing/world.h"

#include "core/base/assert.h"
#include "core/fabric/soft/soft.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace farlift::kv::client::testing {

Bytes pattern(std::size_t length, std::uint64_t seed) {
  Bytes bytes(length);
  Prng prng(seed + 1);
  for (std::size_t at = 0; at < length; at += 8) {
    const std::uint64_t word = prng.next();
    for (std::size_t i = at; i < std::min(length, at + 8); ++i) {
      bytes[i] = static_cast<std::byte>(word >> (8 * (i - at)));
    }
  }
  return bytes;
}

Keyring ring_of(std::uint32_t id, std::uint8_t fill) {
  Keyring ring;
  const Bytes secret(kSecretBytes, std::byte{fill});
  ASSERT(ring.add(KeyId(id), secret).ok());
  return ring;
}

World::World(WorldOptions opts)
    : options(std::move(opts)),
      keys(options.development ? Keyring::development() : ring_of(1, 0x11)),
      memory(memory::Mapping::create(Length(options.landing), {.huge_pages = false}).value()),
      prng_(options.seed) {
  manual.advance(std::chrono::hours(1));
  fabric::sim::SimOptions fabric = options.fabric;
  fabric.seed = options.seed;
  network = std::make_unique<fabric::sim::SimNetwork>(manual, fabric);
  sim::SimLinksOptions link_options;
  link_options.seed = options.seed;
  links = std::make_unique<sim::SimLinks>(clock(), link_options);
  sim::SimValkeyOptions valkey_options;
  valkey_options.seed = options.seed;
  valkey = std::make_unique<sim::SimValkey>(clock(), valkey_options);
  for (std::size_t i = 0; i < options.nodes; ++i) {
    FakeNode::Options node;
    node.id = NodeId(i + 1);
    node.keys = &keys;
    node.arena = options.arena;
    node.host = "n" + std::to_string(i + 1);
    node.clock = &clock();
    node.rails = options.rails;
    node.seed = options.seed * 100 + i;
    node.provider = options.soft ? "soft" : "sim";
    node.open_domain = [this, host = node.host] { return open_domain(host); };
    node_transports.push_back(links->open_transport(node.host));
    nodes.push_back(std::make_unique<FakeNode>(node, *node_transports.back(), *valkey));
    nodes.back()->announce();
  }
  open_client();
}

World::~World() {
  landing.reset();
  client.reset();
  nodes.clear();
}

void World::open_client() {
  landing.reset();
  client.reset();
  client_transport = links->open_transport("c1");
  client_directory = valkey->open_directory("c1");
  environment =
      std::make_unique<Environment>(Environment{clock(),
                                                [this](std::span<std::byte> out) {
                                                  for (auto& b : out)
                                                    b = static_cast<std::byte>(prng_.next());
                                                },
                                                *client_directory,
                                                *client_transport,
                                                {}});
  for (std::size_t i = 0; i < options.rails; ++i) {
    Rail rail;
    rail.provider = options.soft ? "soft" : "sim";
    rail.open_domain = [this]() -> Result<std::unique_ptr<fabric::Domain>> {
      return open_domain("c1");
    };
    environment->rails.push_back(std::move(rail));
  }
  ClientOptions client_options;
  client_options.tenant = "t1";
  client_options.keys = options.development ? Keyring::development() : ring_of(1, 0x11);
  if (options.tune) options.tune(client_options);
  std::string why;
  auto made = Client::create(*environment, std::move(client_options), &why);
  ASSERT(made.ok());
  client = std::move(made).value();
  landing = client->register_memory(memory.bytes()).value();
}

std::unique_ptr<fabric::Domain> World::open_domain(const std::string& name) {
  if (!options.soft) return network->open_domain(name);
  return fabric::soft::open_domain({}, system).value();
}

const Clock& World::clock() const {
  return options.soft ? static_cast<const Clock&>(system) : manual;
}

void World::step() {
  bool moved = client->step();
  for (auto& one : nodes) moved = one->step() || moved;
  if (moved) return;
  if (options.soft) {
    std::this_thread::yield();
    return;
  }
  if (network->step()) return;
  Instant next = std::min({links->next_due(), valkey->next_due(), client->next_deadline()});
  next = std::min(next, clock().now() + std::chrono::milliseconds(100));
  manual.advance(next > clock().now() ? next - clock().now() : std::chrono::microseconds(100));
}

bool World::run(const std::function<bool()>& so, Duration limit) {
  const Instant until = clock().now() + limit;
  while (!so()) {
    if (clock().now() > until) return false;
    step();
  }
  return true;
}

void World::pass(Duration time) {
  const Instant until = clock().now() + time;
  while (clock().now() < until) step();
}

std::uint64_t World::counter(const std::string& name) const {
  for (const auto& [own, value] : client->counters()) {
    if (own == name) return value;
  }
  return 0;
}

GetResult World::get(const Bytes& key, std::span<std::byte> into, ReadMode mode,
                     std::uint32_t min_rev) {
  return mget({GetRequest{key, into, mode, min_rev}}).at(0);
}

std::vector<GetResult> World::mget(std::vector<GetRequest> requests) {
  std::optional<std::vector<GetResult>> results;
  client->mget(std::move(requests), [&](std::vector<GetResult> r) { results = std::move(r); });
  ASSERT(run([&] { return results.has_value(); }));
  return *results;
}

PutResult World::put(const Bytes& key, std::span<const std::byte> payload, PutMode mode,
                     Version expected, bool push) {
  // The upper half of the landing memory is where puts come from.
  const auto source = landing_bytes().subspan(landing_bytes().size() / 2, payload.size());
  std::copy(payload.begin(), payload.end(), source.begin());
  std::optional<PutResult> result;
  client->put(PutRequest{key, source, mode, expected, push},
              [&](PutResult r) { result = std::move(r); });
  ASSERT(run([&] { return result.has_value(); }));
  return *result;
}

Outcome World::remove(const Bytes& key, std::optional<Version> version) {
  std::optional<Outcome> outcome;
  client->remove(key, version, [&](Client::Removed r) { outcome = r.outcome; });
  ASSERT(run([&] { return outcome.has_value(); }));
  return *outcome;
}

std::vector<bool> World::exists(std::vector<Bytes> wanted) {
  std::optional<std::vector<bool>> found;
  client->exists(std::move(wanted), [&](std::vector<bool> f) { found = std::move(f); });
  ASSERT(run([&] { return found.has_value(); }));
  return *found;
}

}  // namespace farlift::kv::client::testing
