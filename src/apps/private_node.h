// PrivateNode: a data node of our own beside a private server, as a process of its own, with one
// tenant whose secret lies in the directory.
//
// Invariants: it serves once start() returned; it ends with us. Threads: one owner.
// Errors: Failure that quotes what the node itself said.
#pragma once

#include "apps/process.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace farlift::apps {

inline constexpr const char* kPrivateTenant = "local";

struct PrivateNodeOptions {
  std::string directory;  // of the stack; must exist. The key file is made there when missing
  std::string host = "127.0.0.1";
  std::uint16_t valkey_port = 0;
  std::string password;  // of the server; handed over in the environment
  std::string quota = "1g";
  std::string arena_size = "64m";
  // Beside kPrivateTenant, with the same keys: name and quota.
  std::vector<std::pair<std::string, std::string>> more_tenants;
  std::vector<std::string> flags;  // further ones of `farlift node`
};

class PrivateNode {
 public:
  static Outcome<std::unique_ptr<PrivateNode>> start(const PrivateNodeOptions& options);
  ~PrivateNode();  // stop()

  Child& child() noexcept { return child_; }
  std::uint16_t port() const noexcept { return port_; }
  const std::string& key_file() const noexcept { return key_file_; }
  void stop();
  void kill();                    // at once, as by the kernel
  std::string complaint() const;  // the last thing it said

 private:
  PrivateNode(Child child, std::string key_file, std::string log, std::uint16_t port)
      : child_(std::move(child)),
        key_file_(std::move(key_file)),
        log_(std::move(log)),
        port_(port) {}
  Child child_;
  std::string key_file_;
  std::string log_;
  std::uint16_t port_;
};

}  // namespace farlift::apps
