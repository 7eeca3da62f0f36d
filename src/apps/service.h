// What the long-running commands of the S3 door share: signals as events, the line that says where
// they serve, the ready file, and addresses on the command line.
//
// Threads: the main one, before others start (signals() blocks signals for all that follow).
#pragma once

#include "apps/outcome.h"
#include "core/base/unique_fd.h"

#include <cstdint>
#include <functional>
#include <string>

namespace farlift::apps {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
};
// "HOST:PORT", "[V6]:PORT"; `flag` is named in the complaint.
Outcome<HostPort> parse_host_port(const std::string& text, const std::string& flag);
std::string format_host_port(const std::string& host, std::uint16_t port);

class ServiceSignals {
 public:
  ServiceSignals();
  // Returns when SIGINT or SIGTERM came; calls `reload` at each SIGHUP.
  void wait(const std::function<void()>& reload) const;

 private:
  UniqueFd fd_;
};

// `ready_file` may be empty. The file has one line, `text`.
Outcome<void> tell_ready(const std::string& ready_file, const std::string& text);

}  // namespace farlift::apps
