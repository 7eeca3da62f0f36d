// NodeLink: the association with one incarnation of one node (spec kv 2 "Link", 5): a control
// connection whose HELLO proved who answers, and an Engine for each rail that both ends have. Every
// link has Engines of its own, so that closing them cuts off this node and no other.
//
//   greeting --HELLO, HELLO2--> up --loss, endpoint error--> down --(what is out ends)--> unused()
//
// Invariants: `up` only after the node proved its id and incarnation under our key ring (in
//             development mode: said so). Once down nothing is posted. Pull sources are reachable
//             only through target endpoints of this link, which are closed before a request that
//             was under way is reported as lost (quiet rule, spec kv 7.2a).
// Threads:    the loop's. Callbacks run from step_frames(), and those of movements from
//             step_engines() or close().
// Errors:     of requests: connection_lost.
#pragma once

#include "core/transfer/crc_pool.h"
#include "core/transfer/engine.h"
#include "kvcache/client/client.h"
#include "kvcache/client/counters.h"
#include "kvcache/client/movement.h"

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace farlift::kv::client {

// What the links of a client share; outlives them.
struct LinkContext {
  const Environment& environment;
  const ClientOptions& options;
  const Keyring& keys;
  const Domains& domains;
  Counters& counters;
  ClientId client_id{};
  transfer::CrcPool* crc_pool = nullptr;
};

class NodeLink {
 public:
  enum class State : std::uint8_t { greeting, up, down };

  // Starts greeting. `as_target`: the node may pull from us over it.
  static Result<std::unique_ptr<NodeLink>> connect(const LinkContext& context,
                                                   const NodeRecord& record, bool as_target);
  NodeLink(const NodeLink&) = delete;
  NodeLink& operator=(const NodeLink&) = delete;
  ~NodeLink();

  State state() const noexcept { return state_; }
  bool as_target() const noexcept { return as_target_; }
  const NodeRecord& record() const noexcept { return record_; }
  NodeId node() const noexcept { return reply_.node; }  // proven, once up
  Incarnation incarnation() const noexcept { return reply_.incarnation; }
  FenceWord fence_mode() const noexcept { return reply_.fence_mode; }
  std::size_t rails() const noexcept { return rails_.size(); }
  // On such a rail a refused key ends more than its operation: the connection behind it is gone.
  bool refusal_ends_link() const noexcept { return refusal_ends_link_; }

  using OnReply = std::function<void(Result<Bytes>)>;
  void request(FrameType type, Bytes body, OnReply done);
  void tell(FrameType type, Bytes body);  // no reply comes

  Status move(Movement movement, OnMoved done);

  bool step_frames();
  bool step_engines();
  std::vector<int> wait_fds() const;
  bool must_poll() const noexcept;  // something is out on a rail that has nothing to wait for
  Instant next_deadline() const noexcept { return greet_until_; }  // while greeting

  // Nothing more is posted and requests fail; operations that are out end by themselves. `why` is
  // for the log; null: as was wished, nothing to tell.
  void cut(const char* why);
  // The fence: afterwards nothing of this link touches memory of ours.
  void close(const char* why);
  bool unused() const noexcept;  // nothing is out, waits, or is still to be reported

  // Reads that wait for their turn on this link, and how much of it is used (reader.cc).
  struct Window {
    std::deque<std::uint64_t> waiting;
    std::size_t posted = 0;
    std::uint64_t posted_bytes = 0;
  };
  Window& window() noexcept { return window_; }
  // Keys read over it, sampled, for TOUCH.
  std::vector<KeyHash>& touched() noexcept { return touched_; }
  std::uint64_t touches_seen = 0;

 private:
  NodeLink(const LinkContext& context, const NodeRecord& record, bool as_target);
  Status open_targets();
  Status open_engine(std::size_t own);
  Status greet();
  void on_hello(const Result<Bytes>& body);
  void on_hello2(const Result<Bytes>& body);
  bool proof_holds() const;
  Status join_rails();
  Status meet_readers();
  void on_frame(const Frame& frame);
  void refuse(const char* why);
  void fail_requests();
  bool deliver();

  const LinkContext& context_;
  const NodeRecord record_;
  const bool as_target_;
  State state_ = State::greeting;
  bool refusal_ends_link_ = false;
  Instant greet_until_;
  HelloRequest hello_;
  HelloReply reply_;
  std::unique_ptr<Link> control_;
  std::uint64_t next_request_ = 1;
  std::map<std::uint64_t, std::pair<FrameType, OnReply>> requests_;
  std::vector<std::pair<OnReply, Result<Bytes>>> replies_;  // to be delivered
  std::vector<LinkRail> rails_;                             // in the node's order
  Window window_;
  std::vector<KeyHash> touched_;
  std::vector<std::unique_ptr<fabric::TargetEndpoint>> targets_;  // in our order
  std::vector<std::unique_ptr<transfer::Engine>> engines_;        // in our order; close first
};

}  // namespace farlift::kv::client
