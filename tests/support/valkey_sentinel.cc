#include "core/base/clock.h"
#include "core/net/deadline.h"

#include <algorithm>
#include <poll.h>
#include <string>
#include <vector>

#include "tests/support/valkey_server.h"

namespace farlift::testing {
namespace {

constexpr auto kReadyWithin = std::chrono::seconds(50);
constexpr std::size_t kSentinels = 3;
const SystemClock kClock;

// What the server at `port` answers, as text; aggregates are joined.
std::string flat(const resp::Value& value) {
  if (value.type() == resp::Type::integer) return std::to_string(value.integer());
  if (value.is_text()) return std::string(value.text());
  std::string all;
  if (value.is_aggregate()) {
    for (const resp::Value& item : value.items()) all += flat(item) + "\n";
  }
  return all;
}

std::string ask(const ServerProcess& server, std::initializer_list<std::string_view> words) {
  auto connection = resp::Connection::connect(server.connection_options(), kClock);
  if (!connection.ok()) return "";
  const auto reply = (*connection)->request(words);
  return reply.ok() ? flat(*reply) : "";
}

}  // namespace

std::unique_ptr<SentinelSet> SentinelSet::start(const ServerOptions& options, std::string* reason) {
  auto set = std::make_unique<SentinelSet>();
  auto primary = ServerProcess::start(options, reason);
  if (primary == nullptr) return nullptr;
  const std::string port = std::to_string(primary->port());
  ServerOptions following = options;
  for (const std::string& word : {std::string("--replicaof"), std::string("127.0.0.1"), port,
                                  std::string("--repl-diskless-sync-delay"), std::string("0")})
    following.arguments.push_back(word);
  auto replica = ServerProcess::start(following, reason);
  if (replica == nullptr) return nullptr;
  for (std::size_t i = 0; i < kSentinels; ++i) {
    ServerOptions own;
    own.program = options.program;
    own.sentinel = {"sentinel monitor main 127.0.0.1 " + port + " 2",
                    "sentinel down-after-milliseconds main 1000",
                    "sentinel failover-timeout main 5000"};
    auto sentinel = ServerProcess::start(own, reason);
    if (sentinel == nullptr) return nullptr;
    set->sentinels_.push_back(std::move(sentinel));
  }
  const auto complete = [&](const auto& sentinel) {
    const std::string known = ask(*sentinel, {"SENTINEL", "master", "main"});
    return known.find("num-slaves\n1\n") != std::string::npos &&
           known.find("num-other-sentinels\n2\n") != std::string::npos;
  };
  const net::Deadline deadline = net::Deadline::after(kClock, kReadyWithin);
  for (;;) {
    const bool in_step =
        ask(*replica, {"INFO", "replication"}).find("master_link_status:up") != std::string::npos;
    if (in_step && std::ranges::all_of(set->sentinels_, complete)) break;
    if (deadline.expired(kClock)) {
      if (reason != nullptr) *reason = "the sentinels did not agree: " + set->sentinels_[0]->log();
      return nullptr;
    }
    ::poll(nullptr, 0, 50);
  }
  set->servers_.push_back(std::move(primary));
  set->servers_.push_back(std::move(replica));
  return set;
}

std::vector<resp::Endpoint> SentinelSet::sentinels() const {
  std::vector<resp::Endpoint> all;
  for (const auto& sentinel : sentinels_) all.push_back({"127.0.0.1", sentinel->port()});
  return all;
}

}  // namespace farlift::testing
