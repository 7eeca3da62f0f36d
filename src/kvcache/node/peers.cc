#include "kvcache/node/peers.h"

#include "core/base/log.h"
#include "core/digest/hash.h"
#include "kvcache/node/capability.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

void Peers::call(Tenant& tenant, NodeId node, FrameType type, Bytes body, OnReply done) {
  enqueue(tenant, node, {type, std::move(body), std::move(done), Incarnation()});
}

void Peers::superseded(Tenant& tenant, const Location& location, Version version, ByteView key) {
  SupersededRequest request;
  request.location = location;
  request.version = version;
  request.key = to_bytes(key);
  core_.counters.add(Count::superseded_sent);
  enqueue(
      tenant, location.node,
      {FrameType::superseded, encode(request), [](const Result<Frame>&) {}, location.incarnation});
}

void Peers::enqueue(Tenant& tenant, NodeId node, Call call) {
  const Key key{tenant.name(), node};
  const auto [at, fresh] = peers_.try_emplace(key);
  Peer& peer = at->second;
  if (fresh) {
    peer.tenant = &tenant;
    peer.node = node;
    peer.number = next_number_++;
    peer.until = core_.now() + core_.options.operation_limit;
    core_.directory().find_node(
        node,
        core_.guarded([this, key, number = peer.number](Result<std::optional<NodeRecord>> record) {
          found(key, number, std::move(record));
        }));
  }
  if (peer.waiting.size() + peer.sent.size() >= kQueuedMax) {
    refused_.emplace_back(std::move(call.done), Error::make(Errc::exhausted, "calls to a peer"));
    return;
  }
  peer.waiting.push_back(std::move(call));
}

void Peers::found(const Key& key, std::uint64_t number, Result<std::optional<NodeRecord>> record) {
  const auto at = peers_.find(key);
  if (at == peers_.end() || at->second.number != number) return;
  Peer& peer = at->second;
  Status greeted = Error::make(Errc::unreachable, "node record");
  if (record.ok() && record->has_value()) greeted = greet(peer, **record);
  if (greeted.ok()) return;
  fail(peer, greeted.error());
  peers_.erase(at);
}

Status Peers::greet(Peer& peer, const NodeRecord& record) {
  TRY_ASSIGN(peer.link, core_.environment.transport.connect(record.host, record.port));
  HelloRequest& hello = peer.hello;
  hello.tenant = peer.tenant->name();
  hello.key_id = peer.tenant->keys().signing_id();
  core_.environment.random(hello.client_id);
  core_.environment.random(hello.nonce);
  for (std::size_t rail = 0; rail < peer.tenant->rails(); ++rail) {
    const auto* const target = peer.tenant->target(rail);
    if (target == nullptr) return Error::make(Errc::unreachable, "own endpoint");
    hello.rails.push_back(
        {core_.environment.rails[rail].provider, to_bytes(target->address().bytes())});
  }
  peer.state = State::greeting;
  return peer.link->send({FrameType::hello, false, 0, encode(hello)});
}

Status Peers::prove(Peer& peer, const Frame& frame) {
  TRY_ASSIGN(const HelloReply reply, decode_hello_reply(frame.body));
  if (reply.outcome != Outcome::ok || reply.node != peer.node) {
    return Error::make(Errc::permission, "HELLO of a peer");
  }
  const Keyring& ring = peer.tenant->keys();
  Hello2Request proof;
  if (!ring.is_development()) {
    const Tag expected = hello_proof(ring.signing(), 'n', peer.hello, reply);
    if (!digest::equal(expected, reply.proof)) return Error::make(Errc::permission, "node proof");
    proof.proof = hello_proof(ring.signing(), 'c', peer.hello, reply);
  }
  Tenant& tenant = *peer.tenant;
  for (std::size_t rail = 0, at = tenant.rails(); rail < tenant.rails() && at < reply.rails.size();
       ++rail) {
    if (!introduces_readers(core_.environment.rails[rail].provider)) continue;
    const auto reader = fabric::Address::from_bytes(reply.rails[at++].address);
    if (reader.ok() && tenant.target(rail) != nullptr) TRY(tenant.target(rail)->add_peer(*reader));
  }
  peer.incarnation = reply.incarnation;
  peer.state = State::proving;
  return peer.link->send({FrameType::hello2, false, 0, encode(proof)});
}

