// `farlift node`: a data node of the one-sided cache, from flags to its end.
//
// Runs until SIGINT or SIGTERM; SIGUSR1 drains it (hot values move to other nodes, then it ends).
// Errors: as exit statuses, one sentence each.
#pragma once

#include "apps/outcome.h"
#include <farlift/options.h>

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::apps {

struct NodeCommand {
  std::uint64_t id = 1;
  std::string listen = "127.0.0.1";
  std::uint16_t port = 0;
  std::string advertise;
  // Where the directory is: HOST:PORT of a server, of nodes of a cluster, or of sentinels.
  std::vector<std::string> valkey{"127.0.0.1:6379"};
  bool cluster = false;
  std::string sentinel_primary;
  std::string directory;  // of `farlift up`; overrides `valkey`
  std::string username;
  std::string password;          // empty: $FARLIFT_PASSWORD
  TlsOptions tls;                // to the directory
  std::string link_certificate;  // with it clients speak TLS 1.3 to us
  std::string link_key;
  std::string link_ca;       // of other nodes; empty: the system's
  bool link_mutual = false;  // clients must show a certificate of link_ca
  // "NAME", or "NAME,keys=FILE,quota=SIZE"; without keys: development mode.
  std::vector<std::string> tenants;
  std::string arena_size = "256m";
  std::string pinned_max;
  std::string provider = "soft";  // soft, tcp, verbs, efa
  std::vector<std::string> interfaces;
  std::uint64_t grace_ms = 20000;
  std::uint64_t lease_ms = 10000;
  std::uint64_t operation_limit_ms = 5000;
  std::uint64_t descriptor_ttl_s = 86400;
  std::string ready_file;  // written, with the port in it, once it serves
  bool json = false;
  bool quiet = false;
};

int run_node(const NodeCommand& command);

}  // namespace farlift::apps
