#include "apps/node.h"

#include "apps/console.h"
#include "apps/files.h"
#include "apps/kv.h"
#include "apps/stack.h"
#include "core/base/prng.h"
#include "core/base/unique_fd.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"
#include "core/net/tls.h"
#include "kvcache/control/socket_transport.h"
#include "kvcache/control/valkey_directory.h"
#include "kvcache/node/node.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr int kWaitMsMax = 1000;
constexpr int kRetractPollMs = 10;
constexpr const char* kDefaultQuota = "1g";

Outcome<kv::ValkeyOptions> valkey_options(const NodeCommand& command) {
  kv::ValkeyOptions out;
  out.connection.username = command.username;
  out.connection.password = command.password;
  if (const char* password = getenv("FARLIFT_PASSWORD");
      out.connection.password.empty() && password != nullptr) {
    out.connection.password = password;
  }
  if (command.tls.enabled) {
    net::TlsOptions tls;
    tls.ca_file = command.tls.ca_file;
    tls.certificate_file = command.tls.certificate_file;
    tls.key_file = command.tls.key_file;
    tls.server_name = command.tls.server_name;
    tls.insecure = !command.tls.verify_peer;
    out.connection.tls = tls;
    out.sentinel_tls = true;
  } else if (!command.tls.ca_file.empty() || !command.tls.certificate_file.empty()) {
    return fail(kExitUsage, "--cacert and --cert are for --tls");
  }
  out.connection.client_name = fmt::format("farlift-node-{}", command.id);
  if (command.cluster && !command.sentinel_primary.empty())
    return fail(kExitUsage, "--cluster and --sentinel exclude each other");
  std::vector<resp::Endpoint> places;
  if (!command.directory.empty()) {
    Outcome<Stack> stack = read_stack(command.directory);
    if (!stack) return fail(stack.error());
    places.push_back({stack->host, stack->port});
    if (out.connection.password.empty()) out.connection.password = stack->password;
  } else {
    for (const std::string& text : command.valkey) {
      Outcome<NodeAddress> place = parse_address(text);
      if (!place) return fail(Failure{kExitUsage, "--valkey: " + place.error().text});
      places.push_back({place->host, place->port});
    }
  }
  if (!command.sentinel_primary.empty()) {
    out.mode = kv::ValkeyOptions::Mode::sentinel;
    out.primary_name = command.sentinel_primary;
    out.sentinels = places;
    return out;
  }
  if (command.cluster) out.mode = kv::ValkeyOptions::Mode::cluster;
  if (places.size() > 1 && !command.cluster)
    return fail(kExitUsage, "several --valkey need --cluster or --sentinel");
  out.connection.host = places.front().host;
  out.connection.port = places.front().port;
  out.more_seeds.assign(places.begin() + 1, places.end());
  return out;
}

// One certificate serves both ways: clients are accepted with it, other nodes are called with it.
Outcome<kv::SocketTransportOptions> link_options(const NodeCommand& command) {
  kv::SocketTransportOptions out;
  if (command.link_certificate.empty() != command.link_key.empty())
    return fail(kExitUsage, "--link-cert and --link-key-file go together");
  if (command.link_certificate.empty()) {
    if (command.link_ca.empty() && !command.link_mutual) return out;
    return fail(kExitUsage, "--link-cacert and --link-mutual need --link-cert");
  }
  if (command.link_mutual && command.link_ca.empty())
    return fail(kExitUsage, "--link-mutual needs --link-cacert");
  net::TlsOptions tls;
  tls.certificate_file = command.link_certificate;
  tls.key_file = command.link_key;
  tls.only_tls13 = true;
  if (command.link_mutual) tls.ca_file = command.link_ca;
  std::string why;
  auto accepting = net::TlsContext::make_server(tls, &why);
  if (!accepting.ok()) return fail(kExitUsage, "--link-cert: " + why);
  tls.ca_file = command.link_ca;
  auto calling = net::TlsContext::make(tls, &why);
  if (!calling.ok()) return fail(kExitUsage, "--link-cacert: " + why);
  out.server_tls = std::move(accepting).value();
  out.client_tls = std::move(calling).value();
  return out;
}

