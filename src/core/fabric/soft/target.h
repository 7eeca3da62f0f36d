// SoftTarget: the passive side. A listener and its links in one epoll set; whoever calls progress()
// lands bytes: one thread leads (waits for events), others follow (help with large copies, take the
// lead over).
//
// Work is handed out so that one link never has two receivers (EPOLLONESHOT and a claim), while the
// pieces of its pulls may be copied by several threads at once. All copying goes through
// Registry::begin(), piece by piece.
//
// Invariants: the socket of a link is shut down only after the last piece of its pulls ended, so an
//             initiator that saw the end of the link knows that nobody reads its memory or writes
//             for it any more.
// Threads:    any. Errors: closed after close().
#pragma once

#include "core/base/adaptive_spin.h"
#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/fabric/soft/domain.h"
#include "core/fabric/soft/target_link.h"

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>

namespace farlift::fabric::soft {

class SoftTarget final : public TargetEndpoint {
 public:
  static constexpr std::uint64_t kLandPieceBytesMax = 256u
                                                      << 10;  // one recv: how long a close may wait
  static constexpr std::uint64_t kPullPieceBytesMax = 1u << 20;  // one process_vm_readv
  static constexpr std::uint64_t kMappedPieceBytesMax =
      256u << 10;  // one copy from a view; the CRC of what landed finds it in the cache
  static constexpr std::uint64_t kParallelPullBytesMin =
      4u << 20;  // below it a second thread costs more than it brings
  static constexpr std::uint64_t kLeadBytesMax =
      4u << 20;  // served on one link, then a follower takes the lead
  static constexpr std::uint64_t kServeBytesMax = 16u << 20;  // then other links get a turn
  static constexpr std::size_t kOutBytesMax =
      64u << 10;  // unsent replies of a link; then it is not read
  static constexpr std::size_t kReadsPerLinkMax = 1024;
  static constexpr std::size_t kPullsPerLinkMax = 1024;
  static constexpr std::size_t kRefusingLinksMax = 16;  // told that connections_max was reached

  static Result<std::unique_ptr<SoftTarget>> open(SoftDomain& domain, const TargetOptions& options);
  ~SoftTarget() override;

  const Address& address() const noexcept override { return address_; }
  Result<bool> progress(int timeout_ms, int fd) override;
  Status add_peer(const Address& peer) override;
  Status close() override;

 private:
  using LinkRef = std::shared_ptr<TargetLink>;
  struct Pull {
    LinkRef link;
    Request request;
    std::span<const std::byte> mapped;  // the source in our view of its file; empty: there is none
    std::shared_ptr<const SourceMapping> keep;  // holds `mapped`
    std::uint64_t next = 0;                     // start of the next piece to hand out
    std::uint32_t pieces = 0;                   // in progress
    ReplyStatus status = ReplyStatus::ok;
  };
  enum class Step : std::uint8_t { idle, more, ended };

  SoftTarget(SoftDomain& domain, const TargetOptions& options)
      : domain_(domain),
        connections_max_(options.connections_max),
        hello_deadline_(domain.options().hello_deadline_ms),
        spin_(std::chrono::microseconds(domain.options().spin_us)) {}
  Status start(const TargetOptions& options);

  // target.cc: events
  bool try_lead() noexcept;
  void give_up_lead() noexcept;
  void wake_follower() noexcept;
  Result<bool> run(int timeout_ms, int fd, bool stay);
  bool lead(int timeout_ms, int fd, bool stay, bool& leading);
  bool follow(int timeout_ms, int fd);
  bool run_events(int timeout_ms, bool& leading);
  void accept_links();
  void end_silent_links();
  void arm_hello_timer(TargetLink::Time at) REQUIRES(links_mutex_);
  void refuse_without_descriptor();
  void serve(const LinkRef& link, bool& leading);
  bool serve_claimed(const LinkRef& link, bool& leading);
  void arm(TargetLink& link) REQUIRES(link.mutex);
  void end_link(const LinkRef& link);
  void finish_link(const LinkRef& link);

  // target_input.cc: what arrives
  Step receive(const LinkRef& link, std::uint64_t& moved);
  Step receive_hello(TargetLink& link);
  Step receive_header(const LinkRef& link);
  Step receive_payload(TargetLink& link, std::uint64_t& moved);
  Step drain_payload(TargetLink& link);
  Step dispatch(const LinkRef& link);
  void prove_host(TargetLink& link);
  bool stalled(TargetLink& link);

  // target_output.cc: what is sent
  void reply(TargetLink& link, std::uint64_t id, ReplyKind kind, ReplyStatus status);
  void flush(TargetLink& link);
  void flush_locked(TargetLink& link) REQUIRES(link.mutex);
  bool send_headers(TargetLink& link) REQUIRES(link.mutex);
  bool send_frame(TargetLink& link) REQUIRES(link.mutex);
  void append(TargetLink& link, const Reply& reply) REQUIRES(link.mutex);

  // target_pull.cc: host-lane writes
  void add_pull(const LinkRef& link, const Request& request);
  std::uint64_t pull_piece(TargetLink* of_link);  // nullptr: of any link
  ReplyStatus copy_piece(const TargetLink& link, const Pull& pull, std::uint64_t from,
                         std::uint64_t length);

  SoftDomain& domain_;
  const std::uint32_t connections_max_;
  const std::chrono::milliseconds hello_deadline_;
  AdaptiveSpin spin_;
  Address address_;
  UniqueFd epoll_;
  UniqueFd listener_;
  UniqueFd hello_timer_;   // fires when the next hello is overdue
  UniqueFd closed_event_;  // readable for good once closed
  UniqueFd helper_event_;  // a semaphore: one token wakes one follower
  std::atomic<bool> closed_{false};
  std::atomic<bool> led_{false};  // some thread waits on the epoll set, or runs what it got there
  std::atomic<std::uint32_t> followers_{0};       // threads of progress() that do not lead
  std::atomic<std::uint64_t> pieces_waiting_{0};  // bytes of pulls not yet handed out

  Mutex close_mutex_;
  UniqueFd spare_ GUARDED_BY(close_mutex_);  // given up for a moment when descriptors run out

  Mutex inside_mutex_;
  CondVar left_;
  std::uint32_t inside_ GUARDED_BY(inside_mutex_) = 0;

  Mutex links_mutex_;
  std::unordered_map<std::uint64_t, LinkRef> links_ GUARDED_BY(links_mutex_);
  std::uint64_t next_link_ GUARDED_BY(links_mutex_) = 16;
  bool hello_timer_armed_ GUARDED_BY(links_mutex_) = false;

  SourceCache source_cache_;
  Mutex jobs_mutex_;
  std::deque<std::shared_ptr<Pull>> jobs_ GUARDED_BY(jobs_mutex_);

  std::thread thread_;
};

}  // namespace farlift::fabric::soft
