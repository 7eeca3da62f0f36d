// Peers: this node as a client of other nodes, for SUPERSEDED (spec kv 7.5) and for DRAIN (8.3), by
// the protocol every client speaks: HELLO with proofs, then frames.
//
// Invariants: nothing is sent to a node that has not proven the tenant's key and its incarnation.
//             A call's callback runs once, never from inside call(). Nothing of safety hangs on a
//             message arriving: reconcile finds what was missed.
// Threads:    one. Errors: unreachable: no record, no connection, no proof; timeout; exhausted:
//             kQueuedMax calls wait for one peer.
#pragma once

#include "kvcache/node/core.h"
#include "kvcache/wire/frames.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

namespace farlift::kv::node {

class Peers {
 public:
  static constexpr std::size_t kQueuedMax = 1024;
  static constexpr Duration kIdleMax = std::chrono::seconds(10);

  using OnReply = std::function<void(Result<Frame>)>;

  explicit Peers(Core& core) : core_(core) {}

  void call(Tenant& tenant, NodeId node, FrameType type, Bytes body, OnReply done);
  // Best effort; dropped when the peer proves to be of another incarnation.
  void superseded(Tenant& tenant, const Location& location, Version version, ByteView key);
  bool step();
  Instant next_deadline() const noexcept;
  // A tenant's endpoints changed: what was said in HELLO is no longer true.
  void drop(const Tenant& tenant);

 private:
  enum class State : std::uint8_t { resolving, greeting, proving, ready };
  struct Call {
    FrameType type{};
    Bytes body;
    OnReply done;
    Incarnation only;  // not 0: of no use to another incarnation
  };
  struct Peer {
    Tenant* tenant = nullptr;
    NodeId node;
    std::uint64_t number = 0;  // tells peers that follow each other apart
    State state = State::resolving;
    std::unique_ptr<Link> link;
    HelloRequest hello;
    Incarnation incarnation;
    Instant until;  // of the state, or of the oldest call sent
    Instant idle_since;
    std::deque<Call> waiting;
    std::map<std::uint64_t, Call> sent;  // by req_id
    std::uint64_t next_request = 1;
  };
  using Key = std::pair<std::string, NodeId>;

  void enqueue(Tenant& tenant, NodeId node, Call call);
  void found(const Key& key, std::uint64_t number, Result<std::optional<NodeRecord>> record);
  Status greet(Peer& peer, const NodeRecord& record);
  Status take(Peer& peer, Frame frame);
  Status prove(Peer& peer, const Frame& frame);
  void flush(Peer& peer);
  Status step(Peer& peer, bool& moved);
  void fail(Peer& peer, Error why);

  Core& core_;
  std::map<Key, Peer> peers_;
  std::vector<std::pair<OnReply, Error>> refused_;
  std::uint64_t next_number_ = 1;
};

}  // namespace farlift::kv::node
