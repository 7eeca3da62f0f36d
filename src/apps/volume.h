// `farlift volume`: a volume server of the S3 door, from flags to its end.
//
// Runs until SIGINT or SIGTERM; SIGHUP reads the security file again.
// Errors: as exit statuses, one sentence each.
#pragma once

#include "apps/outcome.h"

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::apps {

struct VolumeCommand {
  std::string directory;
  std::string listen = "127.0.0.1";
  std::uint16_t port = 8080;
  std::uint16_t control_port = 0;
  std::uint32_t volumes = 0;          // 1..N are made at the start
  std::vector<std::string> replicas;  // HOST:PORT of others that hold the same volumes
  std::string fsync = "batch";
  std::string disk = "auto";
  std::string volume_size = "30g";
  std::string keep_free = "64m";
  std::string needle_max = "64m";
  std::uint32_t compact_percent = 30;
  std::uint32_t workers = 32;
  std::string security;  // file
  bool allow_unauthenticated_reads = false;
  std::string pinned_budget;  // empty: of RLIMIT_MEMLOCK
  std::string dc_key = "0xffeeddcc";
  std::string targets;  // CIDR list
  std::string ready_file;
  bool json = false;
  bool quiet = false;
};

int run_volume(const VolumeCommand& command);

}  // namespace farlift::apps
