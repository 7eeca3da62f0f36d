// OfiInitiator: posts operations over libfabric and accounts for every one of them.
//
// An operation is `waiting` (libfabric has not taken it: the connection is not up, or its queue is
// full), `posted`, `failed` (its error is in, the fault of its connection is being settled), or
// `ready` to be polled. On tcp and verbs each peer has a link of its own, opened on first use and
// closed after a fault, by abort() and with the peer.
//
// On tcp a link is a whole domain with its queue, for libfabric (1.17) breaks its own books when a
// connection ends in the middle of a read's response: the operation is reported twice, and its
// entry is freed twice into the domain's pool, from which two later operations are then given the
// same entry. Here no later operation uses that pool: the link is closed before anything is posted
// to the peer again. The second report finds nothing out, and is dropped.
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
#include <optional>
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
    std::unique_ptr<Link> link;
    std::deque<std::uint32_t> waiting;
    std::vector<std::uint32_t> failed;
    std::uint32_t posted = 0;
    bool blocked = false;  // nothing posted and libfabric takes nothing: connecting
    Instant blocked_since;
    Instant tried;
    std::uint32_t tries = 0;             // since it was blocked
    std::optional<ListenerProbe> probe;  // tcp: is there anybody to connect to?
  };
  struct Fault {  // failed operations of one connection whose cause is being asked
    std::vector<std::uint32_t> slots;  // in posting order
    ListenerProbe probe;
  };
  static constexpr std::size_t kQueueMargin = 64;  // entries beyond the operations we may have out
  static constexpr std::uint64_t kWakeMark = UINT64_MAX;  // among the indices in links_ready_
  enum class Taken : std::uint8_t { yes, no };

  OfiInitiator(OfiDomain& domain, const InitiatorOptions& options, CompletionQueue queue,
               UniqueFd wake_event, UniqueFd links_ready, std::uint32_t in_flight_max);

  Status check(const Operation& operation) const;
  Status close_door(fid_ep* endpoint) const;
  Peer* find(PeerId peer) const noexcept;
  Result<Taken> try_post(Slot& slot);
  Result<fid_ep*> endpoint_of(std::uint32_t index);
  Result<std::unique_ptr<Link>> open_link(std::uint32_t index);
  int close_link(Peer& peer);
  void retry_waiting(Peer& peer, Instant now);
  void wait_for_connection(Peer& peer, Instant now);
  void fail_waiting(Peer& peer, Error error);
  void complete(std::uint32_t slot, Status status);

  void drain();
  void take_wake() noexcept;
  std::size_t drain_ready_links(int timeout_ms);
  void drain_all_links();
  void drain_queue(fid_cq* queue, const Peer* of);
  void take_entry(void* context, const Peer* of);
  void take_error(fid_cq* queue, const Peer* of);
  Slot* posted_slot(void* context, const Peer* of) noexcept;
  void make_progress();

  void settle(Peer& peer);
  void report_fault(const std::vector<std::uint32_t>& slots, bool peer_listens);
  void ask_probes(Instant now);
  void end_connection(Peer& peer, Error error);
  void drop_if_unused(std::uint32_t index);
  bool impatient() const noexcept { return waiting_ > 0 || !faults_.empty(); }
  void rest(int timeout_ms);
  void rest_polling(int timeout_ms);
  void rest_on_links(int timeout_ms);

  OfiDomain& domain_;
  const Duration connect_deadline_;
  const bool blocks_;
  const UniqueFd wake_event_;   // for queues that cannot block
  const UniqueFd links_ready_;  // tcp: an epoll set of the links' progress and of wake_event_
  bool links_polled_ = false;   // tcp: a link has no progress descriptor
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
  UniqueFid<fid_cq> queue_;  // tcp: only base_endpoint_'s, and nothing comes
  UniqueFid<fid_ep>
      base_endpoint_;  // gives address(); carries the operations where peers have none of their own
  std::vector<std::unique_ptr<Peer>> peers_;  // last: their links close first
};

}  // namespace farlift::fabric::ofi
