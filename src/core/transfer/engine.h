// Engine: drives many transfers over one Initiator, fairly, from one thread. Two ways to run it: a
// Runner (runner.h) gives it a thread of its own; an event loop watches wait_fd() and calls step()
// when it is readable, which saves small values a thread hop.
//
//   class Get final : public Lender { ...the pins...; void done(const TransferOutcome& o) noexcept
//   override { reply(o); } };
//   const TransferId id = engine.submit({OpKind::write, address, spans, windows},
//   std::make_unique<Get>(...));
//   engine.step();                       // posts; call again whenever wait_fd() is readable
//
// Invariants
//   Lending:  a Lender owns the memory of its job. It is destroyed only when nothing can touch that
//             memory any more, right after its done(), which is called exactly once and never from
//             inside submit(), cancel(), bind() or unbind().
//   Fairness: at most in_flight_max operations are out; free places go round the transfers one
//             operation at a time, so a large value never keeps a small one waiting for more than a
//             round.
//   Fence:    an operation that ends not quiet makes the Engine close its Initiator, before any
//             Lender concerned hears of it, and open another. Every transfer that had operations
//             out then ends with quiet == false: its peer must not be told that it is over (drop
//             the connection instead). The others carry on.
//   Peers:    named by address; a PeerId never leaves the Engine. A peer stays linked while it is
//             bound or in use.
// Threads: one, which may change hands with the caller's own synchronisation; wake() and stats()
//          from any.
// Errors:  those of Transfer; aborted: cancelled or closed; the Initiator's own when it could not
//          be opened again.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/base/unique_fd.h"
#include "core/fabric/fabric.h"
#include "core/transfer/transfer.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace farlift::transfer {

using TransferId = StrongInt<struct TransferIdTag, std::uint64_t>;

struct Job {
  fabric::OpKind kind = fabric::OpKind::write;
  fabric::Address peer;
  std::vector<LocalSpan> local;
  std::vector<RemoteWindow> remote;
  bool compute_crc = false;
};

// Owns what a job lends (pins, drafts) and learns how it ended.
class Lender {
 public:
  virtual ~Lender() = default;
  virtual void done(const TransferOutcome& outcome) noexcept = 0;
};

// A Lender from a callable; what it captures is what it owns (moved in, so it need not be
// copyable).
template <class Done>
std::unique_ptr<Lender> lend(Done done) {
  class Adapter final : public Lender {
   public:
    explicit Adapter(Done&& call) : call_(std::move(call)) {}
    void done(const TransferOutcome& outcome) noexcept override { call_(outcome); }

   private:
    Done call_;
  };
  return std::make_unique<Adapter>(std::move(done));
}

struct EngineOptions {
  fabric::InitiatorOptions initiator;
  std::uint32_t in_flight_max = 64;  // operations of all transfers; 0: what the domain allows
  std::uint32_t in_flight_per_transfer_max = 16;
  Length piece_max{1u << 20};   // cut further to the domain's longest operation
  CrcPool* crc_pool = nullptr;  // outlives the Engine
};

struct EngineStats {
  struct Kind {
    std::uint64_t operations = 0;  // posted, failures included
    std::uint64_t bytes = 0;       // of operations that succeeded
    std::uint64_t usec = 0;        // operations' times summed, failures included
    std::uint64_t errors = 0;      // failed transfers
  };
  Kind write;
  Kind read;
  std::uint64_t fences = 0;
  std::uint64_t live = 0;  // transfers not yet reported
};

