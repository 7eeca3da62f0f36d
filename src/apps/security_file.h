// SecurityFile: the signing keys that gateway and volumes share, in the form of SeaweedFS's
// security.toml; only what concerns us is read.
//
//   [jwt.signing]                      # writes
//   key = "secret"
//   expires_after_seconds = 60
//   [jwt.signing.read]                 # reads
//   key = "another"
//
// Invariants: a file that cannot be read whole changes nothing. Threads: plain values.
// Errors: a sentence with file and line.
#pragma once

#include "apps/outcome.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace farlift::apps {

struct SecurityFile {
  std::string write_key;  // empty: none
  std::string read_key;
  std::uint32_t write_expires_s = 0;  // 0: not given
  std::uint32_t read_expires_s = 0;
};

Outcome<SecurityFile> parse_security_file(std::string_view text, const std::string& name);
Outcome<SecurityFile> read_security_file(const std::string& path);

}  // namespace farlift::apps
