// Client: the reader and writer of the one-sided cache (spec kv 7, 9), as a state machine.
//
//   TRY_ASSIGN(auto client, Client::create(environment, options, &why));
//   TRY_ASSIGN(auto landing, client->register_memory(bytes));          // once, many reads into it
//   client->get({.key = k, .dest = bytes.first(n)}, [](GetResult r) { ... });
//   while (!done) if (!client->step()) wait(client->wait_fds(), client->next_deadline());
//
// Invariants: a result is reported once, from step(); until then, and never after, the fabric may
//             touch its buffers (the quiet rule, P13). ok: the bytes are those that were committed
//             for this tenant and key (P1); anything else: the destination is undefined and must
//             not be used. Nothing is posted without a verified tag where there is a key ring
//             (P9, P10).
// Threads:    one, that of the loop. include/farlift/kv.h is the blocking client over it.
// Errors:     Outcome; bad_arg with a sentence in `why`.
#pragma once

#include "core/base/result.h"
#include "kvcache/client/planted_bugs.h"
#include "kvcache/control/environment.h"
#include "kvcache/wire/keyring.h"
#include "kvcache/wire/types.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace farlift::kv {

struct ClientOptions {
  std::string tenant;
  Keyring keys;
  Duration lease = kCacheLease;                // L: oldest cached descriptor at post time
  Duration operation_limit = kOperationLimit;  // T_op
  Duration control_timeout = kControlTimeout;
  std::size_t cache_entries_max = 65536;
  std::uint32_t in_flight_max = 64;  // operations posted on one link and rail
  Length piece_max{1u << 20};
  Duration touch_every = std::chrono::seconds(1);
  std::uint32_t nodes_tried_max = 3;    // of a put, on FULL
  std::uint32_t puts_active_max = 256;  // of one client; others wait
  std::uint32_t hash_threads = 0;       // 0: landed pieces are hashed on the loop
  Duration reader_lease{};              // > 0: exists() and stat() lease the arenas they meet
  Duration ramp_up = std::chrono::seconds(30);  // until a fresh node gets its full share of puts
#ifdef FARLIFT_PLANTED_BUGS
  PlantedClientBugs planted;
#endif
};

#ifdef FARLIFT_PLANTED_BUGS
inline const PlantedClientBugs& planted(const ClientOptions& options) { return options.planted; }
#else
constexpr PlantedClientBugs planted(const ClientOptions& /*options*/) { return {}; }
#endif

// Memory the client may land in or put from; registered on every rail, with local access only
// (landing) or remote read (source of pulls).
class LandingMemory {
 public:
  virtual ~LandingMemory() = default;  // after every operation into it was reported
  virtual std::span<std::byte> bytes() const noexcept = 0;
};

enum class ReadMode : std::uint8_t { framed, payload_only };

struct GetRequest {
  Bytes key;
  // Inside registered memory; its size is `cap`. bad_arg: some of it is the destination of a get
  // that was not reported yet.
  std::span<std::byte> dest;
  ReadMode mode = ReadMode::framed;
  std::uint32_t min_rev = 0;
  const LandingMemory* memory = nullptr;  // that `dest` lies in; null: the registered one
};
struct GetResult {
  Outcome outcome = Outcome::miss;
  Length length;
  Version version;
  std::string why;  // of bad_arg
};
struct PutRequest {
  Bytes key;
  std::span<const std::byte> source;  // inside registered memory; untouched until reported
  PutMode mode = PutMode::if_absent;
  Version expected{};
  bool push = false;                      // ALLOC, write, SEAL; needs fence_mode mr
  const LandingMemory* memory = nullptr;  // as of a get
};
struct PutResult {
  Outcome outcome = Outcome::control_down;
  Version version;
  NodeId node;
  std::string why;
};

class Client {
 public:
  static Result<std::unique_ptr<Client>> create(const Environment& environment,
                                                ClientOptions options, std::string* why = nullptr);
  virtual ~Client() = default;  // closes endpoints first, then reports what is left as timeout

  virtual Result<std::unique_ptr<LandingMemory>> register_memory(std::span<std::byte> bytes) = 0;

  // The same for memory of one call: only requests that name it use it, so that it may overlap any
  // other, and its end concerns nobody else.
  virtual Result<std::unique_ptr<LandingMemory>> borrow_memory(std::span<std::byte> bytes) = 0;

  // Whether all of it lies in one registered memory; borrowed ones do not count.
  virtual bool registered(std::span<const std::byte> part) const = 0;

  virtual void get(GetRequest request, std::function<void(GetResult)> done) = 0;
  // Results in the order of the requests. Bounded in time by 2 T_op + control_timeout.
  virtual void mget(std::vector<GetRequest> requests,
                    std::function<void(std::vector<GetResult>)> done) = 0;
  virtual void put(PutRequest request, std::function<void(PutResult)> done) = 0;
  // Bounded in the same way: what did not get its turn in that time ends as timeout.
  virtual void mput(std::vector<PutRequest> requests,
                    std::function<void(std::vector<PutResult>)> done) = 0;
  virtual void exists(std::vector<Bytes> keys, std::function<void(std::vector<bool>)> done) = 0;
  struct Removed {
    Outcome outcome = Outcome::miss;
  };
  virtual void remove(Bytes key, std::optional<Version> version,
                      std::function<void(Removed)> done) = 0;
  // Length and version as the descriptor says, without reading (steps 1 to 4).
  virtual void stat(Bytes key, std::function<void(GetResult)> done) = 0;

  // A chain of blocks by one name (spec kv 4.4). write_group: the descriptors that are there now,
  // signed together under `group`. read_group: one request resolves the chain; entries whose own
  // tag holds are cached as if they had been resolved, so that reads of them ask nobody.
  struct Group {
    Outcome outcome = Outcome::miss;
    std::uint64_t version = 0;
    struct Entry {
      Bytes key;
      Outcome outcome = Outcome::miss;  // ok: its own tag holds
      Length length;
    };
    std::vector<Entry> entries;
  };
  virtual void write_group(std::string group, std::uint64_t version, std::vector<Bytes> keys,
                           std::function<void(Group)> done) = 0;
  virtual void read_group(const std::string& group, std::function<void(Group)> done) = 0;

  // For operators: a frame for one node, and its answer's body when `outcome` is ok.
  struct Answer {
    Outcome outcome = Outcome::unreachable;
    Bytes body;
  };
  virtual void command(NodeId node, FrameType type, Bytes body,
                       std::function<void(Answer)> done) = 0;
  // The nodes with a live record, as the directory says: a hint.
  virtual void list_nodes(std::function<void(Result<std::vector<NodeRecord>>)> done) = 0;

  // Rotation of the tenant's secret (spec kv 10): a key that is added signs from now on; what was
  // verified under a dropped one is forgotten.
  virtual Status add_key(KeyId id, ByteView secret) = 0;
  virtual Status drop_key(KeyId id) = 0;
  // The whole ring at once; one that signs is never replaced by development mode.
  virtual void replace_keys(Keyring keys) = 0;

  virtual bool step() = 0;
  virtual std::vector<int> wait_fds() const = 0;
  virtual Instant next_deadline() const = 0;

  virtual std::vector<std::pair<std::string, std::uint64_t>> counters() const = 0;
};

}  // namespace farlift::kv