Outcome<kv::TenantOptions> tenant_of(const std::string& text) {
  kv::TenantOptions tenant;
  std::string keys;
  std::string quota = kDefaultQuota;
  std::size_t from = 0;
  for (bool first = true; from <= text.size(); first = false) {
    const std::size_t end = std::min(text.find(',', from), text.size());
    const std::string word = text.substr(from, end - from);
    from = end + 1;
    if (first) {
      tenant.name = word;
    } else if (word.rfind("keys=", 0) == 0) {
      keys = word.substr(5);
    } else if (word.rfind("quota=", 0) == 0) {
      quota = word.substr(6);
    } else {
      return fail(kExitUsage,
                  fmt::format("--tenant wants NAME,keys=FILE,quota=SIZE, not '{}'", text));
    }
  }
  if (!kv::valid_tenant(tenant.name)) {
    return fail(kExitUsage,
                fmt::format("'{}' is no tenant name: 1 to 64 of A-Z a-z 0-9 _ . -", tenant.name));
  }
  Outcome<std::uint64_t> bytes = parse_bytes(quota);
  if (!bytes) return fail(bytes.error());
  tenant.quota = Length(*bytes);
  if (keys.empty()) {
    tenant.keys = kv::Keyring::development();
    return tenant;
  }
  std::string why;
  Result<kv::Keyring> ring = kv::Keyring::load(keys, &why);
  if (!ring.ok()) return fail(kExitUsage, "--tenant " + tenant.name + ": " + why);
  tenant.keys = std::move(ring).value();
  return tenant;
}

Outcome<std::vector<kv::Rail>> rails_of(const NodeCommand& command, const Clock& clock) {
  std::vector<std::string> interfaces = command.interfaces;
  if (interfaces.empty()) interfaces.emplace_back();
  std::vector<kv::Rail> rails;
  for (const std::string& interface_name : interfaces) {
    kv::Rail rail;
    rail.provider = command.provider;
    rail.listen_ip = command.listen;
    if (command.provider == "soft") {
      // A soft rail is an address; the name of an interface means nothing to it.
      const std::string ip = interface_name.empty() ? command.listen : interface_name;
      rail.listen_ip = ip;
      rail.open_domain = [ip, &clock] {
        return fabric::soft::open_domain({.listen_ip = ip}, clock);
      };
    } else {
      fabric::ofi::OfiOptions ofi;
      ofi.provider = command.provider == "tcp"     ? fabric::ofi::Provider::tcp
                     : command.provider == "verbs" ? fabric::ofi::Provider::verbs
                                                   : fabric::ofi::Provider::efa;
      ofi.interface_name = interface_name;
      if (interface_name.empty() && command.provider != "efa") ofi.listen_ip = command.listen;
      std::string why;
      const auto found = fabric::ofi::list_domains(ofi, &why);
      if (!found.ok()) return fail(kExitFailed, why);
      rail.provider = kv::rail_name(found->front().provider);  // as clients call it, too
      rail.open_domain = [ofi, &clock] { return fabric::ofi::open_domain(ofi, clock); };
    }
    rails.push_back(std::move(rail));
  }
  return rails;
}

Outcome<kv::NodeOptions> node_options(const NodeCommand& command) {
  kv::NodeOptions out;
  out.id = kv::NodeId(command.id);
  out.listen_ip = command.listen;
  out.port = command.port;
  out.advertise_host = command.advertise;
  for (const std::string& text : command.tenants) {
    Outcome<kv::TenantOptions> tenant = tenant_of(text);
    if (!tenant) return fail(tenant.error());
    out.tenants.push_back(std::move(*tenant));
  }
  if (out.tenants.empty()) return fail(kExitUsage, "give at least one --tenant");
  Outcome<std::uint64_t> arena = parse_bytes(command.arena_size);
  if (!arena) return fail(arena.error());
  out.arena_size = Length(*arena);
  if (!command.pinned_max.empty()) {
    Outcome<std::uint64_t> pinned = parse_bytes(command.pinned_max);
    if (!pinned) return fail(pinned.error());
    out.pinned_max = Length(*pinned);
  }
  out.grace = std::chrono::milliseconds(command.grace_ms);
  out.lease = std::chrono::milliseconds(command.lease_ms);
  out.operation_limit = std::chrono::milliseconds(command.operation_limit_ms);
  out.descriptor_ttl = std::chrono::seconds(command.descriptor_ttl_s);
  return out;
}

UniqueFd node_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&wanted, s);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  return UniqueFd(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
}

// What a process holds besides its node; declared so that the node ends first.
struct Running {
  SystemClock clock;
  std::unique_ptr<kv::SocketTransport> transport;
  std::unique_ptr<kv::ValkeyDirectory> directory;
  std::unique_ptr<kv::Node> node;
};

Outcome<std::unique_ptr<Running>> bring_up(const NodeCommand& command) {
  auto running = std::make_unique<Running>();
  Outcome<kv::NodeOptions> options = node_options(command);
  if (!options) return fail(options.error());
  Outcome<kv::ValkeyOptions> valkey = valkey_options(command);
  if (!valkey) return fail(valkey.error());
  Outcome<std::vector<kv::Rail>> rails = rails_of(command, running->clock);
  if (!rails) return fail(rails.error());
  Outcome<kv::SocketTransportOptions> links = link_options(command);
  if (!links) return fail(links.error());
  auto transport = kv::SocketTransport::open(running->clock, *links);
  if (!transport.ok())
    return fail(kExitFailed, "cannot open sockets: " + transport.error().describe());
  running->transport = std::move(transport).value();
  std::string why;
  auto directory = kv::ValkeyDirectory::open(running->clock, *valkey, &why);
  if (!directory.ok()) return fail(kExitUsage, "cannot use the directory: " + why);
  running->directory = std::move(directory).value();
  const kv::Environment environment{running->clock, secure_random, *running->directory,
                                    *running->transport, std::move(*rails)};
  auto node = kv::Node::create(environment, std::move(*options), &why);
  if (!node.ok()) return fail(kExitFailed, why.empty() ? node.error().describe() : why);
  running->node = std::move(node).value();
  return running;
}

