// Connect: from command-line options to a client of the public library, and from its errors to
// exit statuses.
//
// Threads: plain functions. Errors: Failure.
#pragma once

#include "apps/outcome.h"
#include <farlift/client.h>

#include <cstdint>
#include <functional>
#include <string>

namespace farlift::apps {

struct ConnectOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 6379;
  std::string unix_path;
  std::string directory;  // of `farlift up`; overrides host and port
  bool cluster = false;
  std::string username;
  std::string password;  // empty: $FARLIFT_PASSWORD
  std::uint32_t database = 0;
  TlsOptions tls;
  std::string provider = "soft";  // soft, tcp, verbs, efa
  std::string interface_name;
};

// `on_wait` is called now and then while a transfer runs.
Outcome<Client> connect(const ConnectOptions& options, std::function<void()> on_wait);

Failure explain(const ClientError& error, const std::string& doing);

}  // namespace farlift::apps
