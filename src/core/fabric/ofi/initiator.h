// OfiInitiator: posts operations over libfabric and accounts for every one of them.
//
// An operation is `waiting` (libfabric has not taken it: the connection is not up, or its queue is
// full), `posted`, `failed` (its error is in, the fault of its connection is being settled), or
// `ready` to be polled. On tcp and verbs each peer has an endpoint of its own, opened on first use
// and closed after a fault, by abort() and with the peer.
//
// Invariants: a slot is free exactly when its completion was polled or close() ran. A posted
//             operation is completed by its queue entry, or after its endpoint was closed, never by
//             a clock.
// Threads:    one, except wake().
// Errors:     as core/fabric/fabric.h; unreachable comes from our own deadline, since libfabric
//             retries for ever.
#pragma once

#include "core/base/unique_fd.h"
#include "core/fabric/ofi/domain.h"
#include "core/fabric/ofi/fault.h"

#include <atomic>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace farlift::fabric::ofi {

class OfiInitiator final : public Initiator {
 public:
  static constexpr std::uint32_t kInFlightMax = 4096;

  static Result<std::unique_ptr<OfiInitiator>> make(OfiDomain& domain,
                                                    const InitiatorOptions& options);
  ~OfiInitiator() override { close(); }

  const Address& address() const noexcept override { return address_; }
  Result<PeerId> add_peer(const Address& peer) override;
  void remove_peer(PeerId peer) override;
  Status post(const Operation& operation) override;
  void abort(PeerId peer) override;
  std::size_t poll(std::span<Completion> out) override;
  void wait(int timeout_ms) override;
  void wake() noexcept override;
  // libfabric 1.17's tcp provider never lowers its descriptor again once it was raised, so there is
  // none to offer.
  int wait_fd() const noexcept override { return -1; }
  std::size_t in_flight() const noexcept override { return slots_.size() - free_.size(); }
  void close() override;

 private:
  enum class SlotState : std::uint8_t { free, waiting, posted, failed, ready };
  struct Slot {
    fi_context2 context;  // first: what libfabric hands back
    SlotState state = SlotState::free;
    bool aborted = false;
    std::uint64_t order = 0;  // of the post() call
    Operation operation;
    Status status;  // of a failed or ready slot
  };
  struct Peer {
    Address address;
    fi_addr_t fi_addr = FI_ADDR_UNSPEC;
    std::uint32_t references = 0;
    UniqueFid<fid_ep> endpoint;
    std::deque<std::uint32_t> waiting;
    std::vector<std::uint32_t> failed;
    std::uint32_t posted = 0;
    bool blocked = false;  // nothing posted and libfabric takes nothing: connecting
    Instant blocked_since;
  };
  struct Fault {  // failed operations of one connection whose cause is being asked
    std::vector<std::uint32_t> slots;  // in posting order
    ListenerProbe probe;
  };
  enum class Taken : std::uint8_t { yes, no };

  OfiInitiator(OfiDomain& domain, const InitiatorOptions& options, CompletionQueue queue,
               UniqueFd wake_event, std::uint32_t in_flight_max);

  Status check(const Operation& operation) const;
  Status close_door(fid_ep* endpoint) const;
  Peer* find(PeerId peer) const noexcept;
  Result<Taken> try_post(Slot& slot, Peer& peer);
  Result<fid_ep*> endpoint_of(Peer& peer);
  void retry_waiting(Peer& peer, Instant now);
  void fail_waiting(Peer& peer, Error error);
  void complete(std::uint32_t slot, Status status);

  void drain();
  void take_entry(void* context);
  void take_error();
  Slot* posted_slot(void* context) noexcept;
  void make_progress();

  void settle(Peer& peer);
  void report_fault(const std::vector<std::uint32_t>& slots, bool peer_listens);
  void ask_probes(Instant now);
  void end_connection(Peer& peer, Error error);
  void drop_if_unused(std::uint32_t index);
  bool impatient() const noexcept { return waiting_ > 0 || !faults_.empty(); }
  void rest(int timeout_ms);
  void rest_polling(int timeout_ms);

  OfiDomain& domain_;
  const Duration connect_deadline_;
  const bool blocks_;
  const UniqueFd wake_event_;  // for queues that cannot block
  std::atomic<bool> woken_{false};
  bool closed_ = false;
  std::uint64_t next_order_ = 0;
  std::size_t waiting_ = 0;
  std::size_t posted_ = 0;
  bool any_failed_ = false;
  std::vector<Slot> slots_;
  std::deque<std::uint32_t> free_;
  std::deque<std::uint32_t> ready_;
  std::vector<Fault> faults_;
  std::unordered_map<std::string, std::uint32_t> by_address_;
  Address address_;
  UniqueFid<fid_cq> queue_;
  UniqueFid<fid_ep>
      base_endpoint_;  // gives address(); carries the operations where peers have none of their own
  std::vector<std::unique_ptr<Peer>> peers_;  // last: their endpoints close first
};

}  // namespace farlift::fabric::ofi
