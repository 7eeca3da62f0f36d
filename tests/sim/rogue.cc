#include "tests/sim/rogue.h"

#include "core/digest/crc32c.h"

#include <algorithm>
#include <array>

namespace farlift::kv::simulation {

using namespace std::chrono_literals;

namespace {
constexpr std::size_t kReadsMax = 8;
constexpr std::uint64_t kJunk = std::uint64_t{1} << 62;  // contexts of writes nobody waits for
}  // namespace

Rogue::Rogue(World& world, std::string name, std::string tenant)
    : world_(world),
      name_(std::move(name)),
      tenant_(std::move(tenant)),
      transport_(world.links().open_transport(name_)) {
  for (std::uint32_t rail = 0; rail < world.plan().rails; ++rail) {
    domains_.push_back(world.network().open_domain(name_));
    targets_.push_back(domains_.back()->open_target({}).value());
    initiators_.push_back(domains_.back()->open_initiator({}).value());
  }
}

Rogue::~Rogue() = default;

bool Rogue::step() {
  bool any = transport_->step();
  any = poll() || any;
  for (const auto& node : world_.nodes()) {
    Contact& contact = contacts_[node->id];
    if (contact.link == nullptr) {
      if (stopped_ || !node->alive() || world_.clock().now() < contact.again) continue;
      greet(*node, contact);
      any = true;
    } else {
      any = receive(*node, contact) || any;
    }
  }
  if (stopped_ || world_.clock().now() < due_) return any;
  due_ = world_.clock().now() + Duration(world_.prng().below(100'000'000));
  const auto& node = world_.nodes()[world_.prng().below(world_.nodes().size())];
  Contact& contact = contacts_[node->id];
  if (node->alive() && contact.ready && contact.life == node->life) act(*node, contact);
  return true;
}

void Rogue::greet(NodeParty& node, Contact& contact) {
  contact.again = world_.clock().now() + 300ms;
  auto link = transport_->connect(node.name, node.node->port());
  if (!link.ok()) return;
  contact.link = std::move(link).value();
  contact.ready = false;
  contact.life = node.life;
  contact.allocs.clear();
  contact.hello = HelloRequest();
  contact.hello.tenant = tenant_;
  const Keyring keys = world_.ring(tenant_);
  contact.hello.key_id = keys.signing_id();
  for (std::byte& b : contact.hello.nonce) b = static_cast<std::byte>(world_.prng().below(256));
  for (const auto& target : targets_) {
    const auto bytes = target->address().bytes();
    contact.hello.rails.push_back({"sim", Bytes(bytes.begin(), bytes.end())});
  }
  (void)contact.link->send({FrameType::hello, false, request_++, encode(contact.hello)});
}

bool Rogue::receive(NodeParty& /*node*/, Contact& contact) {
  bool any = false;
  for (;;) {
    const auto frame = contact.link->receive();
    if (!frame.ok()) {
      if (frame.code() == Errc::again) return any;
      contact.link.reset();
      contact.ready = false;
      return true;
    }
    any = true;
    answer(contact, *frame);
  }
}

void Rogue::answer(Contact& contact, const Frame& frame) {
  if (frame.type == FrameType::hello) {
    const auto reply = decode_hello_reply(frame.body);
    if (!reply.ok() || reply->outcome != Outcome::ok) return;
    contact.welcome = *reply;
    Hello2Request request;
    request.proof = hello_proof(world_.ring(tenant_).signing(), 'c', contact.hello, *reply);
    (void)contact.link->send({FrameType::hello2, false, request_++, encode(request)});
  } else if (frame.type == FrameType::hello2) {
    const auto reply = decode_outcome(frame.body);
    contact.ready = reply.ok() && reply->outcome == Outcome::ok;
    contact.peers.clear();
    for (std::size_t rail = 0; rail < contact.welcome.rails.size(); ++rail) {
      const auto address = fabric::Address::from_bytes(contact.welcome.rails[rail].address);
      const auto peer = initiators_[rail]->add_peer(*address);
      contact.peers.push_back(peer.ok() ? std::optional(*peer) : std::nullopt);
    }
  } else if (frame.type == FrameType::alloc) {
    const auto at = contact.allocs.find(frame.req_id);
    const auto reply = decode_alloc_reply(frame.body);
    if (at == contact.allocs.end()) return;
    if (reply.ok() && reply->outcome == Outcome::ok) {
      auto push = std::make_shared<Push>(std::move(at->second));
      push->slot = *reply;
      pushes_.push_back(push);
      writes_[next_] = push;
      write(contact, *push, push->value, next_++);
    }
    contact.allocs.erase(at);
  }
}

void Rogue::act(NodeParty& node, Contact& contact) {
  if (world_.plan().fence == fabric::FenceMode::mr && world_.prng().chance(1, 3)) {
    push(contact);
  } else {
    read(node, contact);
  }
}

void Rogue::read(NodeParty& node, Contact& contact) {
  if (reads_.size() >= kReadsMax) return;
  std::vector<const Record*> choice;
  const auto& records = world_.ledger().records();
  for (auto at = records.rbegin(); at != records.rend() && choice.size() < 16; ++at) {
    if (at->answered && at->tenant == tenant_ && !at->payload.empty() &&
        at->descriptor.location.incarnation == node.incarnation()) {
      choice.push_back(&*at);
    }
  }
  if (choice.empty()) return;
  const Record* record = choice[world_.prng().below(choice.size())];
  const std::size_t rail = world_.prng().below(contact.peers.size());
  if (!contact.peers[rail] || rail >= record->descriptor.rkeys.size()) return;
  const std::uint64_t id = next_++;
  Read& read = reads_[id];
  read.record = record;
  read.into.resize(record->payload.size());
  fabric::Operation operation;
  operation.kind = fabric::OpKind::read;
  operation.peer = *contact.peers[rail];
  operation.key = record->descriptor.rkeys[rail];
  operation.addr = record->descriptor.location.addr + Offset(kHeaderBytes);
  operation.local = read.into;
  operation.context = id;
  if (!initiators_[rail]->post(operation).ok()) reads_.erase(id);
}

void Rogue::push(Contact& contact) {
  Push push;
  for (std::byte& b : push.id) b = static_cast<std::byte>(world_.prng().below(256));
  push.key = world_.key(world_.prng().below(world_.plan().keys));
  push.value = world_.value(1 + world_.prng().below(5000));
  push.junk = world_.value(push.value.size());
  world_.ledger().wrote({tenant_, push.key}, push.value);
  const std::uint64_t request = request_++;
  (void)contact.link->send({FrameType::alloc, false, request,
                            encode(AllocRequest{push.id, push.key, Length(push.value.size())})});
  contact.allocs.emplace(request, std::move(push));
}

void Rogue::write(Contact& contact, Push& push, Bytes& from, std::uint64_t context) {
  if (contact.peers.empty() || !contact.peers[0]) return;
  fabric::Operation operation;
  operation.kind = fabric::OpKind::write;
  operation.peer = *contact.peers[0];
  operation.key = push.slot.grant_rkeys[0];
  operation.addr = push.slot.payload;
  operation.local = from;
  operation.context = context;
  (void)initiators_[0]->post(operation);
}

// A provider may give an old key again, and then fail to close that registration: the arena is lost
// (spec kv 8.2, steps 5 and 8), and the key of old descriptors reaches it for good. What is read
// through it is not what was written, which no fence can help; the checksum tells (decision 0021).
bool Rogue::stuck(const Record& record) const {
  const auto& open = world_.registry().open;
  const auto& keys = record.descriptor.rkeys;
  const auto& nodes = world_.nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return node->alive() && node->incarnation() == record.descriptor.location.incarnation &&
           std::any_of(open.begin(), open.end(), [&](const Held& held) {
             return held.close_failed && held.party == node->name && held.life == node->life &&
                    std::find(keys.begin(), keys.end(), held.key) != keys.end();
           });
  });
}

