// Stack: what `farlift up` runs, as its directory remembers it (farlift.json), and the verbs on it.
//
// Invariants: the directory's lock is held exactly while the stack runs; the file is there exactly
//             while it answers. Threads: plain functions. Errors: Failure.
#pragma once

#include "apps/outcome.h"

#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

namespace farlift::apps {

struct Stack {
  std::string host;
  std::uint16_t port = 0;
  std::string unix_path;
  std::string password;
  pid_t supervisor = 0;
  pid_t server = 0;
  // The data node; port 0: none.
  std::uint16_t node_port = 0;
  std::string tenant;
  std::string key_file;
};

// Failure when nothing runs there.
Outcome<Stack> read_stack(const std::string& directory);
std::string stack_json(const Stack& stack, const std::string& directory, bool with_password);

struct UpOptions {
  std::string directory = "farlift-data";
  std::uint16_t port = 0;
  std::string bind = "127.0.0.1";
  std::string unix_path;
  std::string password;
  std::string maxmemory;
  std::string max_object_size;
  std::string segment_size;
  std::string provider;
  std::string interfaces;
  std::vector<std::string> server_settings;  // NAME=VALUE
  std::vector<std::string> module_settings;  // NAME=VALUE
  std::string kv_quota = "1g";               // bytes of arenas of the data node
  std::string kv_arena_size = "64m";         // one of them
  bool no_node = false;
  bool no_save = false;
  bool detach = false;
  bool stop = false;    // stop what runs in `directory`
  bool status = false;  // tell what runs there
  bool json = false;
  bool quiet = false;
};

int run_up(const UpOptions& options);
int run_up_stop(const UpOptions& options);
int run_up_status(const UpOptions& options);

// Starts a detached stack; for `up --detach` and `demo --keep`.
Outcome<Stack> start_detached(const UpOptions& options);

}  // namespace farlift::apps
