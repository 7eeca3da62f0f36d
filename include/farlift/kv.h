// KvClient: the one-sided key/value cache. Reads fetch a value straight from a data node's memory
// into yours, checked, without any code of the node running.
//
//   farlift::KvOptions options;
//   options.valkey = {{"10.0.0.7", 6379}};
//   options.tenant = "t1";
//   options.key_file = "/etc/farlift/t1.keys";
//   auto client = farlift::KvClient::create(options);
//   auto memory = client->register_memory(bytes);                 // once, for many reads and puts
//   client->put("block-1", bytes.first(n));
//   farlift::KvResult got = client->get("block-1", bytes);        // got.ok(), got.length
//
// Invariants
//   A result that is ok means exactly the bytes some writer committed for this tenant and key.
//   After anything else the destination is undefined and must not be used.
//   When a call has returned, nothing touches its buffers any more. A call ends within twice the
//   operation limit and the control timeout.
// Threads: every member may be called from any thread; calls run side by side, and the calling
//          threads do the work: there is no thread in between. After fork() the child must not use
//          it (BAD_ARG, ErrorKind::closing), and may drop it.
// Errors:  KvResult::status for operations, ErrorKind::configuration or closing for the rest;
//          nothing is thrown but what a progress callback throws, once its batch is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "farlift/expected.h"
#include "farlift/export.h"
#include "farlift/options.h"

namespace farlift {

namespace kv::client {
class KvCore;
class KvRegistration;
}  // namespace kv::client

// How an operation ended. All but ok give no bytes.
enum class KvStatus : std::uint32_t {
  ok = 0,
  miss = 1,           // nothing there (or not of the revision asked for)
  stale = 2,          // it was in the memory of a node that has restarted since
  reject_nosig = 3,   // unsigned: not ours, or half of it was evicted
  reject_sig = 4,     // the signature is not of this tenant, this key and this secret
  reject_format = 5,  // not a descriptor
  bad_magic = 6,      // what landed is not what the descriptor promised (bad_*)
  bad_key = 7,
  bad_version = 8,
  bad_length = 9,
  bad_crc = 10,
  access = 11,        // the node's card refused: its memory is used for something else by now
  unreachable = 12,   // no node, or no way to it
  timeout = 13,       // the operation limit passed, or the client was closed
  too_small = 14,     // the destination is shorter than the value; `length` says what would do
  too_large = 15,     // longer than a node can hold
  full = 16,          // no node has room now
  exists = 17,        // put if_absent: there is a value
  conflict = 18,      // put if_version: there is another version
  bad_arg = 19,       // the text says what
  control_down = 20,  // Valkey does not answer
};
FARLIFT_API const char* to_string(KvStatus status) noexcept;  // "MISS"

enum class KvReadMode { framed, payload_only };  // framed also reads and compares a 32-byte header
enum class KvPutMode { if_absent, if_version, replace };

struct [[nodiscard]] KvResult {
  KvStatus status = KvStatus::miss;
  std::uint64_t length = 0;   // of the value: when ok, and when too_small
  std::uint64_t version = 0;  // revision in the upper 32 bits; of exists and conflict: theirs
  std::string text;           // of bad_arg, one sentence
  bool ok() const noexcept { return status == KvStatus::ok; }
};

struct KvGet {
  std::string_view key;  // 1 to 1024 bytes
  // bad_arg: some of it is the destination of another read, of this batch or of a call under way.
  std::span<std::byte> dest;
  KvReadMode mode = KvReadMode::framed;
  std::uint32_t min_revision = 0;
};
struct KvPut {
  std::string_view key;
  std::span<const std::byte> source;  // not to be changed before the call returns
  KvPutMode mode = KvPutMode::if_absent;
  std::uint64_t expected_version = 0;  // of if_version; 0: absent
  bool push =
      false;  // we write instead of the node reading; needs a rail that can take back a grant
};

struct KvOptions {
  enum class Control { standalone, cluster, sentinel };
  Control control = Control::standalone;
  std::vector<NodeAddress> valkey = {
      NodeAddress{}};            // the server, seeds of a cluster, or sentinels
  std::string sentinel_primary;  // the primary's name
  std::string username;
  std::string password;
  std::uint32_t database = 0;
  TlsOptions tls;       // to Valkey, and to sentinels
  TlsOptions node_tls;  // to data nodes

  std::string tenant;
  std::string key_file;      // lines "<key id> <64 hex digits>"
  bool development = false;  // instead of a key file: nothing is signed, nothing is checked

  RdmaProvider provider = RdmaProvider::soft;
  std::vector<std::string> interfaces;  // one rail each; empty: one rail
  bool host_lane = true;                // soft only
  unsigned spin_us = 50;                // poll this long before sleeping, while it pays

