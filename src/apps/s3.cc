#include "apps/s3.h"

#include "apps/console.h"
#include "apps/files.h"
#include "apps/security_file.h"
#include "apps/service.h"
#include "core/base/log.h"
#include "core/net/tls.h"
#include "s3/catalog/sqlite_store.h"
#include "s3/gateway/gateway.h"
#include "s3/gateway/sweep.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace farlift::apps {

namespace {

using namespace s3::gateway;

constexpr Duration kStopGrace = std::chrono::seconds(15);
constexpr std::size_t kIdentitiesMax = std::size_t{4} << 20;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// Lines are written whole, each by one call, so that they never mix.
class AccessLogFile {
 public:
  static Outcome<std::shared_ptr<AccessLogFile>> open(const std::string& path) {
    if (path == "-") return std::make_shared<AccessLogFile>(UniqueFd(::dup(STDOUT_FILENO)));
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
    if (!fd)
      return fail(kExitUsage, "--access-log: cannot write " + path + ": " +
                                  Error::from_errno("open").describe());
    return std::make_shared<AccessLogFile>(std::move(fd));
  }
  explicit AccessLogFile(UniqueFd fd) : fd_(std::move(fd)) {}
  void line(const std::string& text) {
    if (::write(fd_.get(), text.data(), text.size()) < 0) {
      // A full disk must not stop requests.
    }
  }