class Engine {
 public:
  // `domain` and `clock` outlive the Engine.
  static Result<std::unique_ptr<Engine>> create(fabric::Domain& domain, const Clock& clock,
                                                const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();  // close()

  // Keeps a peer linked between transfers. Counted; an address that cannot be reached shows when it
  // is used.
  void bind(const fabric::Address& peer);
  void unbind(const fabric::Address& peer);

  TransferId submit(Job job, std::unique_ptr<Lender> lender);
  // The same with an id drawn before, by any thread.
  TransferId draw_id() noexcept {
    return TransferId(next_id_.fetch_add(1, std::memory_order_relaxed));
  }
  void submit(TransferId id, Job job, std::unique_ptr<Lender> lender);
  // Stops posting for it. Its peer's operations are aborted unless a transfer that was not
  // cancelled uses the same peer: then those out end by themselves. Unknown (reported already):
  // nothing happens.
  void cancel(TransferId id);
  void cancel_all();

  // Posts, polls and reports what can be without blocking. True when anything moved: call it again
  // before waiting.
  bool step();
  // Sleeps until step() has something to do, wake() was called since the last wait(), or timeout_ms
  // passed (-1: no limit).
  void wait(int timeout_ms);
  void wake() noexcept;
  // Readable when step() should be called; the same descriptor for life. -1: this provider has
  // none, use wait().
  int wait_fd() const noexcept { return provider_fd_ ? epoll_.get() : -1; }

  // The fence: afterwards no memory lent is touched, everything was reported (aborted; not quiet
  // where operations were out) and submit() reports aborted at the next step(). Idempotent.
  void close();

  std::size_t live() const noexcept { return live_.size(); }
  EngineStats stats() const;
  // Of the first Initiator: what peers of providers that need it are told (another one, after a
  // fence, has another).
  const fabric::Address& address() const noexcept { return address_; }

 private:
  struct Peer {
    fabric::Address address;
    std::uint64_t users = 0;  // bindings and live transfers
    std::uint64_t transfers = 0;
    std::uint64_t cancelled = 0;  // of the transfers
    Result<fabric::PeerId> id{Error::make(Errc::closed, "peer")};
  };
  struct Live;
  struct Counters {
    std::atomic<std::uint64_t> operations{0};
    std::atomic<std::uint64_t> bytes{0};
    std::atomic<std::uint64_t> nanoseconds{0};
    std::atomic<std::uint64_t> errors{0};
  };

  Engine(fabric::Domain& domain, const Clock& clock, const EngineOptions& options);
  Status open();
  Peer& acquire(const fabric::Address& address);
  void release(Peer& peer);
  void make_transfer(Live& live, Job job);
  void settle(Live& live);
  void cancel(Live& live);
  void abort_if_all_cancelled(Peer& peer);
  void clear_wake() noexcept;
  bool post_ready();
  bool poll();
  void fence();
  void close_initiator(Error why);
  bool report();
  void count(const Live& live, const TransferOutcome& outcome) noexcept;

  fabric::Domain& domain_;
  const Clock& clock_;
  EngineOptions options_;
  fabric::Address address_;  // set once, by create()
  UniqueFd epoll_;
  UniqueFd wake_event_;
  bool provider_fd_ = false;
  bool closed_ = false;
  bool unquiet_ = false;  // an operation ended not quiet: fence before anything is reported
  bool blocked_ = false;  // the Initiator said again
  std::uint32_t in_flight_ = 0;
  std::atomic<std::uint64_t> next_id_{1};
  std::map<std::string, Peer> peers_;  // by address bytes; nodes stay where they are
  std::unordered_map<std::uint32_t, std::unique_ptr<Live>>
      live_;                   // by the high word of their contexts
  std::deque<Live*> ready_;    // want to post, in turn
  std::vector<Live*> ending_;  // have nothing more to post or take; reported when done()

  Counters write_;
  Counters read_;
  std::atomic<std::uint64_t> fences_{0};
  std::atomic<std::uint64_t> live_count_{0};

  // Guards the pointer for wake(); only the Engine's thread changes it, so that thread reads it
  // freely.
  Mutex wake_mutex_;
  CondVar woken_changed_;
  bool woken_ GUARDED_BY(wake_mutex_) = false;
  std::unique_ptr<fabric::Initiator> initiator_;
};

}  // namespace farlift::transfer
