// Lending connections: the part of Router that owns them.
#include "core/net/resp/router.h"
#include "core/net/resp/router_node.h"

#include <algorithm>
#include <utility>

namespace farlift::resp {

Router::Lease::Lease(Lease&& other) noexcept
    : router_(std::exchange(other.router_, nullptr)),
      connection_(std::exchange(other.connection_, nullptr)),
      node_(std::move(other.node_)) {}

Router::Lease& Router::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    give_back();
    router_ = std::exchange(other.router_, nullptr);
    connection_ = std::exchange(other.connection_, nullptr);
    node_ = std::move(other.node_);
  }
  return *this;
}

void Router::Lease::give_back() noexcept {
  if (connection_ == nullptr) return;
  std::exchange(router_, nullptr)->give_back(node_, std::exchange(connection_, nullptr));
}

void Router::give_back(const Endpoint& endpoint, Connection* connection) noexcept {
  std::unique_ptr<Connection> ended;  // outside the lock: a companion may take its time
  MutexLock lock(mutex_);
  Node& node = *nodes_.at(endpoint);
  const auto at = std::ranges::find(node.lent, connection, &std::unique_ptr<Connection>::get);
  ASSERT(at != node.lent.end());
  // An unanswered command would answer the next borrower.
  const bool good =
      !connection->broken() && connection->unanswered() == 0 && !node.retired && !stop_->raised();
  if (good) {
    node.idle.push_back(std::move(*at));
  } else {
    ended = std::move(*at);
    --node.existing;
  }
  node.lent.erase(at);
  returned_.notify_all();
}

Result<Router::Lease> Router::lease_node(const Endpoint& endpoint, std::string* reason) {
  const net::Deadline deadline = net::Deadline::after(clock_, options_.lease_timeout);
  for (;;) {
    TRY_ASSIGN(Connection * idle, take_idle(endpoint, deadline));
    if (idle == nullptr) break;
    Lease lease;
    lease.router_ = this;
    lease.connection_ = idle;
    lease.node_ = endpoint;
    // The server may have hung up meanwhile (restart, timeout of idle clients); that shows without
    // waiting.
    if (idle->try_receive().ok()) return lease;
  }
  Result<std::unique_ptr<Connection>> made = connect(endpoint, reason);
  MutexLock lock(mutex_);
  Node& node = *nodes_.at(endpoint);
  if (!made.ok() || stop_->raised()) {
    --node.existing;
    returned_.notify_all();
    return made.ok() ? Error::make(Errc::closed, "router") : made.error();
  }
  ++counters_.connects;
  node.retired = false;
  Lease lease;
  lease.router_ = this;
  lease.connection_ = made->get();
  lease.node_ = endpoint;
  node.lent.push_back(std::move(made).value());
  return lease;
}

// An idle connection, now lent; or nullptr: the caller may make one, and it is counted already.
Result<Connection*> Router::take_idle(const Endpoint& endpoint, net::Deadline deadline) {
  MutexLock lock(mutex_);
  for (;;) {
    if (stop_->raised()) return Error::make(Errc::closed, "router");
    if (nodes_.size() >= Topology::kNodesMax && !nodes_.contains(endpoint)) {
      // Redirections may have led anywhere; nodes without connections need not be remembered.
      std::erase_if(nodes_, [](const auto& entry) { return entry.second->existing == 0; });
      if (nodes_.size() >= Topology::kNodesMax)
        return Error::make(Errc::exhausted, "nodes of the cluster");
    }
    // Looked up again after each wait: the node may have been forgotten meanwhile.
    std::unique_ptr<Node>& entry = nodes_[endpoint];
    if (entry == nullptr) entry = std::make_unique<Node>();
    Node& node = *entry;
    if (!node.idle.empty()) {
      node.lent.push_back(std::move(node.idle.back()));
      node.idle.pop_back();
      return node.lent.back().get();
    }
    if (node.existing < std::max(options_.connections_per_node, 1U)) {
      ++node.existing;
      return nullptr;
    }
    if (deadline.is_never()) {
      returned_.wait(mutex_);
    } else if (deadline.expired(clock_)) {
      return Error::make(Errc::busy, "all connections to the node are lent");
    } else {
      returned_.wait_for(mutex_, deadline.left(clock_));
    }
  }
}

Result<std::unique_ptr<Connection>> Router::connect(const Endpoint& endpoint,
                                                    std::string* reason) const {
  ConnectionOptions to = options_.connection;
  if (options_.cluster) {
    if (endpoint != to.endpoint()) to.unix_path.clear();
    to.host = endpoint.host;
    to.port = endpoint.port;
  }
  return Connection::connect(to, clock_, reason);
}

}  // namespace farlift::resp
