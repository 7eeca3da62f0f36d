#include "kvcache/node/testing/world.h"

#include "core/base/assert.h"
#include "core/fabric/soft/soft.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace farlift::kv::node::testing {

using namespace std::chrono_literals;

Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

Bytes pattern(std::size_t size, std::uint64_t seed) {
  Bytes bytes(size);
  Prng prng(seed);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.next() >> 32 & 0xFF);
  return bytes;
}

Keyring keyring_of(std::uint8_t fill, KeyId id) {
  Keyring ring;
  EXPECT_TRUE(ring.add(id, Bytes(kSecretBytes, std::byte{fill})).ok());
  return ring;
}

World::World(WorldOptions options)
    : network(clock, {.seed = options.seed,
                      .fence_mode = options.fence_mode,
                      .virtual_addressing = options.virtual_addressing,
                      .faults = options.fabric_faults}),
      links(clock, {.seed = options.seed, .faults = {}}),
      valkey(clock, {.seed = options.seed, .faults = {}}),
      prng(options.seed),
      with(std::move(options)) {
  clock.advance(1s);
}

World::~World() = default;

NodeOptions World::options(std::uint64_t id) const {
  NodeOptions options;
  options.id = NodeId(id);
  options.listen_ip = "n" + std::to_string(id);
  options.tenants.push_back({"t1", keyring_of(1), Length(4u << 20)});
  options.arena_size = Length(1u << 20);
  options.hash_threads = 0;
  options.self_test = false;
  return options;
}

Status World::try_start(NodeOptions options, std::string& why) {
  auto party = std::make_unique<Party>();
  party->name = options.listen_ip;
  party->transport = links.open_transport(party->name);
  party->directory = valkey.open_directory(party->name);
  std::vector<Rail> rails;
  for (std::size_t rail = 0; rail < with.rails; ++rail) {
    Rail one;
    one.provider = with.provider;
    one.open_domain = [this, rail,
                       name = party->name]() -> Result<std::unique_ptr<fabric::Domain>> {
      auto domain = open_domain(name);
      return with.wrap ? with.wrap(std::move(domain), rail) : std::move(domain);
    };
    rails.push_back(std::move(one));
  }
  const auto random = [this](std::span<std::byte> out) {
    for (std::byte& b : out) b = static_cast<std::byte>(prng.next() >> 24 & 0xFF);
  };
  party->environment = std::make_unique<Environment>(
      Environment{clock, random, *party->directory, *party->transport, std::move(rails)});
  const NodeId id = options.id;
  TRY_ASSIGN(party->node, Node::create(*party->environment, std::move(options), &why));
  parties_[id] = std::move(party);
  return {};
}

Node& World::start(NodeOptions options, bool wait) {
  const NodeId id = options.id;
  std::string why;
  const Status started = try_start(std::move(options), why);
  EXPECT_TRUE(started.ok()) << why;
  ASSERT(started.ok());
  Node& node = *parties_.at(id)->node;
  const bool up = !wait || until([&] { return probe(node).counter("directory_up") == 1; });
  EXPECT_TRUE(up);
  return node;
}

void World::crash(NodeId id) {
  const auto at = parties_.find(id);
  const std::string name = at->second->name;
  links.crash(name);
  parties_.erase(at);
}

void World::turn() {
  bool any = valkey.step();
  for (const auto& [id, party] : parties_) any = party->node->step() || any;
  for (const auto& other : others) any = other() || any;
  any = network.moving() > 0 && network.step() ? true : any;
  if (any) return;
  if (in_real_time()) {
    const Instant before = real.now();
    // tidy: allow sleep sockets move bytes meanwhile
    std::this_thread::sleep_for(50us);
    return clock.advance(real.now() - before);
  }
  Instant next = std::min(links.next_due(), valkey.next_due());
  for (const auto& [id, party] : parties_) next = std::min(next, party->node->next_deadline());
  next = std::min(next, clock.now() + 10ms);
  clock.advance(std::max<Duration>(next - clock.now(), 1us));
}

bool World::until(const std::function<bool()>& condition, Duration limit) {
  const Instant end = clock.now() + limit;
  while (!condition()) {
    if (clock.now() >= end) return false;
    turn();
  }
  return true;
}

void World::pass(Duration time) {
  const Instant end = clock.now() + time;
  (void)until([&] { return clock.now() >= end; }, time * 2);
}

std::unique_ptr<fabric::Domain> World::open_domain(const std::string& name) {
  if (with.open) return with.open(name);
  if (!with.soft) return network.open_domain(name);
  auto opened = fabric::soft::open_domain({}, real);
  EXPECT_TRUE(opened.ok());
  return std::move(opened).value();
}

