// `farlift kv put|get|rm|stat|ls|rotate|drain`: the one-sided cache from a shell.
//
// Errors: as exit statuses; a miss is kExitNotFound, a rejected or corrupt value kExitCorrupt, and
// a failed get leaves no file.
#pragma once

#include "apps/outcome.h"
#include <farlift/kv.h>

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::apps {

struct KvConnect {
  std::vector<std::string> valkey{"127.0.0.1:6379"};
  std::string directory;  // of `farlift up`; overrides valkey, tenant and keys
  bool cluster = false;
  std::string sentinel_primary;
  std::string username;
  std::string password;  // empty: $FARLIFT_PASSWORD
  TlsOptions tls;        // to the directory
  TlsOptions node_tls;
  std::string tenant;
  std::string key_file;
  bool development = false;
  std::string provider = "soft";
  std::vector<std::string> interfaces;
};

struct KvCommand {
  enum class Verb { put, get, remove, stat, list, rotate, drain };
  Verb verb = Verb::list;
  KvConnect connect;
  std::string key;
  std::string file;
  std::string mode = "absent";  // put: absent, replace
  bool push = false;
  std::uint64_t node = 0;   // 0: every node
  std::int64_t arena = -1;  // rotate; -1: all of the tenant's
  bool json = false;
  bool quiet = false;
};

int run_kv(const KvCommand& command);

Outcome<KvClient> connect_kv(const KvConnect& options);
Failure explain(const KvResult& result, const std::string& doing);

// "HOST:PORT", "[HOST]:PORT".
Outcome<NodeAddress> parse_address(const std::string& text);

}  // namespace farlift::apps
