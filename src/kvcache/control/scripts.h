// The two scripts that Valkey runs for us (spec kv 6), with their names for EVALSHA.
//
// Invariants: each runs as a whole or not at all ("#!lua": the server refuses it before its first
//             line when it is short of memory or a replica); both halves of a pair are in KEYS, so
//             that they run in a cluster. The digest is SHA-1 of the text; a test asks a server.
// Threads:    constants.
#pragma once

#include <string_view>

namespace farlift::kv {

struct Script {
  std::string_view text;
  std::string_view sha1;  // lower-case hex
};

// KEYS: descriptor, tag. ARGV: "A" | "C", expected version (8 bytes or empty), descriptor, tag
// (empty: none), milliseconds. Returns {"OK" | "EXISTS" | "CONFLICT", descriptor found | ""}.
extern const Script kPublishScript;
// KEYS: descriptor, tag. ARGV: "L" | "V" | "*", location or version. Returns 1 removed, 0 absent,
// -1 another one.
extern const Script kUnpublishScript;

}  // namespace farlift::kv
