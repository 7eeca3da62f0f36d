#include "blob/client/client_core.h"

#include "blob/client/configuration.h"
#include "blob/client/link.h"
#include "core/net/tls.h"

#include <algorithm>
#include <utility>

namespace farlift::client {
namespace {

Duration or_never(std::chrono::milliseconds timeout) {
  return timeout.count() == 0 ? Duration::max() : Duration(timeout);
}

resp::ConnectionOptions connection_options(const ClientOptions& options) {
  resp::ConnectionOptions out;
  out.unix_path = options.unix_path;
  if (options.tls.enabled) {
    net::TlsOptions tls;
    tls.ca_file = options.tls.ca_file;
    tls.certificate_file = options.tls.certificate_file;
    tls.key_file = options.tls.key_file;
    tls.server_name = options.tls.server_name;
    tls.insecure = !options.tls.verify_peer;
    out.tls = tls;
  }
  out.username = options.username;
  out.password = options.password;
  out.database = options.database;
  out.client_name = options.client_name;
  out.protocol = options.resp_version == 2 ? resp::Protocol::resp2 : resp::Protocol::resp3;
  out.connect_timeout = Duration(options.connect_timeout);
  out.request_timeout = or_never(options.request_timeout);
  return out;
}

// Reads and transfers go to the primary (spec blob 10.2 rule 6). A server that will not say what it
// is, is taken as is.
bool is_primary(resp::Router& router) {
  const Result<resp::Value> role = router.request("", {"ROLE"});
  if (!role.ok() || role->type() != resp::Type::array || role->items().empty()) return true;
  const resp::Value& name = role->items()[0];
  return !name.is_text() || name.text() == "master";
}

}  // namespace

ClientCore::ClientCore(ClientOptions options)
    : options_(std::move(options)), process_(::getpid()) {}

ClientCore::~ClientCore() { close(); }

Expected<std::shared_ptr<ClientCore>> ClientCore::open(ClientOptions options) {
  if (Expected<void> ok = check_options(options); !ok) return ok.error();
  auto core = std::make_shared<ClientCore>(std::move(options));
  if (Expected<void> ok = core->connect(); !ok) return ok.error();
  return core;
}

Expected<void> ClientCore::connect() {
  const bool own_connections = options_.rdma && options_.rdma->connections > 1;
  auto commands = open_router(1);
  if (!commands) return commands.error();
  command_router_ = std::move(commands).value();
  if (!options_.rdma) return {};

  std::string reason;
  auto lease = command_router_->lease("", &reason);
  if (!lease.ok()) return to_client_error(lease.error(), reason);
  const std::string local_ip = local_ip_of((*lease)->fd());
  lease->give_back();
  auto fabric = open_fabric(*options_.rdma, local_ip);
  if (!fabric) return fabric.error();
  fabric_ = std::move(fabric).value();

  if (!own_connections) return {};
  auto transfers = open_router(options_.rdma->connections);
  if (!transfers) return transfers.error();
  transfer_router_ = std::move(transfers).value();
  return {};
}

Expected<std::unique_ptr<resp::Router>> ClientCore::open_router(std::uint32_t connections) {
  resp::RouterOptions options;
  options.connection = connection_options(options_);
  options.cluster = options_.cluster;
  options.connections_per_node = connections;
  options.lease_timeout = or_never(options_.request_timeout);
  const auto& addresses = options_.addresses;
  const bool unix_socket = !options_.unix_path.empty();
  if (options_.cluster) {
    for (std::size_t i = 1; i < addresses.size(); ++i) {
      options.more_seeds.push_back({addresses[i].host, addresses[i].port});
    }
  }
  // Standalone: the first address that answers as a primary. In a cluster the Router finds its way.
  const std::size_t candidates = unix_socket || options_.cluster ? 1 : addresses.size();
  ClientError last{ErrorKind::connection, "no address given"};
  for (std::size_t i = 0; i < candidates; ++i) {
    if (!unix_socket) {
      options.connection.host = addresses[i].host;
      options.connection.port = addresses[i].port;
    }
    std::string reason;
    auto router = resp::Router::open(options, clock_, &reason);
    if (!router.ok()) {
      last = to_client_error(router.error(), reason);
      last.kind = ErrorKind::connection;  // nothing was requested yet
      continue;
    }
    if (candidates == 1 || is_primary(**router)) return std::move(router).value();
    last = {ErrorKind::connection, addresses[i].host + " is not a primary"};
  }
  return last;
}

Expected<void> ClientCore::check_open() const {
  if (forked()) {
    return ClientError{ErrorKind::closing,
                       "this client belongs to the parent process; create one after fork()"};
  }
  if (closing()) return ClientError{ErrorKind::closing, "the client is closed"};
  return {};
}

Expected<std::shared_ptr<Region>> ClientCore::register_region(const fabric::MemoryRef& memory,
                                                              std::shared_ptr<void> owner) {
  if (Expected<void> ok = check_open(); !ok) return ok.error();
  if (!fabric_) return rdma_error("this client was created without 'rdma'");
  auto region = Region::make(fabric_, memory, std::move(owner));
  if (!region) return region;
  {
    MutexLock lock(mutex_);
    if (!closing()) {
      // Handles that are gone are dropped here, so that the list is as long as what is alive.
      std::erase_if(regions_, [](const std::weak_ptr<Region>& one) { return one.expired(); });
      regions_.push_back(*region);
      return region;
    }
  }
  (*region)->cut_off();
  return ClientError{ErrorKind::closing, "the client is closed"};
}

bool ClientCore::add_link(Link* link) {
  MutexLock lock(mutex_);
  links_.insert(link);
  return !closing();
}

void ClientCore::remove_link(Link* link) {
  MutexLock lock(mutex_);
  links_.erase(link);
}

void ClientCore::close() {
  std::vector<std::weak_ptr<Region>> regions;
  {
    MutexLock lock(mutex_);
    if (closing_.exchange(true, std::memory_order_acq_rel)) {
      while (!quiet_) quiet_changed_.wait(mutex_);
      return;
    }
    // Under the lock, since a Link leaves the set before it ends. Endpoints first: on some
    // providers only that stops a landing in progress (spec blob 10.3).
    for (Link* link : links_) link->cut_off();
    regions.swap(regions_);
  }
  for (const std::weak_ptr<Region>& weak : regions) {
    if (const std::shared_ptr<Region> region = weak.lock()) region->cut_off();
  }
  {
    MutexLock lock(mutex_);
    quiet_ = true;
  }
  quiet_changed_.notify_all();
  // Now the waiters may learn of it.
  if (transfer_router_) transfer_router_->cut_off();
  if (command_router_) command_router_->cut_off();
}

void ClientCore::await_quiet() {
  MutexLock lock(mutex_);
  while (!quiet_) quiet_changed_.wait(mutex_);
}

ClientError ClientCore::to_client_error(const Error& error, const std::string& reason) const {
  if (closing()) return {ErrorKind::closing, "the client was closed"};
  std::string text = reason.empty() ? error.describe() : reason;
  switch (error.code) {
    case Errc::busy:  // waiting for the connection
    case Errc::timeout:
      return {ErrorKind::timeout, std::move(text)};
    case Errc::invalid_argument:
    case Errc::too_large:
    case Errc::exhausted:
      return {ErrorKind::request, std::move(text)};
    default:
      return {ErrorKind::connection, std::move(text)};
  }
}

}  // namespace farlift::client
