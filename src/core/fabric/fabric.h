// The fabric: registered memory, endpoints, and one-sided reads and writes between them. Four
// implementations stand behind this interface (soft, ofi, dc, sim); nothing above this folder knows
// which.
//
// Words.  A Domain is one card (or one software provider instance). A Registration lends memory to
//         it under a random key. A TargetEndpoint is the passive side: peers reach registered
//         memory of its domain through it. An Initiator is the active side: it posts operations and
//         collects completions.
//
// Invariants
//   Quiet rule: an Operation is reported only when the provider can no longer touch the caller's
//               memory on its behalf. A completion that cannot promise it carries Error::quiet ==
//               false; then close the Initiator (its fence) before the local buffer is reused, and
//               never tell the peer that the operation is over.
//   Delivery:   a write completes with success only after its last byte is in the target's memory.
//   Refusal:    a wrong key, a range or a right violated is Errc::access; no byte outside a valid
//               registration is touched. Where a provider ends the neighbours of a refused
//               operation they are Errc::flushed.
//   Fence:      see FenceMode. After the fence returns, nothing lands in and nothing is read from
//               the memory.
//   Keys:       fresh and random for each registration where the application picks them.
//
// Threads: Domain, Registration and TargetEndpoint may be used from any thread. An Initiator
//          belongs to one thread; only wake() may be called from others.
// Ownership: a Domain outlives what was made from it. Members are declared so that endpoints close
//          before registrations, and registrations before the domain.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/base/types.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace farlift::fabric {

// An endpoint's address: opaque bytes, at most kAddressBytesMax. For soft and for libfabric's tcp
// it is a sockaddr_in (16) or sockaddr_in6 (28); for EFA 32 bytes.
class Address {
 public:
  static constexpr std::size_t kBytesMax = 64;
  Address() = default;
  static Result<Address> from_bytes(
      std::span<const std::byte> bytes);  // invalid_argument when empty or too long
  std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), size_}; }
  std::size_t size() const noexcept { return size_; }
  std::string hex() const;  // lower case
  friend bool operator==(const Address&, const Address&) noexcept = default;

 private:
  std::array<std::byte, kBytesMax> bytes_{};
  std::uint8_t size_ = 0;
};

enum class Access : std::uint8_t {
  local = 0,
  remote_read = 1,
  remote_write = 2,
  remote_read_write = 3
};
constexpr bool allows_read(Access a) noexcept { return (static_cast<unsigned>(a) & 1u) != 0; }
constexpr bool allows_write(Access a) noexcept { return (static_cast<unsigned>(a) & 2u) != 0; }

// What ends remote access for certain.
enum class FenceMode : std::uint8_t {
  mr,        // Registration::close() returns when nothing can land or be read any more
  endpoint,  // only TargetEndpoint::close() does; registrations are closed after it
  drain,     // neither; access must have ended by agreement
};

struct DomainInfo {
  std::string provider;        // "soft", "tcp", "net", "efa", "verbs;ofi_rxm", "sim"
  std::string version;         // of the provider or library
  std::string interface_name;  // network interface or card
  FenceMode fence_mode = FenceMode::mr;
  bool virtual_addressing = false;  // remote addresses are virtual addresses, else offsets from 0
  bool local_registration_required = false;  // Operation::local_registration must be set
  bool reports_landed_crc = false;           // Registration::landed() works
  std::uint32_t in_flight_max = 0;           // operations one Initiator may have posted
  Length operation_length_max{};             // longest single operation
};

// One contiguous run that landed in a registration, with the CRC-32C read back from the memory just
// after it landed.
struct LandedRun {
  Offset offset;  // from the start of the registration
  Length length;
  Crc32c crc;
};

// Memory to be registered. The fabric neither copies nor frees it; the caller keeps it until the
// registration closed.
struct MemoryRef {
  std::span<std::byte> bytes;
  int memfd = -1;  // the memory is this memfd, mapped shared, when >= 0
  std::uint64_t memfd_offset = 0;
};

class Registration {
 public:
  virtual ~Registration() = default;  // closes
  virtual RKey key() const noexcept = 0;
  virtual RemoteAddr addr() const noexcept = 0;  // of the first byte, as a peer must name it
  virtual Length length() const noexcept = 0;
  virtual Access access() const noexcept = 0;

  // Ends the registration: the key is refused from now on. With FenceMode::mr it returns when
  // nothing in progress can land or be read any more; it never waits for a peer, only for our own
  // piece in progress. Idempotent.
  virtual Status close() = 0;

  // Landing checksums (only where DomainInfo::reports_landed_crc). watch() starts recording runs,
  // in landing order and merged where adjacent; landed() takes what was recorded since. At most
  // kLandedRunsMax runs are kept: nullopt when there were more, or when the provider does not
  // report them.
  static constexpr std::size_t kLandedRunsMax = 65536;
  virtual void watch(bool /*on*/) noexcept {}
  virtual std::optional<std::vector<LandedRun>> landed() { return std::nullopt; }
};

class TargetEndpoint {
 public:
  virtual ~TargetEndpoint() = default;  // closes
  virtual const Address& address() const noexcept = 0;

