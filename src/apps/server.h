// PrivateServer: a valkey-server of our own with the module loaded, listening where it was told,
// its data in one directory.
//
// Invariants: while it lives the directory is locked against a second one; it ends with us.
// Threads:    one owner. Errors: Failure that quotes what the server itself logged.
#pragma once

#include "apps/process.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace farlift::apps {

struct ServerOptions {
  std::string directory;   // must exist
  std::uint16_t port = 0;  // 0: any free one
  std::string bind = "127.0.0.1";
  std::string unix_path;
  std::string password;
  bool keep_data = false;  // saved at the end and loaded at the start
  std::vector<std::pair<std::string, std::string>> server;  // further lines of its configuration
  std::vector<std::pair<std::string, std::string>> module;  // `largeobj.` settings, without prefix
};

class PrivateServer {
 public:
  // Returns once it answers PING.
  static Outcome<std::unique_ptr<PrivateServer>> start(const ServerOptions& options);
  ~PrivateServer();  // stop()

  std::uint16_t port() const noexcept { return port_; }
  pid_t pid() const noexcept { return child_.pid(); }
  Child& child() noexcept { return child_; }
  void stop();
  // The last lines of its log that say something; for failures.
  std::string complaint() const;

 private:
  PrivateServer(Child child, UniqueFd lock, std::string log, std::uint16_t port)
      : lock_(std::move(lock)), child_(std::move(child)), log_(std::move(log)), port_(port) {}
  UniqueFd lock_;
  Child child_;
  std::string log_;
  std::uint16_t port_;
};

// The module that belongs to this binary: $FARLIFT_MODULE, else ../lib beside it.
Outcome<std::string> find_module();
Outcome<std::string> find_valkey_server();

// Takes the lock of a directory: usage failure when someone holds it.
Outcome<UniqueFd> lock_directory(const std::string& directory);
Outcome<std::uint16_t> free_port(const std::string& bind);

}  // namespace farlift::apps
