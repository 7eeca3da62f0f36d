#include "apps/server.h"

#include "apps/files.h"
#include "apps/process.h"
#include "core/base/clock.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr Duration kStartLimit = std::chrono::seconds(60);
constexpr std::chrono::milliseconds kPollInterval(20);
constexpr int kPortTries = 5;  // another process may take a free port before the server does

std::string words(int error) { return std::generic_category().message(error); }

std::string first_word(const std::string& text) { return text.substr(0, text.find(' ')); }

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

Outcome<SocketAddress> address_of(const std::string& ip, std::uint16_t port) {
  SocketAddress out;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&out.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&out.storage);
  if (inet_pton(AF_INET, ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    out.size = sizeof *v4;
  } else if (inet_pton(AF_INET6, ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    out.size = sizeof *v6;
  } else {
    return fail(
        kExitUsage,
        fmt::format("'{}' is no numeric IP address; --bind wants for example 127.0.0.1", ip));
  }
  return out;
}

// Does something that speaks RESP answer there? Loading or locked counts only when it is over.
bool answers(const std::string& ip, std::uint16_t port, bool has_password) {
  Outcome<SocketAddress> address = address_of(ip, port);
  if (!address) return false;
  const UniqueFd socket(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval limit{1, 0};
  if (!socket || setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
    return false;
  if (connect(socket.get(), address->get(), address->size) != 0) return false;
  static constexpr char kPing[] = "PING\r\n";
  char reply[64] = {};
  if (send(socket.get(), kPing, sizeof kPing - 1, MSG_NOSIGNAL) < 0) return false;
  const ssize_t got = recv(socket.get(), reply, sizeof reply - 1, 0);
  return got > 0 &&
         (strncmp(reply, "+PONG", 5) == 0 || (has_password && strncmp(reply, "-NOAUTH", 7) == 0));
}

// A value of the server's configuration file.
std::string quoted(const std::string& value) {
  std::string out = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string configuration(const ServerOptions& options, const std::string& module,
                          std::uint16_t port) {
  std::string out = "# Written by farlift; lost at the next start.\n";
  const auto line = [&out](const std::string& name, const std::string& value) {
    out += name + " " + value + "\n";
  };
  line("port", fmt::format("{}", port));
  line("bind", options.bind);
  line("dir", quoted(options.directory));
  line("daemonize", "no");
  line("always-show-logo", "no");
  if (!options.unix_path.empty()) line("unixsocket", quoted(options.unix_path));
  if (!options.password.empty()) line("requirepass", quoted(options.password));
  if (options.keep_data) {
    line("save", "3600 1");
  } else {
    line("save", "\"\"");
  }
  for (const auto& [name, value] : options.server) line(name, quoted(value));
  line("loadmodule", quoted(module));
  for (const auto& [name, value] : options.module) line("largeobj." + name, quoted(value));
  return out;
}

Outcome<Child> launch(const ServerOptions& options, const std::string& binary,
                      const std::string& module, std::uint16_t port, const std::string& log) {
  const std::string file = options.directory + "/valkey.conf";
  Outcome<void> written = write_file(file, configuration(options, module, port));
  if (!written) return fail(written.error());
  unlink(log.c_str());
  return Child::start({{binary, file}, log, options.directory});
}

}  // namespace

Outcome<std::string> find_module() {
  static constexpr const char* kName = "libfarlift_blob.so";
  if (const char* named = getenv("FARLIFT_MODULE"); named != nullptr && named[0] != '\0') {
    if (access(named, R_OK) == 0) return std::string(named);
    return fail(kExitUsage, fmt::format("FARLIFT_MODULE names {}, which cannot be read", named));
  }
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self);
  const std::string binary(self, length > 0 ? static_cast<std::size_t>(length) : 0);
  const std::string folder = binary.substr(0, binary.rfind('/'));
  for (const char* place : {"/../lib/", "/../lib/farlift/", "/"}) {
    const std::string candidate = folder + place + kName;
    char real[PATH_MAX];
    if (realpath(candidate.c_str(), real) != nullptr) return std::string(real);
  }
  return fail(
      kExitFailed,
      fmt::format(
          "{} is not beside this binary ({}/../lib); build it, or name it in FARLIFT_MODULE", kName,
          folder));
}

Outcome<std::string> find_valkey_server() {
  const char* named = getenv("FARLIFT_VALKEY");
  const std::string name = named != nullptr && named[0] != '\0' ? named : "valkey-server";
  if (std::optional<std::string> found = find_in_path(name)) return *found;
  return fail(kExitFailed,
              fmt::format("{} was not found; install Valkey 8.0 or newer (Debian 12: package "
                          "valkey-server in bookworm-backports), or name it in FARLIFT_VALKEY",
                          name));
}

Outcome<UniqueFd> lock_directory(const std::string& directory) {
  const std::string path = directory + "/lock";
  UniqueFd lock(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return fail(kExitFailed, fmt::format("cannot write {}: {}", path, words(errno)));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return fail(
        kExitUsage,
        fmt::format("{} is in use by a running farlift; stop it with `{} up --stop --dir {}` "
                    "or choose another --dir",
                    directory, how_to_call_us(), directory));
  }
  return lock;
}

Outcome<std::uint16_t> free_port(const std::string& bind) {
  Outcome<SocketAddress> address = address_of(bind, 0);
  if (!address) return fail(address.error());
  const UniqueFd socket(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::bind(socket.get(), address->get(), address->size) != 0 ||
      getsockname(socket.get(), address->get(), &address->size) != 0) {
    return fail(kExitUsage, fmt::format("cannot listen on {}: {}", bind, words(errno)));
  }
  return ntohs(
      reinterpret_cast<sockaddr_in*>(&address->storage)->sin_port);  // same place in sockaddr_in6
}

Outcome<std::unique_ptr<PrivateServer>> PrivateServer::start(const ServerOptions& options) {
  Outcome<std::string> module = find_module();
  if (!module) return fail(module.error());
  Outcome<std::string> binary = find_valkey_server();
  if (!binary) return fail(binary.error());
  Outcome<UniqueFd> lock = lock_directory(options.directory);
  if (!lock) return fail(lock.error());
  const std::string log = options.directory + "/valkey.log";
  const std::string ip = first_word(options.bind);
  const SystemClock clock;
  for (int tries = 0;; ++tries) {
    std::uint16_t port = options.port;
    if (port == 0) {
      Outcome<std::uint16_t> free = free_port(ip);
      if (!free) return fail(free.error());
      port = *free;
    }
    Outcome<Child> child = launch(options, *binary, *module, port, log);
    if (!child) return fail(child.error());
    std::unique_ptr<PrivateServer> server(
        new PrivateServer(std::move(*child), std::move(*lock), log, port));
    const Instant limit = clock.now() + kStartLimit;
    std::optional<int> ended;
    while (!(ended = server->child_.ended(kPollInterval)) && clock.now() < limit) {
      if (answers(ip, port, !options.password.empty())) return server;
    }
    const std::string complaint = server->complaint();
    if (ended && options.port == 0 && tries + 1 < kPortTries &&
        complaint.find("in use") != std::string::npos) {
      *lock = std::move(server->lock_);
      continue;
    }
    return fail(kExitFailed,
                fmt::format("valkey-server {}: {}",
                            ended ? describe_wait_status(*ended) : "did not answer within 60 s",
                            complaint));
  }
}

PrivateServer::~PrivateServer() { stop(); }

void PrivateServer::stop() { child_.stop(); }

std::string PrivateServer::complaint() const {
  Outcome<std::string> text = read_file(log_, 1u << 20);
  if (!text || text->empty()) return "it logged nothing";
  // Warnings are marked with '#' before the message; what is not a log line comes from the loader.
  std::vector<std::string> lines;
  for (std::size_t from = 0; from < text->size();) {
    const std::size_t to = std::min(text->find('\n', from), text->size());
    const std::string line = text->substr(from, to - from);
    from = to + 1;
    const std::size_t mark = line.find(" # ");
    const bool logged =
        line.find(":M ") != std::string::npos || line.find(":C ") != std::string::npos;
    if (line.empty() || (logged && mark == std::string::npos)) continue;
    if (line.find("overcommit") != std::string::npos || line.find("somaxconn") != std::string::npos)
      continue;
    lines.push_back(mark == std::string::npos ? line : line.substr(mark + 3));
  }
  std::string out;
  for (std::size_t i = lines.size() > 4 ? lines.size() - 4 : 0; i < lines.size(); ++i) {
    out += (out.empty() ? "" : " | ") + lines[i];
  }
  return out.empty() ? "see " + log_ : out;
}

}  // namespace farlift::apps