  // Providers whose target needs our thread (soft) do their work inside progress(); it may be
  // called by several threads at once. Without `fd` it returns after some work or after timeout_ms
  // without any; with one (>= 0) it works until that becomes readable (true) or timeout_ms passed.
  // Providers that progress by themselves only wait.
  virtual Result<bool> progress(int timeout_ms, int fd = -1) = 0;

  // Introduces a peer (mandatory for efa, harmless elsewhere).
  virtual Status add_peer(const Address& peer) = 0;

  // The fence of last resort, in every mode: after it returns nothing that came through this
  // endpoint touches memory. Wakes threads inside progress(). Idempotent. Neighbouring endpoints of
  // the domain carry on. A close that fails is no fence, and every later call says so again.
  virtual Status close() = 0;
};

struct TargetOptions {
  std::string listen_ip;   // numeric; empty: the domain's interface
  std::uint16_t port = 0;  // 0: any
  bool own_thread =
      true;  // a thread of the endpoint makes progress; false: only callers of progress() do
  std::uint32_t connections_max = 1024;
};

// Peers are named by small integers, valid for one Initiator until removed.
using PeerId = StrongInt<struct PeerIdTag, std::uint32_t>;

enum class OpKind : std::uint8_t { write, read };  // write: local → remote; read: remote → local

struct Operation {
  OpKind kind = OpKind::write;
  PeerId peer;
  RKey key;
  RemoteAddr addr;
  std::span<std::byte> local;  // never written when kind == write
  Registration* local_registration =
      nullptr;                // covers `local`; see DomainInfo::local_registration_required
  std::uint64_t context = 0;  // comes back in the Completion
  // Of a read: who lands the bytes may take their CRC-32C while they are still in its cache.
  bool want_crc = false;
};

struct Completion {
  std::uint64_t context = 0;
  Status status;
  std::optional<Crc32c> crc{};  // of what landed, where it was wanted and taken
};

class Initiator {
 public:
  virtual ~Initiator() = default;  // closes

  virtual const Address& address() const noexcept = 0;

  // Reference counted: the same address gives the same id. unsupported: this provider cannot reach
  // such an address (an IPv6 address on an IPv4 service, say). Does not contact the peer.
  virtual Result<PeerId> add_peer(const Address& peer) = 0;
  // Drops one reference; with the last one the peer's operations are aborted (they still complete)
  // and its links close.
  virtual void remove_peer(PeerId peer) = 0;

  // Starts an operation. `local` is lent to the provider until its completion was polled. again:
  // in_flight_max is reached, poll first. A peer that cannot be reached is reported by a completion
  // (unreachable, within the connect deadline), not here.
  virtual Status post(const Operation& operation) = 0;

  // Stops every operation to `peer` that has not completed: no new byte is sent or fetched, and
  // each completes as aborted once it is quiet, or with its own result if that came first. Never
  // blocks, and sets no time limit: a target that is stopped holds what was lent to it until it
  // goes on, dies, or the Initiator is closed. libfabric's tcp answers for the local memory only:
  // what it had sent may still land, so the owner of the target memory closes its endpoint
  // (docs/decisions/0006).
  virtual void abort(PeerId peer) = 0;

  // Makes progress and takes completions, never blocks. Returns how many were written to `out`.
  virtual std::size_t poll(std::span<Completion> out) = 0;
  // Sleeps until poll() may have something, wake() is called, or timeout_ms passed (-1: no limit).
  // poll() may take a wake() in: look at your own queue once more before you wait.
  virtual void wait(int timeout_ms) = 0;
  virtual void wake() noexcept = 0;
  // A descriptor that becomes readable when poll() should be called, for an event loop; -1 where
  // there is none.
  virtual int wait_fd() const noexcept = 0;

  virtual std::size_t in_flight() const noexcept = 0;
  // Closes links and ends every operation; after it returns no local buffer is touched. Their
  // completions are gone.
  virtual void close() = 0;
};

struct InitiatorOptions {
  Duration connect_deadline = std::chrono::seconds(2);
  std::uint32_t in_flight_max = 0;  // 0: the provider's own
  std::uint32_t streams_per_peer = 1;
};

class Domain {
 public:
  virtual ~Domain() = default;
  virtual const DomainInfo& info() const noexcept = 0;
  // invalid_argument: empty memory. no_memory / exhausted: the provider or RLIMIT_MEMLOCK has no
  // room.
  virtual Result<std::unique_ptr<Registration>> register_memory(const MemoryRef& memory,
                                                                Access access) = 0;
  virtual Result<std::unique_ptr<TargetEndpoint>> open_target(const TargetOptions& options) = 0;
  virtual Result<std::unique_ptr<Initiator>> open_initiator(const InitiatorOptions& options) = 0;

  // Checks that this domain can reach such an address and, where the provider needs it, enters it
  // in the domain's address vector. Reference counted; does not contact the peer. unsupported:
  // wrong length or family; permission: an address that must never be a target (wildcard,
  // multicast, broadcast, link-local).
  virtual Status admit_peer(const Address& peer) = 0;
  virtual void release_peer(const Address& peer) = 0;
};

std::string_view to_string(FenceMode mode) noexcept;

}  // namespace farlift::fabric