bool Rogue::poll() {
  bool any = false;
  std::array<fabric::Completion, 8> done;
  for (auto& initiator : initiators_) {
    const std::size_t n = initiator->poll(done);
    any = any || n > 0;
    for (std::size_t i = 0; i < n; ++i) {
      if (const auto read = reads_.find(done[i].context); read != reads_.end()) {
        if (done[i].status.ok() && read->second.into != read->second.record->payload &&
            !stuck(*read->second.record)) {
          world_.ledger().fail("P5: a held descriptor reads other bytes: " +
                               text_of(read->second.record->descriptor.location));
        }
        if (done[i].status.ok()) world_.count("rogue reads ok");
        // Not quiet: its bytes move on, so the memory stays.
        const bool quiet = done[i].status.ok() || done[i].status.error().quiet;
        if (quiet) reads_.erase(read);
      } else if (const auto at = writes_.find(done[i].context); at != writes_.end()) {
        const auto push = at->second;
        writes_.erase(at);
        for (auto& [id, contact] : contacts_) {
          if (!done[i].status.ok() || !contact.ready || contact.peers.empty()) continue;
          if (contact.link == nullptr) continue;
          world_.count("rogue pushes");
          const SealRequest seal{push->id, push->slot.slot_id, digest::crc32c(push->value),
                                 PutMode::replace, Version()};
          (void)contact.link->send({FrameType::seal, false, request_++, encode(seal)});
          const int times = static_cast<int>(1 + world_.prng().below(4));
          for (int n_th = 0; n_th < times; ++n_th) write(contact, *push, push->junk, kJunk);
        }
      }
    }
  }
  return any;
}

}  // namespace farlift::kv::simulation
