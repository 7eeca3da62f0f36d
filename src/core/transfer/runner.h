// Runner: an Engine with a thread of its own, the rail thread, fed by a bounded queue.
//
//   TRY_ASSIGN(auto runner, Runner::create(domain, clock, options));
//   runner->bind(address);
//   auto id = runner->submit(job, lender);        // moved from only when it was accepted
//   ... lender->done(outcome) on the rail thread, once ...
//   runner->stop();                               // or the destructor
//
// Invariants: what was accepted is reported exactly once; commands take effect in the order they
//             came; after stop() the thread is gone, no memory lent is touched and every Lender is
//             destroyed.
// Threads:    any for all of it; done() runs on the rail thread, must not block, and may submit and
//             cancel, but neither drain() nor stop().
// Errors:     submit: exhausted when kQueuedMax jobs wait, closed after stop(). See Engine for what
//             done() is told.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/transfer/engine.h"

#include <cstddef>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

namespace farlift::transfer {

struct RunnerOptions {
  EngineOptions engine;
  std::string thread_name = "farlift-rail";  // cut to 15 characters
  // How long stop() waits for aborted operations to end before it closes the Initiator over them.
  Duration stop_patience = std::chrono::seconds(5);
};

class Runner {
 public:
  // Jobs accepted and not yet seen by the rail thread. Bindings and cancellations are not limited:
  // there are at most as many as connections and transfers, which their owners bound.
  static constexpr std::size_t kQueuedMax = 16384;

  static Result<std::unique_ptr<Runner>> create(fabric::Domain& domain, const Clock& clock,
                                                RunnerOptions options);
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  ~Runner();  // stop()

  void bind(const fabric::Address& peer);
  void unbind(const fabric::Address& peer);
  Result<TransferId> submit(Job&& job, std::unique_ptr<Lender>&& lender);
  void cancel(TransferId id);

  // Returns at a moment when nothing accepted is unreported.
  void drain();
  // Refuses new work, cancels what is there, waits until it ended, joins. May be called again.
  void stop();

  EngineStats stats() const;
  const fabric::Address& address() const noexcept { return engine_->address(); }

 private:
  struct Submit {
    TransferId id;
    Job job;
    std::unique_ptr<Lender> lender;
  };
  struct Cancel {
    TransferId id;
  };
  struct Bind {
    fabric::Address peer;
    bool on;
  };
  using Command = std::variant<Submit, Cancel, Bind>;

  Runner(const Clock& clock, RunnerOptions options, std::unique_ptr<Engine> engine);
  void push(Command command);
  void apply(Command& command);
  void run();

  const Clock& clock_;
  const RunnerOptions options_;
  const std::unique_ptr<Engine>
      engine_;  // the rail thread's, but for draw_id(), wake() and stats()

  mutable Mutex mutex_;
  CondVar idle_;
  std::vector<Command> queue_ GUARDED_BY(mutex_);
  std::size_t queued_jobs_ GUARDED_BY(mutex_) = 0;
  bool busy_ GUARDED_BY(mutex_) = false;  // the rail thread holds commands or transfers
  bool stopping_ GUARDED_BY(mutex_) = false;

  Mutex join_mutex_;  // before mutex_
  std::thread thread_ GUARDED_BY(join_mutex_);
};

}  // namespace farlift::transfer
