// DcInitiator: posts operations over a few DCIs and accounts for every one of them.
//
// Each peer is bound to the DCI with the fewest peers, so that a fault of one peer stops as few
// others as may be. An operation is `waiting` (its DCI is being restarted or the card's queue is
// full), `posted`, or `ready` to be polled.
//
// Invariants: a slot is free exactly when its completion was polled or close() ran. A posted
// operation
//             is completed by its entry in the completion queue, or after its DCI was destroyed,
//             never by a clock. An entry carries its slot's turn: what comes for an earlier use of
//             the slot is dropped.
// Threads:    one, except wake().
// Errors:     as core/fabric/fabric.h. A target that does not answer is reported by the card after
//             eight tries, together at most the connect deadline (unreachable).
#pragma once

#include "core/base/unique_fd.h"
#include "core/fabric/dc/queue_pair.h"

#include <atomic>
#include <deque>
#include <map>
#include <vector>

namespace farlift::fabric::dc {

class DcInitiator final : public Initiator {
 public:
  static constexpr std::uint32_t kInFlightDefault = 256;
  static constexpr std::uint32_t kInFlightMax = 4096;

  static Result<std::unique_ptr<DcInitiator>> make(const Card& card,
                                                   const InitiatorOptions& options,
                                                   Length operation_length_max);
  ~DcInitiator() override { close(); }

  // Of this side's port, with DCT number 0: nobody can write to an initiator.
  const Address& address() const noexcept override { return address_; }
  Result<PeerId> add_peer(const Address& peer) override;
  void remove_peer(PeerId peer) override;
  // The first operation to a peer asks the kernel for the way there, which on RoCE may wait for the
  // answer of a neighbour.
  Status post(const Operation& operation) override;
  void abort(PeerId peer) override;
  std::size_t poll(std::span<Completion> out) override;
  void wait(int timeout_ms) override;
  void wake() noexcept override;
  int wait_fd() const noexcept override { return waitable_.get(); }
  std::size_t in_flight() const noexcept override { return slots_.size() - free_.size(); }
  void close() override;

 private:
  enum class SlotState : std::uint8_t { free, waiting, posted, ready };
  struct Slot {
    SlotState state = SlotState::free;
    bool aborted = false;
    std::uint32_t turn = 0;  // of its uses
    Operation operation;
    Status status;  // of a ready slot
  };
  struct Peer {
    DcAddress address;
    std::uint32_t references = 0;
    std::uint32_t operations = 0;  // waiting or posted
    std::uint32_t lane = 0;
    UniqueAh route;
  };
  struct Lane {
    explicit Lane(QueuePair queue_pair) : pair(std::move(queue_pair)) {}
    QueuePair pair;
    std::uint32_t peers = 0;
    std::uint32_t posted = 0;
    std::deque<std::uint32_t> waiting;
  };

  DcInitiator(const Card& card, Length operation_length_max)
      : card_(card), operation_length_max_(operation_length_max) {}
  Status open(const InitiatorOptions& options);
  Status open_waiting();
  Status check(const Operation& operation) const;
  Peer* find(PeerId peer) const noexcept;
  Peer& peer_of(const Slot& slot) const noexcept { return *peers_[slot.operation.peer.raw()]; }
  Status route_to(Peer& peer);
  void submit(std::uint32_t index);
  void complete(std::uint32_t index, Status status);
  void fail_posted(std::uint32_t lane, const Status& close_status);
  void mend(std::uint32_t lane);
  void drain();
  void take(const ibv_wc& entry);
  void take_events();
  void arm();
  void drop_if_unused(PeerId peer);

  const Card& card_;
  const Length operation_length_max_;
  Address address_;
  bool closed_ = false;
  bool armed_ = false;  // the next entry raises an event
  unsigned events_to_acknowledge_ = 0;
  UniqueFd wake_event_;
  UniqueFd waitable_;  // an epoll set of wake_event_ and the channel
  UniqueChannel channel_;
  UniqueCq queue_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::deque<std::uint32_t> ready_;
  std::map<std::vector<std::byte>, std::uint32_t> by_address_;
  std::vector<std::unique_ptr<Peer>> peers_;  // routes close after the queues that use them
  std::vector<Lane> lanes_;                   // last: closes first
};

}  // namespace farlift::fabric::dc
