// ServerProcess: a real valkey-server of one's own for a test: temporary directory, free ports,
// Unix socket, TLS if wanted. ClusterProcess: several of them that share the slots. SentinelSet: a
// primary and its replica, watched.
//
//   std::string reason;
//   auto server = ServerProcess::start({.arguments = {"--loadmodule", path}}, &reason);
//   ASSERT_NE(server, nullptr) << reason;
//   auto connection = resp::Connection::connect(server->connection_options(), clock);
//
// Invariants: when start() returns, the server answers, and it is ours (asked through a socket in
//             our own directory). The process ends and the directory goes with the object, and when
//             the starting thread dies.
// Threads:    start and destroy from one thread, which must outlive the object.
// Errors:     nullptr and one sentence in `reason`, with the end of the server's log where there is
//             one.
#pragma once

#include "core/net/resp/connection.h"
#include "core/net/resp/reply_error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace farlift::testing {

// A directory that is made by mkdtemp(3) and removed with all that is in it.
class TempDir {
  // Aborts when none can be made.
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Made by the openssl program: a CA, certificates by it for a server (localhost, 127.0.0.1, ::1)
// and a client, and a second CA that signed nothing.
struct TlsFiles {
  std::string ca, server_certificate, server_key, client_certificate, client_key, other_ca;
  static bool make(const std::string& directory, TlsFiles& files, std::string* reason);
};

struct ServerOptions {
  std::vector<std::string> arguments = {};  // further arguments of valkey-server
  std::string password = {};                // of the default user; empty: none
  bool tls = false;                         // port() speaks TLS; the Unix socket stays plain
  bool tls_client_certificates = false;     // ask for them and insist
  std::optional<TlsFiles> tls_files = {};   // absent: made in the server's own directory
  bool cluster = false;                     // cluster mode without slots; see ClusterProcess
  std::vector<std::string> sentinel =
      {};  // not empty: a sentinel with these lines of configuration
  // Empty: FARLIFT_VALKEY_SERVER of the environment, or valkey-server.
  std::string program = {};
};

class ServerProcess {
 public:
  static std::unique_ptr<ServerProcess> start(const ServerOptions& options, std::string* reason);
  ~ServerProcess();

  std::uint16_t port() const { return port_; }
  std::uint16_t cluster_port() const { return cluster_port_; }
  std::string unix_path() const { return dir_.file("valkey.sock"); }
  const std::string& directory() const { return dir_.path(); }
  const TlsFiles& tls_files() const { return tls_files_; }
  pid_t pid() const { return pid_; }

  // How to connect to it by TCP on 127.0.0.1, with its password and its CA.
  resp::ConnectionOptions connection_options() const;
  std::string log() const;

  void kill();       // SIGKILL, and waits
  bool terminate();  // SIGTERM, and waits; false: it had to be killed
  void suspend();    // SIGSTOP; returns when it has stopped
  void resume();     // SIGCONT
  bool running();    // false once the process has ended by itself or by us
  // Starts it again in the same directory and with the same ports. Must not be running.
  bool restart(std::string* reason);

 private:
  ServerProcess() = default;
  bool launch(std::string* reason);
  bool spawn(const std::vector<std::string>& arguments, std::string* reason);
  bool await_ready(std::string* reason);
  std::vector<std::string> command_line() const;

  ServerOptions options_;
  TempDir dir_;
  TlsFiles tls_files_;
  std::uint16_t port_ = 0;
  std::uint16_t cluster_port_ = 0;
  pid_t pid_ = -1;
};

class ClusterProcess {
 public:
  // `primaries` servers with one CA, the slots in equal ranges in order, no replicas; returns when
  // every node sees all of it.
  static std::unique_ptr<ClusterProcess> start(std::size_t primaries, const ServerOptions& options,
                                               std::string* reason);

  std::size_t size() const { return servers_.size(); }
  ServerProcess& server(std::size_t index) { return *servers_.at(index); }
  // Index of the server that got the slot at the start.
  std::size_t owner_of(std::uint16_t slot) const;

 private:
  TempDir dir_;
  std::vector<std::unique_ptr<ServerProcess>> servers_;
};

// A primary, a replica of it and three sentinels that call them "main" and take over when the
// primary has been silent for a second.
class SentinelSet {
 public:
  // Returns when the replica is in step and every sentinel knows the others and the replica.
  static std::unique_ptr<SentinelSet> start(const ServerOptions& options, std::string* reason);

  ServerProcess& primary() { return *servers_.at(0); }  // at the start
  ServerProcess& replica() { return *servers_.at(1); }
  std::vector<resp::Endpoint> sentinels() const;

 private:
  std::vector<std::unique_ptr<ServerProcess>> servers_;
  std::vector<std::unique_ptr<ServerProcess>> sentinels_;
};

// A TCP port on 127.0.0.1 that was free a moment ago.
std::uint16_t free_port();

}  // namespace farlift::testing
