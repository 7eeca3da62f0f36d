// Rail: one Initiator and the transfers that run over it, either on a thread of its own or inside the server's event loop.
//
// Invariants: a job's done() is called exactly once, when no operation of it is in flight; whatever its buffers hang on
//             (Job::keep) is kept until the fabric promised that nobody touches them: with the outcome if that is quiet,
//             else until the Initiator was closed, which happens as soon as no other transfer needs it.
// Threads:    submit(), cancel(), forget() and load() from any thread on a threaded rail; on an inline rail everything
//             belongs to the thread that calls pump(). done() runs on the rail's thread.
// Errors:     closed after stop(); otherwise those of the transfer arrive in its outcome.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/fabric/fabric.h"
#include "core/transfer/transfer.h"

namespace farlift::blob {

// Names a binding on every rail it has used.
using BindingId = StrongInt<struct BindingIdTag, std::uint64_t>;
using JobId = StrongInt<struct JobIdTag, std::uint64_t>;

struct JobOutcome {
  transfer::TransferOutcome transfer;
  Duration elapsed{};
};

struct Job {
  JobId id;
  BindingId binding;
  fabric::Address peer;
  transfer::TransferRequest request;  // `peer` is filled in by the rail
  std::shared_ptr<const void> keep;   // owns what the local spans point into
  std::function<void(JobOutcome)> done;
};

struct RailOptions {
  fabric::InitiatorOptions initiator;
  bool own_thread = true;
  const char* name = "rail";
};

class Rail {
 public:
  static Result<std::unique_ptr<Rail>> open(fabric::Domain& domain, const RailOptions& options, const Clock& clock);
  ~Rail();

  void submit(Job job);
  // Stops posting for the job; it still ends with done(). Unknown ids are of jobs that have ended.
  void cancel(JobId id);
  // The binding is gone: drops its entry in the address vector. None of its jobs may be running.
  void forget(BindingId binding);
  // Cancels everything, waits until it has ended, closes the Initiator. Idempotent.
  void stop();

  const fabric::Address& address() const noexcept { return address_; }
  std::uint32_t load() const noexcept { return load_.load(std::memory_order_relaxed); }

  // Inline rails: makes progress without blocking; call when wait_fd() is readable.
  void pump();
  int wait_fd() const noexcept { return initiator_->wait_fd(); }
  // Called after the Initiator was replaced, with the old and the new wait_fd(). Inline rails only.
  std::function<void(int, int)> on_new_wait_fd;

 private:
  struct Running {
    std::unique_ptr<transfer::Transfer> transfer;
    Job job;
    Instant begun{};
  };
  struct Cancel { JobId id; };
  struct Forget { BindingId binding; };
  struct Stop {};
  using Command = std::variant<Job, Cancel, Forget, Stop>;

  Rail(fabric::Domain& domain, const RailOptions& options, const Clock& clock)
      : domain_(domain), options_(options), clock_(clock) {}
  void enqueue(Command command);
  void run();
  bool take_commands();
  bool step();  // true when something moved
  void execute(Job job);
  void execute(Cancel cancel);
  void execute(Forget forget);
  void execute(Stop);
  void begin(Job job);
  void finish(std::uint32_t slot);
  void fail(Job& job, Error why);
  void fence_when_idle();
  bool must_fence_first() const noexcept;

  fabric::Domain& domain_;
  const RailOptions options_;
  const Clock& clock_;
  std::unique_ptr<fabric::Initiator> initiator_;
  fabric::Address address_;
  std::unordered_map<std::uint64_t, fabric::PeerId> peers_;        // by binding
  std::unordered_map<std::uint32_t, Running> running_;             // by the high word of the operations' contexts
  std::unordered_map<std::uint64_t, std::uint32_t> slots_;         // job → high word
  std::deque<Job> waiting_;                                        // behind a fence
  std::vector<std::shared_ptr<const void>> graveyard_;             // buffers of outcomes that were not quiet
  std::uint32_t next_slot_ = 1;
  bool stopping_ = false;
  std::atomic<std::uint32_t> load_{0};
  Mutex mutex_;
  std::vector<Command> commands_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: joins first
};

}  // namespace farlift::blob
