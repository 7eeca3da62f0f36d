// Sessions: the links of clients: HELLO and HELLO2, then frames, each answered once (spec kv 5).
//
// Invariants: before a HELLO2 whose proof is right no other frame is served and no address of the
//             client is given to a domain. Every HELLO has a nonce of its own, so a proof is good
//             once. A frame that is not the protocol's ends the link; a body that is not its
//             type's is BAD_ARG. A session has at most kOpenMax requests open: beyond that it is
//             not read.
// Threads:    one. Errors: limits: links_max, kHandshakeMax; both end the link and are counted.
#pragma once

#include "core/fabric/fabric.h"
#include "kvcache/control/link.h"
#include "kvcache/node/grants.h"
#include "kvcache/node/pulls.h"
#include "kvcache/node/remover.h"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace farlift::kv::node {

struct Services {
  Pulls& pulls;
  Grants& grants;
  Remover& remover;
  std::function<void()> drain;
  std::function<Outcome(Tenant&, const RotateRequest&)> rotate;
  std::function<StatReply(const Tenant&)> stat;
};

class Sessions {
 public:
  static constexpr Duration kHandshakeMax = std::chrono::seconds(5);
  static constexpr std::uint32_t kOpenMax = 256;
  static constexpr int kFramesPerTurn = 64;

  Sessions(Core& core, Services services) : core_(core), services_(std::move(services)) {}
  ~Sessions();

  void listen(std::unique_ptr<LinkListener> listener) { listener_ = std::move(listener); }
  std::uint16_t port() const noexcept { return listener_->port(); }
  bool step();
  std::size_t size() const noexcept { return sessions_.size(); }
  // The tenant's endpoints changed: its clients must say HELLO again (spec kv 3).
  void drop(const Tenant& tenant);

 private:
  enum class State : std::uint8_t { fresh, greeted, ready };
  struct Session {
    std::uint64_t id = 0;
    std::unique_ptr<Link> link;
    State state = State::fresh;
    Tenant* tenant = nullptr;
    HelloRequest hello;
    HelloReply welcome;
    std::vector<std::optional<fabric::Address>> addresses;  // a rail
    bool admitted = false;
    std::uint32_t open = 0;
    bool ending = false;
  };

  void accept();
  bool serve(Session& session);
  void handle(Session& session, const Frame& frame);
  void hello(Session& session, const Frame& frame);
  Outcome welcome(Session& session, HelloReply& reply);
  bool rails_fit(const HelloRequest& hello) const;
  std::vector<RailAddress> readers(Tenant& tenant) const;
  bool readers_changed(Session& session) const;
  void hello2(Session& session, const Frame& frame);
  bool proven(const Session& session, const Tag& proof) const;
  Outcome admit(Session& session);
  void request(Session& session, const Frame& frame);
  void put_pull(Session& session, const Frame& frame);
  void alloc(Session& session, const Frame& frame);
  void seal(Session& session, const Frame& frame);
  void simple(Session& session, const Frame& frame);
  void touch(Session& session, const Frame& frame);

  template <class Body>
  void answer(std::uint64_t session, const Frame& to, const Body& body);
  // Answers later, from a callback; the session may be gone by then.
  std::function<void(Outcome)> outcome_later(Session& session, const Frame& frame);
  Outcomes::Reply put_later(Session& session, const Frame& frame);
  void protocol_error(Session& session);
  void end(Session& session);

  Core& core_;
  Services services_;
  std::unique_ptr<LinkListener> listener_;
  std::map<std::uint64_t, Session> sessions_;
  std::uint64_t next_id_ = 1;
};

}  // namespace farlift::kv::node
