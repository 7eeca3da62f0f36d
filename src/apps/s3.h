// `farlift s3`: the S3 gateway, from flags to its end.
//
// Runs until SIGINT or SIGTERM; SIGHUP reads identities and the security file again.
// Errors: as exit statuses, one sentence each.
#pragma once

#include "apps/outcome.h"

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::apps {

struct S3Command {
  std::string listen = "127.0.0.1";
  std::uint16_t port = 8333;
  std::string directory;              // of the catalog
  std::vector<std::string> volumes;   // HOST:PORT of volume servers
  std::string identities;             // file
  std::string access_key;             // one identity, without a file
  std::string secret_key;             // empty: $FARLIFT_S3_SECRET_KEY
  bool anonymous = false;             // everybody may do everything
  std::string security;               // file
  std::string region = "us-east-1";
  std::string domain;
  std::string certificate;
  std::string private_key;
  std::string access_log;  // file; "-": stdout
  std::string catalog_sync = "full";
  std::uint32_t workers = 64;
  std::uint32_t connections_max = 4096;
  std::uint32_t sweep_s = 10;
  std::string ready_file;
  bool json = false;
  bool quiet = false;
};

int run_s3(const S3Command& command);

}  // namespace farlift::apps
