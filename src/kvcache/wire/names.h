// Names in Valkey (spec kv 6): the percent-encoded key, the keys made from it, the node record.
//
// Invariants: `{` and `}` occur in a name only as the hash tag, which is never empty, so that both
//             halves of a pair live in one slot. Threads: pure functions.
// Errors:     invalid_argument for text that is not a node record.
#pragma once

#include "core/base/result.h"
#include "kvcache/wire/types.h"

#include <string>
#include <string_view>
#include <vector>

namespace farlift::kv {

std::string encode_key(ByteView key);  // `ek`
std::string descriptor_name(std::string_view tenant, ByteView key);
std::string tag_name(std::string_view tenant, ByteView key);
std::string node_name(NodeId node);
inline constexpr std::string_view kNodesName = "okv:nodes";
std::string lease_name(NodeId node, Incarnation incarnation, ArenaId arena, const ClientId& client);
// Pattern of all leases of an arena, for SCAN.
std::string lease_pattern(NodeId node, Incarnation incarnation, ArenaId arena);
std::string manifest_name(std::string_view tenant, std::string_view group);

struct RailRecord {
  std::string provider;
  friend bool operator==(const RailRecord&, const RailRecord&) = default;
};
struct NodeRecord {  // a hint: HELLO proves what it says
  enum class State : std::uint8_t { up, draining };
  NodeId node;
  Incarnation incarnation;
  std::string host;
  std::uint16_t port = 0;
  std::vector<RailRecord> rails;
  State state = State::up;
  std::uint64_t free_bytes = 0;
  std::uint16_t last_port = 0;   // of the incarnation before; never bound again by the next
  std::uint64_t up_seconds = 0;  // since start; ramp-up of a fresh node (placement)
  friend bool operator==(const NodeRecord&, const NodeRecord&) = default;
};
std::string encode_node_record(const NodeRecord& record);  // one line of JSON-free text, versioned
Result<NodeRecord> decode_node_record(std::string_view text);

}  // namespace farlift::kv
