#include "core/base/clock.h"
#include "core/net/resp/slot.h"
#include "core/net/resp/topology.h"

#include <algorithm>
#include <poll.h>
#include <string>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::testing {
namespace {

using resp::Connection;
using resp::Value;

constexpr auto kFormedWithin = std::chrono::seconds(60);

bool command(Connection& connection, std::initializer_list<std::string_view> arguments,
             std::string* reason) {
  const Result<Value> reply = connection.request(arguments);
  if (reply.ok() && !reply->is_error()) return true;
  if (reason != nullptr)
    *reason = reply.ok() ? std::string(reply->text()) : reply.error().describe();
  return false;
}

bool sees_all(Connection& connection, std::size_t nodes) {
  const Result<Value> info = connection.request({"CLUSTER", "INFO"});
  if (!info.ok() || !info->is_text()) return false;
  if (info->text().find("cluster_state:ok") == std::string_view::npos) return false;
  const Result<Value> slots = connection.request({"CLUSTER", "SLOTS"});
  if (!slots.ok()) return false;
  const auto topology = resp::Topology::from_slots(*slots, {"127.0.0.1", 1});
  return topology.ok() && topology->slots_covered() == resp::kSlotCount &&
         topology->nodes().size() == nodes;
}

std::uint32_t first_slot(std::size_t index, std::size_t nodes) {
  return static_cast<std::uint32_t>(resp::kSlotCount * index / nodes);
}

}  // namespace

std::unique_ptr<ClusterProcess> ClusterProcess::start(std::size_t primaries,
                                                      const ServerOptions& options,
                                                      std::string* reason) {
  auto cluster = std::make_unique<ClusterProcess>();
  const SystemClock clock;
  std::vector<std::unique_ptr<Connection>> connections;
  ServerOptions own = options;
  own.cluster = true;
  if (own.tls && !own.tls_files &&
      !TlsFiles::make(cluster->dir_.path(), own.tls_files.emplace(), reason))
    return nullptr;
  for (std::size_t i = 0; i < primaries; ++i) {
    auto server = ServerProcess::start(own, reason);
    if (server == nullptr) return nullptr;
    auto connection = Connection::connect(server->connection_options(), clock, reason);
    if (!connection.ok()) return nullptr;
    connections.push_back(std::move(connection).value());
    cluster->servers_.push_back(std::move(server));
  }
  for (std::size_t i = 0; i < primaries; ++i) {
    const std::string first = std::to_string(first_slot(i, primaries));
    const std::string last = std::to_string(first_slot(i + 1, primaries) - 1);
    if (!command(*connections[i], {"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)}, reason))
      return nullptr;
    if (!command(*connections[i], {"CLUSTER", "ADDSLOTSRANGE", first, last}, reason))
      return nullptr;
  }
  for (std::size_t i = 1; i < primaries; ++i) {
    const ServerProcess& other = *cluster->servers_[i];
    if (!command(*connections[0],
                 {"CLUSTER", "MEET", "127.0.0.1", std::to_string(other.port()),
                  std::to_string(other.cluster_port())},
                 reason)) {
      return nullptr;
    }
  }
  const net::Deadline deadline = net::Deadline::after(clock, kFormedWithin);
  while (
      !std::ranges::all_of(connections, [&](const auto& c) { return sees_all(*c, primaries); })) {
    if (deadline.expired(clock)) {
      if (reason != nullptr)
        *reason = "the cluster did not form; log of its first node: " + cluster->servers_[0]->log();
      return nullptr;
    }
    ::poll(nullptr, 0, 20);
  }
  return cluster;
}

std::size_t ClusterProcess::owner_of(std::uint16_t slot) const {
  std::size_t index = 0;
  while (index + 1 < servers_.size() && slot >= first_slot(index + 1, servers_.size())) ++index;
  return index;
}

}  // namespace farlift::testing