 private:
  const UniqueFd fd_;
};

Outcome<std::shared_ptr<const Identities>> load_identities(const S3Command& command) {
  if (!command.identities.empty()) {
    Outcome<std::string> text = read_file(command.identities, kIdentitiesMax);
    if (!text) return fail(text.error());
    auto parsed = Identities::parse(*text);
    if (const std::string* why = std::get_if<std::string>(&parsed))
      return fail(kExitUsage, command.identities + ": " + *why);
    return std::get<0>(std::move(parsed));
  }
  if (command.anonymous) return Identities::open_to_all();
  std::string secret = command.secret_key;
  if (const char* from = getenv("FARLIFT_S3_SECRET_KEY"); secret.empty() && from != nullptr)
    secret = from;
  if (command.access_key.empty() || secret.empty()) {
    return fail(kExitUsage,
                "who may use it? Give --identities FILE, or --access-key with --secret-key (or "
                "$FARLIFT_S3_SECRET_KEY), or --anonymous");
  }
  return Identities::single(command.access_key, secret);
}

// Declared so that what uses something ends before it.
struct S3Server {
  SystemClock clock;
  std::unique_ptr<s3::catalog::Store> store;
  std::unique_ptr<VolumeClient> volumes;
  std::unique_ptr<Cluster> cluster;
  std::unique_ptr<IdentitySource> identities;
  std::unique_ptr<Services> services;
  std::unique_ptr<Sweep> sweep;
  std::unique_ptr<Gateway> gateway;
};

Outcome<void> open_catalog(S3Server& server, const S3Command& command) {
  if (::mkdir(command.directory.c_str(), 0750) != 0 && errno != EEXIST) {
    return fail(kExitFailed,
                "cannot make " + command.directory + ": " + Error::from_errno("mkdir").describe());
  }
  s3::catalog::SqliteOptions options;
  options.path = command.directory + "/catalog.db";
  options.sync_each_commit = command.catalog_sync == "full";
  options.now = now_ms;
  auto store = s3::catalog::open_sqlite_store(std::move(options));
  if (!store.ok()) {
    return fail(kExitFailed, store.code() == Errc::busy
                                 ? command.directory + " is in use by another gateway"
                                 : "cannot open the catalog in " + command.directory + ": " +
                                       store.error().describe());
  }
  server.store = std::move(store).value();
  return {};
}

Outcome<void> open_cluster(S3Server& server, const S3Command& command) {
  FixedClusterOptions options;
  for (const std::string& text : command.volumes) {
    Outcome<HostPort> at = parse_host_port(text, "--volume");
    if (!at) return fail(at.error());
    options.volumes.push_back(format_host_port(at->host, at->port));
  }
  if (!command.security.empty()) {
    Outcome<SecurityFile> file = read_security_file(command.security);
    if (!file) return fail(file.error());
    options.write_key = file->write_key;
    options.read_key = file->read_key;
  }
  options.now_s = [] { return static_cast<std::uint64_t>(now_ms() / 1000); };
  server.volumes = std::make_unique<VolumeClient>(VolumeClientOptions(), server.clock);
  server.cluster =
      make_fixed_cluster(std::move(options), *server.store, *server.volumes, server.clock);
  return {};
}

Outcome<std::shared_ptr<const net::TlsContext>> tls_of(const S3Command& command) {
  if (command.certificate.empty() != command.private_key.empty())
    return fail(kExitUsage, "--cert and --key-file go together");
  if (command.certificate.empty()) return std::shared_ptr<const net::TlsContext>();
  net::TlsOptions tls;
  tls.certificate_file = command.certificate;
  tls.key_file = command.private_key;
  std::string why;
  auto context = net::TlsContext::make_server(tls, &why);
  if (!context.ok()) return fail(kExitUsage, "--cert: " + why);
  return std::shared_ptr<const net::TlsContext>(std::move(context).value());
}

Outcome<void> open_gateway(S3Server& server, const S3Command& command) {
  Outcome<std::shared_ptr<const Identities>> identities = load_identities(command);
  if (!identities) return fail(identities.error());
  server.identities = std::make_unique<IdentitySource>(*identities);
  GatewayOptions options;
  options.region = command.region;
  options.domain = command.domain;
  server.services =
      std::make_unique<Services>(Services{server.clock, *server.store, *server.cluster,
                                          *server.volumes, *server.identities, options, now_ms});
  server.sweep = Sweep::start(*server.services, std::chrono::seconds(command.sweep_s));
  Outcome<std::shared_ptr<const net::TlsContext>> tls = tls_of(command);
  if (!tls) return fail(tls.error());
  net::http::ServerOptions http;
  http.host = command.listen;
  http.port = command.port;
  http.workers = command.workers;
  http.connections_max = command.connections_max;
  http.tls = *tls;
  Gateway::AccessLog access_log;
  if (!command.access_log.empty()) {
    Outcome<std::shared_ptr<AccessLogFile>> file = AccessLogFile::open(command.access_log);
    if (!file) return fail(file.error());
    access_log = [file = *file](const std::string& line) { file->line(line); };
  }
  auto gateway = Gateway::start(*server.services, std::move(http), std::move(access_log));
  if (!gateway.ok()) {
    return fail(kExitFailed, fmt::format("cannot serve at {}: {}",
                                         format_host_port(command.listen, command.port),
                                         gateway.error().describe()));
  }
  server.gateway = std::move(gateway).value();
  return {};
}

Outcome<std::unique_ptr<S3Server>> bring_up(const S3Command& command) {
  if (command.workers < 1 || command.workers > 4096)
    return fail(kExitUsage, "--workers is between 1 and 4096");
  auto server = std::make_unique<S3Server>();
  Outcome<void> done = open_catalog(*server, command);
  if (done) done = open_cluster(*server, command);
  if (done) done = open_gateway(*server, command);
  if (!done) return fail(done.error());
  return server;
}

void reload(S3Server& server, const S3Command& command) {
  Outcome<std::shared_ptr<const Identities>> identities = load_identities(command);
  if (!identities) {
    log(LogLevel::error, "identities stay as they were: " + identities.error().text);
    return;
  }
  server.identities->replace(*identities);
  log(LogLevel::info, "identities were read again");
}

void announce(const S3Server& server, const S3Command& command) {
  if (command.json) {
    print(JsonObject().integer("port", server.gateway->port()).integer("pid", getpid()).str() +
          "\n");
    return;
  }
  say(command.quiet,
      fmt::format("S3 at {}://{} (process {})", command.certificate.empty() ? "http" : "https",
                  format_host_port(command.listen, server.gateway->port()), getpid()));
}

}  // namespace

int run_s3(const S3Command& command) {
  const ServiceSignals signals;
  Outcome<std::unique_ptr<S3Server>> server = bring_up(command);
  if (!server) return report(server.error(), command.json);
  announce(**server, command);
  Outcome<void> told =
      tell_ready(command.ready_file, fmt::format("{}", (*server)->gateway->port()));
  if (!told) return report(told.error(), command.json);
  signals.wait([&] { reload(**server, command); });
  (*server)->gateway->stop(kStopGrace);
  return kExitOk;
}

}  // namespace farlift::apps
