// SoftInitiator: the active side. One epoll set over its links; no thread of its own but the
// helper of large host-lane reads.
//
// An operation goes by the host lane when the link proved it (reads: we copy; large writes: the
// target pulls), else over the socket. Links connect on first use. abort() shuts our side down and
// waits for the target's end, which the target gives only after it stopped touching memory for us;
// that wait has no limit, since a stopped target may go on when it is resumed: until then the
// operations stay out and their memory stays lent. Only close() gives up, after kLeaveLimit.
//
// Threads: one; wake() from any. Errors: as core/fabric/fabric.h.
#pragma once

#include "core/base/adaptive_spin.h"
#include "core/base/unique_fd.h"
#include "core/fabric/soft/domain.h"
#include "core/fabric/soft/host_reader.h"
#include "core/fabric/soft/initiator_link.h"

#include <deque>
#include <memory>
#include <sys/types.h>
#include <unordered_map>
#include <vector>

namespace farlift::fabric::soft {

class SoftInitiator final : public Initiator {
 public:
  static constexpr std::uint32_t kInFlightMax = 1024;
  static constexpr std::uint32_t kStreamsPerPeerMax = 8;
  static constexpr std::uint64_t kPullBytesMin = 32u
                                                 << 10;  // smaller writes travel with their request
  static constexpr std::uint64_t kInlineReadBytesMax =
      64u << 10;  // such host reads are done inside post()
  static constexpr std::uint64_t kReadBytesPerPoll = 4u << 20;   // then poll() returns
  static constexpr std::uint64_t kSendBytesMax = 256u << 10;     // one sendmsg
  static constexpr std::uint64_t kReceiveBytesMax = 256u << 10;  // one recvmsg of a read's payload
  static constexpr std::size_t kEntriesMax = 4096;  // cached registry entries of a link
  // How long close() waits for targets that do not end their links.
  static constexpr Duration kLeaveLimit = std::chrono::seconds(2);

  static Result<std::unique_ptr<SoftInitiator>> open(SoftDomain& domain,
                                                     const InitiatorOptions& options);
  ~SoftInitiator() override;

  const Address& address() const noexcept override { return address_; }
  Result<PeerId> add_peer(const Address& peer) override;
  void remove_peer(PeerId peer) override;
  Status post(const Operation& operation) override;
  void abort(PeerId peer) override;
  std::size_t poll(std::span<Completion> out) override;
  void wait(int timeout_ms) override;
  void wake() noexcept override;
  int wait_fd() const noexcept override { return epoll_.get(); }
  std::size_t in_flight() const noexcept override { return in_flight_; }
  void close() override;

 private:
  using Link = InitiatorLink;
  struct Slot {
    Operation operation;
    std::uint64_t id = 0;  // 0: free; else serial << 16 | index
    Link* link = nullptr;
    bool begun = false;  // some of it was sent
    bool sent = false;   // all of it was
    bool pull = false;
    std::uint64_t done_bytes = 0;  // of a read
    std::size_t header_bytes = 0;
    std::array<std::byte, kRequestBytes + SourceAnnouncer::kBytesMax> header{};
  };

  SoftInitiator(SoftDomain& domain, const InitiatorOptions& options);
  Status start();

  // initiator.cc: operations, peers, time
  InitiatorPeer* find_peer(PeerId peer) const;
  Slot* find_slot(std::uint64_t id);
  void finish(Slot& slot, Status status, std::optional<Crc32c> crc = {});
  bool run(int timeout_ms);
  void check_deadlines();
  void arm_timer();
  void ring() noexcept;

  // initiator_link.cc: connections
  Result<Link*> link_for(InitiatorPeer& peer, std::uint64_t bytes);
  Result<Link*> connect(InitiatorPeer& peer);
  void on_event(Link& link, std::uint32_t events);
  void on_connected(Link& link);
  void on_hello(Link& link);
  void on_up(Link& link);
  void fail(Link& link, Error why);
  void leave(Link& link);
  void drop(Link& link);
  void abort_links(InitiatorPeer& peer);

  // initiator_io.cc: bytes
  void route(Link& link, std::uint32_t index);
  void send(Link& link);
  bool send_control(Link& link);
  void sent(Link& link, std::uint64_t bytes);
  void receive(Link& link);
  ssize_t receive_frame(Link& link, std::size_t& room);
  bool on_bytes(Link& link);
  bool on_reply(Link& link, const Reply& reply);
  void receive_eof(Link& link, int error);

  // initiator_host.cc: host-lane reads, and what a pull's target is told of its source
  RequestKind announce_source(Link& link, Slot& slot);
  void prove_host(Link& link, const Hello& theirs);
  void host_reads(std::uint64_t budget);
  void start_host_read(Slot& slot, bool fresh);
  Result<EntryImage> entry_of(Link& link, const Operation& operation, bool fresh, bool& cached);

  SoftDomain& domain_;
  const InitiatorOptions options_;
  Address address_;
  UniqueFd reserved_;  // a bound socket that never listens: our name, and a port nobody else gets
  UniqueFd epoll_;
  UniqueFd wake_event_;
  UniqueFd timer_;
  bool rung_ = false;  // wake_event_ is readable because completions wait
  bool closed_ = false;
  Instant timer_at_{};  // what timer_ is set to; zero: not set

  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t in_flight_ = 0;
  std::uint64_t serial_ = 0;
  std::deque<Completion> ready_;
  AdaptiveSpin spin_;
  HostReader reader_;

  std::unordered_map<std::uint32_t, std::unique_ptr<InitiatorPeer>> peers_;
  std::uint32_t next_peer_ = 1;
  std::unordered_map<std::uint64_t, std::unique_ptr<Link>> links_;
  std::vector<std::unique_ptr<Link>> dropped_;  // until the event batch that saw them is over
  std::uint64_t next_link_ = 16;
};

}  // namespace farlift::fabric::soft