std::optional<Pair> World::stored(const std::string& tenant, const Bytes& key) {
  const auto directory = valkey.open_directory("reader");
  std::optional<Pair> found;
  bool done = false;
  directory->resolve(tenant, {key}, [&](std::vector<Result<Pair>> pairs) {
    if (pairs.size() == 1 && pairs[0].ok()) found = *pairs[0];
    done = true;
  });
  EXPECT_TRUE(until([&] {
    directory->step();
    return done;
  }));
  return found;
}

std::optional<Descriptor> World::stored_descriptor(const std::string& tenant, const Bytes& key) {
  const auto pair = stored(tenant, key);
  if (!pair || !pair->descriptor) return std::nullopt;
  const auto descriptor = decode_descriptor(*pair->descriptor);
  return descriptor.ok() ? std::optional(*descriptor) : std::nullopt;
}

RawClient::RawClient(World& world, std::string name, std::string tenant, Keyring keys,
                     std::size_t source_bytes)
    : world_(world),
      name_(std::move(name)),
      tenant_(std::move(tenant)),
      keys_(std::move(keys)),
      transport_(world.links.open_transport(name_)),
      domain_(world.open_domain(name_)),
      source_(source_bytes) {
  for (std::size_t rail = 0; rail < world.with.rails; ++rail) {
    registrations_.push_back(
        domain_->register_memory({source_, -1, 0}, fabric::Access::remote_read).value());
    targets_.push_back(domain_->open_target({}).value());
  }
  fabric::InitiatorOptions patient;
  patient.connect_deadline = 60s;
  initiator_ = domain_->open_initiator(patient).value();
}

RawClient::~RawClient() = default;

Outcome RawClient::hello(std::uint64_t node) {
  Node& target = world_.node(node);
  auto link = transport_->connect(world_.party(NodeId(node)).name, target.port());
  EXPECT_TRUE(link.ok());
  link_ = std::move(link).value();
  replies_.clear();
  hello_ = HelloRequest();
  hello_.tenant = tenant_;
  hello_.key_id = keys_.signing_id();
  for (std::byte& b : hello_.nonce) b = static_cast<std::byte>(world_.prng.below(256));
  for (std::byte& b : hello_.client_id) b = static_cast<std::byte>(world_.prng.below(256));
  for (const auto& one : targets_) {
    hello_.rails.push_back({world_.with.provider,
                            Bytes(one->address().bytes().begin(), one->address().bytes().end())});
  }
  const auto frame = call(FrameType::hello, encode(hello_));
  if (!frame) return Outcome::unreachable;
  const auto reply = decode_hello_reply(frame->body);
  EXPECT_TRUE(reply.ok());
  welcome_ = *reply;
  if (welcome_.outcome == Outcome::ok && !keys_.is_development()) {
    EXPECT_EQ(welcome_.proof, hello_proof(keys_.signing(), 'n', hello_, welcome_));
  }
  return welcome_.outcome;
}

Outcome RawClient::hello2(std::optional<Tag> proof) {
  Hello2Request request;
  if (proof) {
    request.proof = *proof;
  } else if (!keys_.is_development()) {
    request.proof = hello_proof(keys_.signing(), 'c', hello_, welcome_);
  }
  return simple(FrameType::hello2, encode(request));
}

Outcome RawClient::greet(std::uint64_t node) {
  const Outcome outcome = hello(node);
  return outcome == Outcome::ok ? hello2() : outcome;
}

std::uint64_t RawClient::send(FrameType type, Bytes body) {
  const std::uint64_t id = next_request_++;
  if (link_ != nullptr) (void)link_->send({type, false, id, std::move(body)});
  return id;
}

std::optional<Frame> RawClient::poll(std::uint64_t request) {
  while (link_ != nullptr) {
    auto frame = link_->receive();
    if (!frame.ok()) {
      if (frame.code() != Errc::again) link_.reset();
      break;
    }
    EXPECT_TRUE(frame->reply);
    replies_[frame->req_id] = *frame;
  }
  const auto at = replies_.find(request);
  if (at == replies_.end()) return std::nullopt;
  return replies_.extract(at).mapped();
}

std::optional<Frame> RawClient::receive(std::uint64_t request, Duration limit) {
  std::optional<Frame> frame;
  (void)world_.until(
      [&] {
        frame = poll(request);
        return frame.has_value() || link_ == nullptr;
      },
      limit);
  return frame;
}

std::optional<Frame> RawClient::call(FrameType type, Bytes body, Duration limit) {
  return receive(send(type, std::move(body)), limit);
}

PutId RawClient::new_put_id() {
  PutId id;
  for (std::byte& b : id) b = static_cast<std::byte>(world_.prng.below(256));
  return id;
}

PutPullRequest RawClient::pull_request(const Bytes& key, const Bytes& value, PutMode mode,
                                       Version expected) {
  ASSERT(value.size() <= source_.size());
  std::copy(value.begin(), value.end(), source_.begin());
  PutPullRequest request;
  request.put_id = new_put_id();
  request.key = key;
  request.length = Length(value.size());
  request.crc = digest::crc32c(value);
  request.source = registrations_[0]->addr();
  for (const auto& registration : registrations_) {
    request.source_rkeys.push_back(registration->key());
  }
  request.mode = mode;
  request.expected = expected;
  return request;
}

