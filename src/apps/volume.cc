#include "apps/volume.h"

#include "apps/console.h"
#include "apps/security_file.h"
#include "apps/service.h"
#include "core/base/log.h"
#include "core/disk/disk.h"
#include "core/fabric/soft/soft.h"
#include "core/net/http/server.h"
#include "s3/volume/control.h"
#include "s3/volume/http_api.h"
#include "s3/volume/http_peer.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <unistd.h>

namespace farlift::apps {

namespace {

using namespace s3::volume;

constexpr Duration kStopGrace = std::chrono::seconds(10);

// Declared so that what uses something ends before it.
struct VolumeServer {
  SystemClock clock;
  std::unique_ptr<Store> store;
  std::unique_ptr<Access> access;
  std::unique_ptr<Writes> writes;
  std::unique_ptr<fabric::Domain> domain;
  std::unique_ptr<Mover> mover;
  std::unique_ptr<Uploads> uploads;
  std::unique_ptr<Control> control;
  std::unique_ptr<HttpApi> api;
  std::unique_ptr<net::http::Server> http;
};

Outcome<std::uint32_t> parse_dc_key(const std::string& text) {
  std::size_t end = 0;
  unsigned long value = 0;
  try {
    value = std::stoul(text, &end, 0);
  } catch (const std::exception&) {
    end = 0;
  }
  if (end != text.size() || end == 0 || value > 0xffffffffUL)
    return fail(kExitUsage, "--dc-key: '" + text + "' is no 32-bit number such as 0xffeeddcc");
  return static_cast<std::uint32_t>(value);
}

Outcome<Length> length_of(const std::string& text) {
  Outcome<std::uint64_t> bytes = parse_bytes(text);
  if (!bytes) return fail(bytes.error());
  return Length(*bytes);
}

Outcome<StoreOptions> store_options(const VolumeCommand& command) {
  StoreOptions out;
  if (command.fsync == "always") {
    out.volume.sync = SyncRule::always;
  } else if (command.fsync != "batch") {
    return fail(kExitUsage, "--fsync is 'always' or 'batch'");
  }
  Outcome<Length> size = length_of(command.volume_size);
  if (!size) return fail(size.error());
  out.volume.size_max = *size;
  Outcome<Length> keep = length_of(command.keep_free);
  if (!keep) return fail(keep.error());
  out.volume.keep_free = *keep;
  if (command.compact_percent > 99)
    return fail(kExitUsage, "--compact-percent is between 0 (never) and 99");
  out.compact_percent = command.compact_percent;
  return out;
}

Outcome<AccessKeys> access_keys(const VolumeCommand& command) {
  if (command.security.empty()) return AccessKeys{};
  Outcome<SecurityFile> file = read_security_file(command.security);
  if (!file) return fail(file.error());
  return AccessKeys{file->write_key, file->read_key};
}

Outcome<void> open_store(VolumeServer& server, const VolumeCommand& command) {
  disk::DirectoryOptions options;
  options.exclusive = true;
  if (command.disk == "posix") {
    options.backend = disk::Backend::posix;
  } else if (command.disk == "uring") {
    options.backend = disk::Backend::uring;
  } else if (command.disk != "auto") {
    return fail(kExitUsage, "--disk is 'auto', 'posix' or 'uring'");
  }
  Outcome<StoreOptions> wanted = store_options(command);
  if (!wanted) return fail(wanted.error());
  auto directory = disk::open_directory(command.directory, options);
  if (!directory.ok()) {
    return fail(kExitFailed,
                directory.code() == Errc::busy
                    ? command.directory + " is in use by another volume server"
                    : "cannot open " + command.directory + ": " + directory.error().describe());
  }
  auto store = Store::open(std::move(directory).value(), *wanted);
  if (!store.ok())
    return fail(kExitFailed, "cannot open " + command.directory + ": " + store.error().describe());
  server.store = std::move(store).value();
  for (std::uint32_t id = 1; id <= command.volumes; ++id) {
    const auto made = server.store->assign(VolumeId(id));
    if (!made.ok())
      return fail(kExitFailed,
                  fmt::format("cannot make volume {}: {}", id, made.error().describe()));
  }
  return {};
}

Outcome<void> open_writes(VolumeServer& server, const VolumeCommand& command) {
  Outcome<AccessKeys> keys = access_keys(command);
  if (!keys) return fail(keys.error());
  server.access =
      std::make_unique<Access>(*keys, command.allow_unauthenticated_reads, system_wall_clock);
  std::vector<std::shared_ptr<Peer>> peers;
  for (const std::string& text : command.replicas) {
    Outcome<HostPort> at = parse_host_port(text, "--replica");
    if (!at) return fail(at.error());
    peers.push_back(std::make_shared<HttpPeer>(at->host, at->port, *server.access, server.clock));
  }
  server.writes = std::make_unique<Writes>(*server.store, std::move(peers));
  return {};
}

Outcome<void> open_control(VolumeServer& server, const VolumeCommand& command, Length needle_max) {
  Outcome<std::uint32_t> dc_key = parse_dc_key(command.dc_key);
  if (!dc_key) return fail(dc_key.error());
  fabric::soft::SoftOptions soft;
  soft.listen_ip = command.listen;
  soft.dc_key = *dc_key;
  auto domain = fabric::soft::open_domain(soft, server.clock);
  if (!domain.ok())
    return fail(kExitUsage, "--listen: '" + command.listen + "' is no address of this machine");
  server.domain = std::move(domain).value();
  MoverOptions options;
  if (!command.pinned_budget.empty()) {
    Outcome<Length> budget = length_of(command.pinned_budget);
    if (!budget) return fail(budget.error());
    options.budget = *budget;
  }
  auto mover = Mover::create(*server.domain, server.clock, options);
  if (!mover.ok()) return fail(kExitFailed, "the fabric: " + mover.error().describe());
  server.mover = std::move(mover).value();
  Writes* const writes = server.writes.get();
  server.uploads = std::make_unique<Uploads>(
      server.clock, [writes](const NeedleRef& needle, std::span<const std::byte> data, Crc32c crc) {
        return writes->write(needle, {}, data, crc, true);
      });
  server.writes->set_uploads(server.uploads.get());
  ControlOptions control;
  control.listen_ip = command.listen;
  control.port = command.control_port;
  control.dc_key = *dc_key;
  control.max_transfer = needle_max;
  if (!command.targets.empty()) {
    auto rules = s3::AddressRules::parse(command.targets);
    if (!rules.ok())
      return fail(kExitUsage,
                  "--emulate-allow: '" + command.targets + "' is no list such as 10.0.0.0/8,::1");
    control.targets = *rules;
  }
  auto port = Control::start(
      {*server.store, *server.writes, *server.uploads, *server.mover, *server.access, server.clock},
      std::move(control));
  if (!port.ok()) return fail(kExitFailed, "the control port: " + port.error().describe());
  server.control = std::move(port).value();
  return {};
}

std::string pin_status(Mover& mover, const Control& control) {
  const PinCounters pins = mover.budget().counters();
  return fmt::format(
      ",\"control_port\":{},\"pinned_limit\":{},\"pinned_bytes\":{},\"pinned_peak\":{},"
      "\"budget_waits\":{},\"budget_refused\":{}",
      control.port(), mover.budget().limit().raw(), pins.pinned_bytes, pins.pinned_peak,
      pins.budget_waits, pins.budget_refused);
}

std::string control_metrics(Mover& mover, const Control& control) {
  const PinCounters pins = mover.budget().counters();
  const ControlCounters c = control.counters();
  std::string out;
  const auto line = [&out](std::string_view name, std::uint64_t value) {
    out += fmt::format("farlift_volume_{} {}\n", name, value);
  };
  line("control_connections_total", c.connections);
  line("pushes_total", c.pushes);
  line("pushed_bytes_total", c.pushed_bytes);
  line("prepares_total", c.prepares);
  line("commits_total", c.commits);
  line("committed_bytes_total", c.committed_bytes);
  line("control_refused_total", c.refused);
  line("pinned_bytes", pins.pinned_bytes);
  line("pinned_peak_bytes", pins.pinned_peak);
  line("budget_waits_total", pins.budget_waits);
  line("budget_refused_total", pins.budget_refused);
  line("registration_failures_total", pins.registration_failures);
  return out;
}

Outcome<void> open_http(VolumeServer& server, const VolumeCommand& command, Length needle_max) {
  HttpApiOptions options;
  options.needle_max = needle_max;
  Mover* const mover = server.mover.get();
  Control* const control = server.control.get();
  options.more_status = [mover, control] { return pin_status(*mover, *control); };
  options.more_metrics = [mover, control] { return control_metrics(*mover, *control); };
  server.api =
      std::make_unique<HttpApi>(*server.store, *server.writes, *server.access, std::move(options));
  net::http::ServerOptions http;
  http.host = command.listen;
  http.port = command.port;
  http.workers = command.workers;
  HttpApi* const api = server.api.get();
  auto started = net::http::Server::start(
      http,
      [api](net::http::Request& request, net::http::Response& response) {
        api->handle(request, response);
      },
      server.clock);
  if (!started.ok()) {
    return fail(kExitFailed, fmt::format("cannot serve at {}: {}",
                                         format_host_port(command.listen, command.port),
                                         started.error().describe()));
  }
  server.http = std::move(started).value();
  return {};
}

Outcome<std::unique_ptr<VolumeServer>> bring_up(const VolumeCommand& command) {
  if (command.workers < 1 || command.workers > 1024)
    return fail(kExitUsage, "--workers is between 1 and 1024");
  Outcome<Length> needle_max = length_of(command.needle_max);
  if (!needle_max) return fail(needle_max.error());
  auto server = std::make_unique<VolumeServer>();
  Outcome<void> done = open_store(*server, command);
  if (done) done = open_writes(*server, command);
  if (done) done = open_control(*server, command, *needle_max);
  if (done) done = open_http(*server, command, *needle_max);
  if (!done) return fail(done.error());
  return server;
}

void reload(VolumeServer& server, const VolumeCommand& command) {
  Outcome<AccessKeys> keys = access_keys(command);
  if (!keys) {
    log(LogLevel::error, "the keys stay as they were: " + keys.error().text);
    return;
  }
  server.access->set_keys(*keys);
  log(LogLevel::info, "the security file was read again");
}

void announce(const VolumeServer& server, const VolumeCommand& command) {
  if (command.json) {
    print(JsonObject()
              .integer("port", server.http->port())
              .integer("control_port", server.control->port())
              .integer("pid", getpid())
              .str() +
          "\n");
    return;
  }
  say(command.quiet,
      fmt::format("volume server serves {} at {}, control at {} (process {})", command.directory,
                  format_host_port(command.listen, server.http->port()),
                  format_host_port(command.listen, server.control->port()), getpid()));
  say(command.quiet,
      fmt::format("  disk: {}   registered memory: at most {}", server.store->disk().backend,
                  human_bytes(server.mover->budget().limit().raw())));
  if (command.allow_unauthenticated_reads)
    log(LogLevel::warning, "read checks of the control port are off: trusted networks only");
}

}  // namespace

int run_volume(const VolumeCommand& command) {
  const ServiceSignals signals;
  Outcome<std::unique_ptr<VolumeServer>> server = bring_up(command);
  if (!server) return report(server.error(), command.json);
  announce(**server, command);
  Outcome<void> told = tell_ready(command.ready_file, fmt::format("{} {}", (*server)->http->port(),
                                                                  (*server)->control->port()));
  if (!told) return report(told.error(), command.json);
  signals.wait([&] { reload(**server, command); });
  (*server)->http->stop(kStopGrace);
  (*server)->control->stop();
  (*server)->store->close();
  return kExitOk;
}

}  // namespace farlift::apps
