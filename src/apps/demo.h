// `farlift demo`: starts a private stack, lifts real files through every door there is, compares
// every byte, prints one table, and stops.
//
// Errors: exit status 5 when a byte differs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace farlift::apps {

struct DemoOptions {
  std::vector<std::string> files;  // empty: programs of this machine, and a generated file
  std::uint64_t generated_size = 256u << 20;  // 0: none
  std::string directory;                      // of the stack; empty: a temporary one
  bool keep = false;                          // leave it running
  bool json = false;
  bool quiet = false;
};

int run_demo(const DemoOptions& options);

}  // namespace farlift::apps