Status Peers::take(Peer& peer, Frame frame) {
  if (!frame.reply) return Error::make(Errc::protocol, "a peer asks");
  switch (peer.state) {
    case State::greeting:
      if (frame.type != FrameType::hello) return Error::make(Errc::protocol, "HELLO of a peer");
      return prove(peer, frame);
    case State::proving: {
      if (frame.type != FrameType::hello2) return Error::make(Errc::protocol, "HELLO2 of a peer");
      TRY_ASSIGN(const OutcomeReply reply, decode_outcome(frame.body));
      if (reply.outcome != Outcome::ok) return Error::make(Errc::permission, "HELLO2 of a peer");
      peer.state = State::ready;
      peer.idle_since = core_.now();
      return {};
    }
    case State::ready: {
      const auto at = peer.sent.find(frame.req_id);
      if (at == peer.sent.end()) return Error::make(Errc::protocol, "a reply nobody waits for");
      const Call call = std::move(at->second);
      peer.sent.erase(at);
      peer.idle_since = core_.now();
      call.done(std::move(frame));
      return {};
    }
    case State::resolving:
      break;
  }
  return Error::make(Errc::internal, "peer");
}

void Peers::flush(Peer& peer) {
  while (!peer.waiting.empty()) {
    Call call = std::move(peer.waiting.front());
    peer.waiting.pop_front();
    if (call.only.raw() != 0 && call.only != peer.incarnation) {
      refused_.emplace_back(std::move(call.done), Error::make(Errc::not_found, "incarnation"));
      continue;
    }
    const std::uint64_t id = peer.next_request++;
    const Status sent = peer.link->send({call.type, false, id, std::move(call.body)});
    if (peer.sent.empty()) peer.until = core_.now() + 2 * core_.options.operation_limit;
    peer.sent.emplace(id, std::move(call));
    if (!sent.ok()) return peer.link->close();  // receive() says the rest
  }
}

Status Peers::step(Peer& peer, bool& moved) {
  if (peer.link != nullptr) {
    for (;;) {
      auto frame = peer.link->receive();
      if (!frame.ok() && frame.code() == Errc::again) break;
      if (!frame.ok()) return frame.error();
      moved = true;
      TRY(take(peer, std::move(frame).value()));
    }
  }
  if (peer.state == State::ready) flush(peer);
  const bool busy = peer.state != State::ready || !peer.sent.empty();
  if (busy && core_.now() >= peer.until) return Error::make(Errc::timeout, "peer");
  if (!busy && core_.now() >= peer.idle_since + kIdleMax) return Error::make(Errc::closed, "idle");
  return {};
}

bool Peers::step() {
  bool moved = !refused_.empty();
  for (auto& [done, why] : std::exchange(refused_, {})) done(why);
  // Callbacks may add peers: those are met in the next step.
  std::vector<Key> keys;
  for (const auto& [key, peer] : peers_) keys.push_back(key);
  for (const Key& key : keys) {
    const auto at = peers_.find(key);
    if (at == peers_.end()) continue;
    const Status status = step(at->second, moved);
    if (status.ok()) continue;
    moved = true;
    fail(at->second, status.error());
    peers_.erase(at);
  }
  return moved;
}

Instant Peers::next_deadline() const noexcept {
  if (!refused_.empty()) return core_.now();
  Instant next = Instant::max();
  for (const auto& [key, peer] : peers_) {
    const bool ready = peer.state == State::ready;
    if (ready && !peer.waiting.empty()) return core_.now();
    next = std::min(next, ready && peer.sent.empty() ? peer.idle_since + kIdleMax : peer.until);
  }
  return next;
}

// The callbacks run in the next step: they may call again, and this peer is about to go.
void Peers::fail(Peer& peer, Error why) {
  if (why.code != Errc::closed) {
    logf(LogLevel::info, "kv node: peer %llu: %s", static_cast<unsigned long long>(peer.node.raw()),
         why.describe().c_str());
  }
  for (auto& [id, call] : peer.sent) refused_.emplace_back(std::move(call.done), why);
  for (Call& call : peer.waiting) refused_.emplace_back(std::move(call.done), why);
  peer.sent.clear();
  peer.waiting.clear();
}

void Peers::drop(const Tenant& tenant) {
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (at->second.tenant != &tenant) {
      ++at;
      continue;
    }
    fail(at->second, Error::make(Errc::flushed, "endpoint fence"));
    at = peers_.erase(at);
  }
}

}  // namespace farlift::kv::node
