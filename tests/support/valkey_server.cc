#include "tests/support/valkey_server.h"

#include "core/base/clock.h"
#include "core/base/unique_fd.h"

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace farlift::testing {
namespace {

using resp::Connection;
using resp::ConnectionOptions;
using resp::Value;

constexpr auto kReadyWithin = std::chrono::seconds(40);
constexpr auto kEndWithin = std::chrono::seconds(20);
constexpr int kStartsMax = 5;  // each with other ports
constexpr int kPollMs = 10;

void pause() { ::poll(nullptr, 0, kPollMs); }

std::string tail(const std::string& text) {
  return text.size() > 2000 ? text.substr(text.size() - 2000) : text;
}

}  // namespace

std::uint16_t free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd.get(), generic, length) != 0 || ::getsockname(fd.get(), generic, &length) != 0)
    std::abort();
  return ntohs(address.sin_port);
}

std::unique_ptr<ServerProcess> ServerProcess::start(const ServerOptions& options,
                                                    std::string* reason) {
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  server->options_ = options;
  if (options.tls_files) {
    server->tls_files_ = *options.tls_files;
  } else if (options.tls && !TlsFiles::make(server->directory(), server->tls_files_, reason)) {
    return nullptr;
  }
  for (int attempt = 0; attempt < kStartsMax; ++attempt) {
    // Somebody may take the port between our look and the server's bind; then we look again.
    server->port_ = free_port();
    server->cluster_port_ = free_port();
    if (server->launch(reason)) return server;
    if (server->log().find("Address already in use") == std::string::npos) break;
  }
  return nullptr;
}

ServerProcess::~ServerProcess() { terminate(); }

std::vector<std::string> ServerProcess::command_line() const {
  const char* chosen = std::getenv("FARLIFT_VALKEY_SERVER");
  std::string program = options_.program;
  if (program.empty()) program = chosen != nullptr && *chosen != '\0' ? chosen : "valkey-server";
  const std::string port = std::to_string(port_);
  if (!options_.sentinel.empty()) {
    // A sentinel rewrites its configuration, so it needs a file of its own.
    std::ofstream file(dir_.file("sentinel.conf"));
    file << "port " << port << "\nbind 127.0.0.1\ndir " << directory() << "\nunixsocket "
         << unix_path() << "\n";
    for (const std::string& text : options_.sentinel) file << text << "\n";
    return {program, dir_.file("sentinel.conf"), "--sentinel"};
  }
  std::vector<std::string> line{program,       "--dir",  directory(),    "--unixsocket",
                                unix_path(),   "--bind", "127.0.0.1",    "-::1",
                                "--save",      "",       "--appendonly", "no",
                                "--daemonize", "no",     "--logfile",    ""};
  const auto add = [&line](std::initializer_list<std::string> more) {
    line.insert(line.end(), more);
  };
  if (options_.tls) {
    add({"--port", "0", "--tls-port", port, "--tls-cert-file", tls_files_.server_certificate,
         "--tls-key-file", tls_files_.server_key, "--tls-ca-cert-file", tls_files_.ca,
         "--tls-auth-clients", options_.tls_client_certificates ? "yes" : "no"});
  } else {
    add({"--port", port});
  }
  if (options_.cluster) {
    add({"--cluster-enabled", "yes", "--cluster-port", std::to_string(cluster_port_),
         "--cluster-node-timeout", "5000"});
    if (options_.tls) add({"--tls-cluster", "no"});
  }
  if (!options_.password.empty()) add({"--requirepass", options_.password});
  line.insert(line.end(), options_.arguments.begin(), options_.arguments.end());
  return line;
}

bool ServerProcess::spawn(const std::vector<std::string>& arguments, std::string* reason) {
  // Under a sanitizer the server, built without it, must load its runtime first (./test --asan).
  std::vector<std::string> words;
  if (const char* preload = ::getenv("FARLIFT_SERVER_PRELOAD");
      preload != nullptr && preload[0] != '\0') {
    const char* options = ::getenv("ASAN_OPTIONS");
    words = {"env", std::string("LD_PRELOAD=") + preload,
             std::string("ASAN_OPTIONS=") + (options != nullptr ? options : "abort_on_error=1") +
                 ":detect_leaks=0"};
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const UniqueFd log(
      ::open(dir_.file("valkey.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) {
    if (reason != nullptr) *reason = "fork failed";
    return false;
  }
  if (child == 0) {
    // Only what is safe between fork and exec.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(126);
    ::dup2(log.get(), STDOUT_FILENO);
    ::dup2(log.get(), STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  pid_ = child;
  return true;
}

bool ServerProcess::launch(std::string* reason) {
  ::unlink(dir_.file("valkey.log").c_str());
  return spawn(command_line(), reason) && await_ready(reason);
}

bool ServerProcess::await_ready(std::string* reason) {
  const SystemClock clock;
  const net::Deadline deadline = net::Deadline::after(clock, kReadyWithin);
  ConnectionOptions by_path;
  by_path.unix_path = unix_path();
  by_path.password = options_.password;
  std::string last;
  while (!deadline.expired(clock)) {
    if (!running()) {
      if (reason != nullptr) *reason = "valkey-server ended at once; its log: " + tail(log());
      return false;
    }
    last.clear();
    const auto connection = Connection::connect(by_path, clock, &last);
    if (connection.ok()) return true;
    pause();
  }
  if (reason != nullptr)
    *reason = "valkey-server did not answer (" + last + "); its log: " + tail(log());
  kill();
  return false;
}

ConnectionOptions ServerProcess::connection_options() const {
  ConnectionOptions options;
  options.host = "127.0.0.1";
  options.port = port_;
  options.password = options_.password;
  // A busy test machine is no reason to fail.
  options.connect_timeout = std::chrono::seconds(20);
  options.request_timeout = std::chrono::seconds(30);
  if (options_.tls) {
    options.tls.emplace();
    options.tls->ca_file = tls_files_.ca;
    if (options_.tls_client_certificates) {
      options.tls->certificate_file = tls_files_.client_certificate;
      options.tls->key_file = tls_files_.client_key;
    }
  }
  return options;
}

std::string ServerProcess::log() const {
  std::ostringstream text;
  text << std::ifstream(dir_.file("valkey.log")).rdbuf();
  return text.str();
}

bool ServerProcess::running() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (::waitpid(pid_, &status, WNOHANG) == 0) return true;
  pid_ = -1;
  return false;
}

void ServerProcess::kill() {
  if (pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

bool ServerProcess::terminate() {
  if (pid_ <= 0) return true;
  ::kill(pid_, SIGCONT);
  ::kill(pid_, SIGTERM);
  const SystemClock clock;
  const net::Deadline deadline = net::Deadline::after(clock, kEndWithin);
  while (running()) {
    if (deadline.expired(clock)) {
      kill();
      return false;
    }
    pause();
  }
  return true;
}

void ServerProcess::suspend() {
  ::kill(pid_, SIGSTOP);
  int status = 0;
  while (::waitpid(pid_, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
}

void ServerProcess::resume() { ::kill(pid_, SIGCONT); }

bool ServerProcess::restart(std::string* reason) { return launch(reason); }

}  // namespace farlift::testing