  std::chrono::milliseconds lease{10000};           // oldest cached descriptor
  std::chrono::milliseconds operation_limit{5000};  // of one read
  std::chrono::milliseconds control_timeout{1000};
  std::chrono::milliseconds reader_lease{
      0};  // > 0: exists() and stat() keep what they saw readable
  std::size_t cache_entries_max = 65536;
  unsigned in_flight_max = 64;
  unsigned hash_threads = 0;  // 0: the calling thread hashes
  // Memory that is not registered is registered for the duration of the call. Off: BAD_ARG.
  bool register_on_demand = true;
};

// Memory of the caller, registered; several handles may share it. Dropping the last one ends the
// registration. The memory stays the caller's, who keeps it until then.
class FARLIFT_API KvMemory {
 public:
  std::span<std::byte> bytes() const noexcept;

 private:
  friend class KvClient;
  explicit KvMemory(std::shared_ptr<kv::client::KvRegistration> state) noexcept
      : state_(std::move(state)) {}
  std::shared_ptr<kv::client::KvRegistration> state_;
};

// Called from the calling thread, a few times a second, while a batch runs; other calls go on
// meanwhile, this one does not. After it has thrown it is not called again. Must not call the
// client.
using KvProgress = std::function<void(std::size_t done, std::size_t total)>;

struct KvGroupEntry {
  std::string key;
  KvStatus status = KvStatus::miss;
  std::uint64_t length = 0;
};
struct KvGroup {
  KvStatus status = KvStatus::miss;
  std::uint64_t version = 0;
  std::vector<KvGroupEntry> entries;
};

// A data node as the directory announces it: a hint, not a proof.
struct KvNode {
  std::uint64_t id = 0;
  std::uint64_t incarnation = 0;
  std::string host;
  std::uint16_t port = 0;
  bool draining = false;
  std::uint64_t free_bytes = 0;
  std::uint64_t up_seconds = 0;
  std::vector<std::string> providers;  // one a rail
};
struct KvNodeStatistics {
  KvStatus status = KvStatus::unreachable;
  std::vector<std::pair<std::string, std::uint64_t>> counters;  // when ok
};

class FARLIFT_API KvClient {
 public:
  static Expected<KvClient> create(KvOptions options);
  KvClient(KvClient&&) noexcept;
  KvClient& operator=(KvClient&&) noexcept;
  ~KvClient();  // closes

  // Empty memory, and memory that overlaps what is registered, is refused.
  Expected<KvMemory> register_memory(std::span<std::byte> memory);

  KvResult get(std::string_view key, std::span<std::byte> dest,
               KvReadMode mode = KvReadMode::framed, std::uint32_t min_revision = 0);
  KvResult put(std::string_view key, std::span<const std::byte> source,
               KvPutMode mode = KvPutMode::if_absent, std::uint64_t expected_version = 0);
  // One result a request, in their order; one that fails does not touch the others.
  std::vector<KvResult> mget(std::span<const KvGet> requests, const KvProgress& progress = {});
  std::vector<KvResult> mput(std::span<const KvPut> requests, const KvProgress& progress = {});
  // True: a read would be allowed now.
  std::vector<bool> exists(std::span<const std::string_view> keys, const KvProgress& progress = {});
  bool exists(std::string_view key);
  KvResult stat(std::string_view key);  // length and version
  KvResult remove(std::string_view key, std::optional<std::uint64_t> version = std::nullopt);

  // A chain of keys under one name, so that one request resolves it all.
  KvGroup write_group(std::string_view group, std::span<const std::string_view> keys,
                      std::uint64_t version = 1);
  KvGroup read_group(std::string_view group);

  // For operators. nodes(): those with a live record. rotate(): one arena, or all of the tenant's;
  // returns when the node has begun. drain(): the node takes no more values, moves hot ones to
  // others, and leaves.
  Expected<std::vector<KvNode>> nodes();
  KvNodeStatistics node_statistics(std::uint64_t node);
  KvStatus rotate(std::uint64_t node, std::optional<std::uint32_t> arena = std::nullopt);
  KvStatus drain(std::uint64_t node);

  // Reads the key file again: new keys are added, those that are gone are dropped.
  Expected<void> reload_keys();

  // Counters of this client by name.
  std::vector<std::pair<std::string, std::uint64_t>> statistics() const;

  // Closes endpoints, so that nothing touches anybody's buffers, then ends waiting calls with
  // timeout. Idempotent.
  void close();
  bool closed() const noexcept;

 private:
  explicit KvClient(std::shared_ptr<kv::client::KvCore> core) noexcept;
  std::shared_ptr<kv::client::KvCore> core_;
};

}  // namespace farlift
