// Directory: the kvcache's schema in Valkey (spec kv 6), as asynchronous operations. A cache of
// truth, never the truth: every reply may be old, forged or missing, and its users survive that.
//
// Invariants: a callback runs exactly once, from step(), never from inside the call that started
//             the operation; the destructor runs those left with Errc::closed. Both halves of a
//             pair are read and written by one command. Outcomes of publish and unpublish are
//             three-valued: not_done is certain, unknown is everything that is not.
// Threads:    one (that of the loop).
// Errors:     unreachable, timeout (kControlTimeout), connection_lost, closed, protocol (a reply
//             nobody would give), permission (ACL), busy (too many operations wait).
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "kvcache/wire/layout.h"
#include "kvcache/wire/names.h"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace farlift::kv {

struct Pair {
  std::optional<Bytes> descriptor;
  std::optional<Bytes> tag;
};

struct PublishRequest {
  std::string tenant;
  Bytes key;
  PutMode mode = PutMode::if_absent;  // if_absent or if_version; replace is the node's loop
  Version expected;                   // none(): must be absent
  Bytes descriptor;
  Bytes tag;  // empty: development mode, no second key is written (and a leftover one is deleted)
  Duration ttl = kDescriptorTtl;  // at least 1 ms; both halves expire at the same time
};
struct PublishReply {
  enum class Kind : std::uint8_t { ok, exists, conflict, unknown, not_done };
  Kind kind = Kind::unknown;     // unknown: may have been applied, or may be applied later still
  std::optional<Bytes> current;  // the descriptor found before
  Error error;                   // of unknown and not_done
};
struct UnpublishRequest {
  // exact: only the very descriptor given, readable or not; an empty one stands for a tag that was
  // left alone. Applied late, each but `any` spares what was published since.
  enum class How : std::uint8_t { location, version, exact, any };
  std::string tenant;
  Bytes key;
  How how = How::location;
  Location location;
  Version version;
  Bytes descriptor;  // of exact
};
struct UnpublishReply {
  enum class Kind : std::uint8_t { removed, absent, other, unknown, not_done };
  Kind kind = Kind::unknown;
  Error error;
};

class Directory {
 public:
  virtual ~Directory() = default;

  using OnPairs = std::function<void(std::vector<Result<Pair>>)>;  // in the order of `keys`
  virtual void resolve(std::string_view tenant, std::vector<Bytes> keys, OnPairs done) = 0;
  using OnPublish = std::function<void(PublishReply)>;
  virtual void publish(PublishRequest request, OnPublish done) = 0;
  using OnUnpublish = std::function<void(UnpublishReply)>;
  virtual void unpublish(UnpublishRequest request, OnUnpublish done) = 0;

  using OnStatus = std::function<void(Status)>;
  // Record with PX kNodeLease, and membership of okv:nodes.
  virtual void announce(const NodeRecord& record, OnStatus done) = 0;
  virtual void retract(NodeId node, OnStatus done) = 0;
  using OnNodes = std::function<void(Result<std::vector<NodeRecord>>)>;
  virtual void list_nodes(OnNodes done) = 0;  // those with a live record
  using OnNode = std::function<void(Result<std::optional<NodeRecord>>)>;
  virtual void find_node(NodeId node, OnNode done) = 0;

  virtual void take_lease(NodeId node, Incarnation incarnation, ArenaId arena,
                          const ClientId& client, Duration time, OnStatus done) = 0;
  using OnCount = std::function<void(Result<std::uint64_t>)>;
  virtual void count_leases(NodeId node, Incarnation incarnation, ArenaId arena, OnCount done) = 0;

  virtual void put_manifest(std::string_view tenant, std::string_view group, Bytes manifest,
                            OnStatus done) = 0;
  using OnManifest = std::function<void(Result<std::optional<Bytes>>)>;
  virtual void get_manifest(std::string_view tenant, std::string_view group, OnManifest done) = 0;

  // Runs callbacks that are due; true when any ran.
  virtual bool step() = 0;
  virtual int wait_fd() const noexcept = 0;  // readable when step() should be called; -1: none
  virtual std::size_t pending() const noexcept = 0;
  // What is asked between the two goes out together, at flush() (or sooner).
  virtual void hold() {}
  virtual void flush() {}
};

}  // namespace farlift::kv