PutReply RawClient::put(const PutPullRequest& request) {
  const auto frame = call(FrameType::put_pull, encode(request));
  PutReply lost;
  lost.outcome = Outcome::unreachable;
  if (!frame) return lost;
  const auto reply = decode_put_reply(frame->body);
  EXPECT_TRUE(reply.ok());
  return *reply;
}

PutReply RawClient::put(const Bytes& key, const Bytes& value, PutMode mode, Version expected) {
  return put(pull_request(key, value, mode, expected));
}

AllocReply RawClient::alloc(const Bytes& key, std::size_t length, const PutId& id) {
  const auto frame = call(FrameType::alloc, encode(AllocRequest{id, key, Length(length)}));
  EXPECT_TRUE(frame.has_value());
  const auto reply = decode_alloc_reply(frame->body);
  EXPECT_TRUE(reply.ok());
  return *reply;
}

PutReply RawClient::seal(const AllocReply& grant, const PutId& id, Crc32c crc, PutMode mode,
                         Version expected) {
  const auto frame =
      call(FrameType::seal, encode(SealRequest{id, grant.slot_id, crc, mode, expected}));
  EXPECT_TRUE(frame.has_value());
  const auto reply = decode_put_reply(frame->body);
  EXPECT_TRUE(reply.ok());
  return *reply;
}

Outcome RawClient::simple(FrameType type, Bytes body) {
  const auto frame = call(type, std::move(body));
  if (!frame) return Outcome::unreachable;
  const auto reply = decode_outcome(frame->body);
  EXPECT_TRUE(reply.ok());
  return reply->outcome;
}

Outcome RawClient::remove(const Bytes& key, Version version) {
  return simple(FrameType::remove, encode(RemoveRequest{key, version}));
}

Status RawClient::move(fabric::OpKind kind, RKey key, RemoteAddr addr, std::span<std::byte> local) {
  TRY_ASSIGN(const fabric::Address peer, fabric::Address::from_bytes(welcome_.rails[0].address));
  TRY_ASSIGN(const fabric::PeerId id, initiator_->add_peer(peer));
  fabric::Operation operation;
  operation.kind = kind;
  operation.peer = id;
  operation.key = key;
  operation.addr = addr;
  operation.local = local;
  std::unique_ptr<fabric::Registration> lent;
  if (domain_->info().local_registration_required) {
    TRY_ASSIGN(lent, domain_->register_memory({local, -1, 0}, fabric::Access::local));
    operation.local_registration = lent.get();
  }
  TRY(initiator_->post(operation));
  fabric::Completion completion;
  const bool ended = world_.until([&] { return initiator_->poll(std::span(&completion, 1)) == 1; });
  initiator_->remove_peer(id);
  if (!ended) return Error::make(Errc::timeout, "raw operation");
  return completion.status;
}

Status RawClient::write(const AllocReply& grant, const Bytes& value, std::size_t at) {
  Bytes copy = value;
  return move(fabric::OpKind::write, grant.grant_rkeys[0], grant.payload + Offset(at), copy);
}

Result<Bytes> RawClient::read(const Descriptor& descriptor, bool with_header) {
  Bytes landed(descriptor.length.raw() + (with_header ? kHeaderBytes : 0));
  const RemoteAddr from = descriptor.location.addr + Offset(with_header ? 0 : kHeaderBytes);
  if (landed.empty()) return landed;
  TRY(move(fabric::OpKind::read, descriptor.rkeys[0], from, landed));
  return landed;
}

Result<Bytes> RawClient::read(const Bytes& descriptor) {
  TRY_ASSIGN(const Descriptor decoded, decode_descriptor(descriptor));
  return read(decoded);
}

std::optional<Bytes> RawClient::get(const Bytes& key) {
  const auto pair = world_.stored(tenant_, key);
  if (!pair) return std::nullopt;
  const Verified verified = verify_pair(keys_, tenant_, key, pair->descriptor, pair->tag);
  if (verified.outcome != Outcome::ok) return std::nullopt;
  if (verified.descriptor.location.incarnation != welcome_.incarnation) return std::nullopt;
  const auto landed = read(verified.descriptor, true);
  if (!landed.ok()) return std::nullopt;
  const auto header = decode_header(std::span(*landed).first<kHeaderBytes>());
  Bytes value(landed->begin() + kHeaderBytes, landed->end());
  const bool right = header && header->version == verified.descriptor.version &&
                     header->key_hash == verified.descriptor.key_hash &&
                     header->crc == verified.descriptor.crc &&
                     header->length == verified.descriptor.length &&
                     digest::crc32c(value) == verified.descriptor.crc;
  return right ? std::optional(std::move(value)) : std::nullopt;
}

}  // namespace farlift::kv::node::testing
