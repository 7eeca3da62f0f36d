#include "tests/fabric/rig.h"

#include "core/base/prng.h"
#include "kvcache/wire/names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace farlift::kv::rig {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 30s;  // these tests are not about limits

Keyring ring() {
  Keyring made;
  EXPECT_TRUE(made.add(KeyId(1), Bytes(kSecretBytes, std::byte{0x11})).ok());
  return made;
}

std::unique_ptr<Environment> environment_of(
    const lane::Lane& lane, Directory& directory, Transport& transport,
    const std::function<Result<std::unique_ptr<fabric::Domain>>()>& open) {
  auto made = std::make_unique<Environment>(
      Environment{lane::clock(),
                  [](std::span<std::byte> out) { secure_random(out); },
                  directory,
                  transport,
                  {}});
  Rail rail;
  rail.provider = lane.provider;
  rail.open_domain = open;
  made->rails.push_back(std::move(rail));
  return made;
}

}  // namespace

Bytes key_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

Bytes pattern(std::size_t length, std::uint64_t seed) {
  Bytes bytes(length);
  Prng prng(seed + 1);
  for (std::size_t at = 0; at < length; at += 8) {
    const std::uint64_t word = prng.next();
    for (std::size_t i = at; i < std::min(length, at + 8); ++i)
      bytes[i] = static_cast<std::byte>(word >> (8 * (i - at)));
  }
  return bytes;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

Rig::Rig(RigOptions opts)
    : options(std::move(opts)), links(lane::clock(), {}), valkey(lane::clock(), {}) {
  transport_ = links.open_transport("127.0.0.1");
  directory_ = valkey.open_directory("n1");
  environment_ = environment_of(options.lane, *directory_, *transport_, options.lane.node);
  NodeOptions node;
  node.tenants.push_back({"t1", ring(), Length(options.arena.raw() * options.arenas)});
  node.arena_size = options.arena;
  node.hash_threads = 0;
  node.grace = Duration(0);
  node.operation_limit = kPatience;
  node.high_percent = node.low_percent = 100;  // nothing is evicted behind the test's back
  if (options.node) options.node(node);
  std::string why;
  auto made = Node::create(*environment_, std::move(node), &why);
  EXPECT_TRUE(made.ok()) << why;
  node_ = std::move(made).value();
  EXPECT_TRUE(run([&] { return valkey.state().get(node_name(NodeId(1))).has_value(); }));
  for (std::size_t i = 0; i < options.clients; ++i)
    users_.push_back(std::make_unique<User>(*this, "c" + std::to_string(i + 1)));
}

Rig::~Rig() {
  users_.clear();
  node_.reset();
}

void Rig::step() {
  bool moved = node_->step();
  for (const auto& user : users_) moved = user->step() || moved;
  // tidy: allow sleep sockets and cards move bytes meanwhile
  if (!moved) std::this_thread::sleep_for(50us);
}

bool Rig::run(const std::function<bool()>& so, Duration limit) {
  const Instant until = lane::clock().now() + limit;
  while (!so()) {
    if (lane::clock().now() > until) return false;
    step();
  }
  return true;
}

bool Rig::rotate() {
  std::vector<ArenaGen> before;
  for (const auto& arena : see().arenas()) before.push_back(arena.gen);
  node_->rotate_all();
  // To where clients find the room: the node's record says so a moment later.
  const auto told = [&] {
    const auto found = valkey.state().get(node_name(node_->id()));
    if (!found) return false;
    const auto record =
        decode_node_record({reinterpret_cast<const char*>(found->data()), found->size()});
    return record.ok() && record->free_bytes > 0;
  };
  const bool ended = run([&] { return see().counter("arenas_rotating") == 0; }) && run(told);
  const auto after = see().arenas();
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (after[i].state != node::ArenaState::active || after[i].gen == before[i]) return false;
  }
  return ended;
}

std::optional<Descriptor> Rig::stored(const Bytes& key) {
  const auto found = valkey.state().get(descriptor_name("t1", key));
  if (!found) return std::nullopt;
  const auto decoded = decode_descriptor(*found);
  return decoded.ok() ? std::optional(*decoded) : std::nullopt;
}

User::User(Rig& rig, const std::string& name)
    : rig_(rig),
      memory_(memory::Mapping::create(Length(rig.options.memory), {.huge_pages = false}).value()),
      transport_(rig.links.open_transport(name)),
      directory_(rig.valkey.open_directory(name)),
      environment_(
          environment_of(rig.options.lane, *directory_, *transport_, rig.options.lane.client)) {
  ClientOptions client;
  client.tenant = "t1";
  client.keys = ring();
  client.operation_limit = kPatience;
  client.control_timeout = kPatience;
  if (rig.options.client) rig.options.client(client);
  std::string why;
  auto made = Client::create(*environment_, std::move(client), &why);
  EXPECT_TRUE(made.ok()) << why;
  client_ = std::move(made).value();
  landing_ = client_->register_memory(memory_.bytes()).value();
}

User::~User() {
  landing_.reset();
  client_.reset();
}

PutResult User::put(const Bytes& key, const Bytes& value, PutMode mode, bool push) {
  const auto source = memory_.bytes().last(memory_.bytes().size() / 2).first(value.size());
  std::copy(value.begin(), value.end(), source.begin());
  std::optional<PutResult> result;
  client_->put({key, source, mode, {}, push}, [&](PutResult r) { result = std::move(r); });
  EXPECT_TRUE(rig_.run([&] { return result.has_value(); }));
  return result.value_or(PutResult{});
}

void User::begin_get(const Bytes& key, std::size_t cap, ReadMode mode) {
  late.reset();
  client_->get({key, dest(cap), mode, 0}, [this](const GetResult& r) { late = r; });
}

GetResult User::get(const Bytes& key, std::size_t cap, ReadMode mode) {
  begin_get(key, cap, mode);
  EXPECT_TRUE(rig_.run([&] { return late.has_value(); }));
  return late.value_or(GetResult{});
}

Outcome User::remove(const Bytes& key) {
  std::optional<Outcome> outcome;
  client_->remove(key, std::nullopt, [&](Client::Removed r) { outcome = r.outcome; });
  EXPECT_TRUE(rig_.run([&] { return outcome.has_value(); }));
  return outcome.value_or(Outcome::timeout);
}

std::uint64_t User::counter(std::string_view name) const {
  for (const auto& [own, value] : client_->counters()) {
    if (own == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

}  // namespace farlift::kv::rig