void announce(const NodeCommand& command, const kv::Node& node) {
  const std::string incarnation = fmt::format("{:016x}", node.incarnation().raw());
  if (command.json) {
    print(JsonObject()
              .integer("node", static_cast<std::int64_t>(node.id().raw()))
              .text("incarnation", incarnation)
              .integer("port", node.port())
              .integer("pid", getpid())
              .str() +
          "\n");
    return;
  }
  say(command.quiet,
      fmt::format("data node {} serves at {}:{} (incarnation {}, process {})", node.id().raw(),
                  command.listen, node.port(), incarnation, getpid()));
  say(command.quiet, "  stop: Ctrl-C or SIGTERM    empty it first: SIGUSR1");
}

// Whether clients can find the node by now: its record is in the directory. Before that nobody is
// told that it serves.
class Announcement {
 public:
  Announcement(const kv::Node& node, kv::Directory& directory, const Clock& clock)
      : node_(node), directory_(directory), clock_(clock), ask_(clock.now()) {}

  // True once.
  bool just_seen() {
    if (told_) return false;
    if (*seen_) return told_ = true;
    if (clock_.now() < ask_) return false;
    ask_ = clock_.now() + kAskEvery;
    directory_.find_node(node_.id(), [seen = seen_, incarnation = node_.incarnation()](
                                         const Result<std::optional<kv::NodeRecord>>& found) {
      if (found.ok() && found->has_value() && (*found)->incarnation == incarnation) *seen = true;
    });
    return false;
  }
  Instant next() const noexcept { return told_ ? Instant::max() : ask_; }

 private:
  static constexpr Duration kAskEvery = std::chrono::milliseconds(50);
  const kv::Node& node_;
  kv::Directory& directory_;
  const Clock& clock_;
  Instant ask_;
  std::shared_ptr<bool> seen_ = std::make_shared<bool>(false);
  bool told_ = false;
};

// The record would be believed until its lease ends: clients would knock at a closed door.
void retract(const kv::Node& node, kv::Directory& directory, const Clock& clock) {
  // Shared: past the deadline the answer comes when the directory is closed, after we have left.
  const auto done = std::make_shared<bool>(false);
  directory.retract(node.id(), [done](const Status&) { *done = true; });
  const Instant end = clock.now() + kv::kControlTimeout;
  while (!*done && clock.now() < end) {
    if (directory.step()) continue;
    pollfd watched{directory.wait_fd(), POLLIN, 0};
    ::poll(&watched, 1, kRetractPollMs);
  }
}

// Sleeps until something is due. True: a signal asked us to stop.
bool wait_and_see(kv::Node& node, Instant until, const Clock& clock, int signals) {
  std::vector<pollfd> watched{{signals, POLLIN, 0}};
  for (const int fd : node.wait_fds()) watched.push_back({fd, POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(
      std::min(until, node.next_deadline()) - clock.now());
  const auto ms = std::clamp<std::int64_t>(left.count(), 0, kWaitMsMax);
  if (::poll(watched.data(), watched.size(), static_cast<int>(ms)) < 0 && errno != EINTR)
    return true;
  if ((watched[0].revents & POLLIN) == 0) return false;
  signalfd_siginfo info{};
  if (::read(signals, &info, sizeof info) != sizeof info) return false;
  if (info.ssi_signo != SIGUSR1) return true;
  node.drain();
  return false;
}

}  // namespace

int run_node(const NodeCommand& command) {
  const UniqueFd signals = node_signals();
  Outcome<std::unique_ptr<Running>> running = bring_up(command);
  if (!running) return report(running.error(), command.json);
  kv::Node& node = *(*running)->node;
  Announcement announcement(node, *(*running)->directory, (*running)->clock);
  while (!node.drained()) {
    // A busy node looks at its signals, too: once in a while is enough.
    for (int turns = 0; turns < 1000 && node.step(); ++turns) {
    }
    if (announcement.just_seen()) {
      announce(command, node);
      if (!command.ready_file.empty()) {
        Outcome<void> written = write_file(command.ready_file, fmt::format("{}\n", node.port()));
        if (!written) return report(written.error(), command.json);
      }
    }
    if (wait_and_see(node, announcement.next(), (*running)->clock, signals.get())) break;
  }
  retract(node, *(*running)->directory, (*running)->clock);
  if (node.drained()) say(command.quiet || command.json, "drained");
  return kExitOk;
}

}  // namespace farlift::apps
