// The kvcache rows of the demo: a file's blocks are put by this process and read one-sidedly by
// another one, which compares every byte with the file.
//
// Errors: Failure; a byte that differs is kExitCorrupt.
#pragma once

#include "apps/kv.h"

#include <cstdint>
#include <string>

namespace farlift::apps {

inline constexpr std::uint64_t kDemoBlock = 4u << 20;

struct KvRow {
  std::uint64_t bytes = 0;
  std::uint64_t blocks = 0;
  double put_s = 0;
  double get_s = 0;
  std::uint32_t checksum = 0;  // of what the reader received
};

// `where` names the directory and the key file; `folder` is scratch space.
Outcome<KvRow> lift_kv(KvClient& client, const KvConnect& where, const std::string& path,
                       const std::string& key, const std::string& folder);

// The reading process (`farlift kv compare`, hidden): reads the blocks of `key` and compares them
// with the file; prints one JSON object.
int run_kv_compare(const KvCommand& command);

}  // namespace farlift::apps
