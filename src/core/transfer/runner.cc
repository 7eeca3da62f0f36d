#include "core/transfer/runner.h"

#include "core/base/assert.h"

#include <algorithm>
#include <pthread.h>
#include <utility>

namespace farlift::transfer {
namespace {

constexpr std::size_t kThreadNameMax = 15;

int milliseconds_until(Instant deadline, Instant now) noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace

Result<std::unique_ptr<Runner>> Runner::create(fabric::Domain& domain, const Clock& clock,
                                               RunnerOptions options) {
  TRY_ASSIGN(auto engine, Engine::create(domain, clock, options.engine));
  std::unique_ptr<Runner> runner(new Runner(clock, std::move(options), std::move(engine)));
  MutexLock lock(runner->join_mutex_);
  runner->thread_ = std::thread([self = runner.get()] { self->run(); });
  return runner;
}

Runner::Runner(const Clock& clock, RunnerOptions options, std::unique_ptr<Engine> engine)
    : clock_(clock), options_(std::move(options)), engine_(std::move(engine)) {}

Runner::~Runner() { stop(); }

void Runner::push(Command command) {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    queue_.push_back(std::move(command));
  }
  engine_->wake();
}

void Runner::bind(const fabric::Address& peer) { push(Bind{peer, true}); }
void Runner::unbind(const fabric::Address& peer) { push(Bind{peer, false}); }
void Runner::cancel(TransferId id) { push(Cancel{id}); }

Result<TransferId> Runner::submit(Job&& job, std::unique_ptr<Lender>&& lender) {
  const TransferId id = engine_->draw_id();
  {
    MutexLock lock(mutex_);
    if (stopping_) return Error::make(Errc::closed, "rail is stopping");
    if (queued_jobs_ >= kQueuedMax) return Error::make(Errc::exhausted, "queue of the rail");
    ++queued_jobs_;
    queue_.push_back(Submit{id, std::move(job), std::move(lender)});
  }
  engine_->wake();
  return id;
}

void Runner::apply(Command& command) {
  if (auto* submit = std::get_if<Submit>(&command)) {
    engine_->submit(submit->id, std::move(submit->job), std::move(submit->lender));
  } else if (const auto* cancel = std::get_if<Cancel>(&command)) {
    engine_->cancel(cancel->id);
  } else {
    const auto& bind = std::get<Bind>(command);
    if (bind.on) {
      engine_->bind(bind.peer);
    } else {
      engine_->unbind(bind.peer);
    }
  }
}

void Runner::run() {
  (void)pthread_setname_np(pthread_self(), options_.thread_name.substr(0, kThreadNameMax).c_str());
  std::vector<Command> batch;
  Instant deadline = Instant::max();  // of stopping
  for (;;) {
    bool stopping = false;
    {
      MutexLock lock(mutex_);
      batch.swap(queue_);
      queued_jobs_ = 0;
      busy_ = true;
      stopping = stopping_;
    }
    for (Command& command : batch) apply(command);
    batch.clear();
    if (stopping && deadline == Instant::max()) {
      engine_->cancel_all();
      deadline = clock_.now() + options_.stop_patience;
    }
    const bool moved = engine_->step();
    if (stopping && clock_.now() >= deadline) engine_->close();
    bool more = false;
    {
      MutexLock lock(mutex_);
      busy_ = engine_->live() > 0;
      more = !queue_.empty() || stopping_ != stopping;
      if (!busy_ && queue_.empty()) {
        idle_.notify_all();
        if (stopping_) break;
      }
    }
    // step() takes in wake-ups: one that belongs to a command, or to stop(), since the swap is gone
    // by now.
    if (!moved && !more) engine_->wait(stopping ? milliseconds_until(deadline, clock_.now()) : -1);
  }
  engine_->close();
}

void Runner::drain() {
  MutexLock lock(mutex_);
  while (busy_ || !queue_.empty()) idle_.wait(mutex_);
}

void Runner::stop() {
  MutexLock joining(join_mutex_);
  if (!thread_.joinable()) return;
  ASSERT(thread_.get_id() != std::this_thread::get_id());
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  engine_->wake();
  thread_.join();
}

EngineStats Runner::stats() const {
  EngineStats stats = engine_->stats();
  MutexLock lock(mutex_);
  stats.live += queued_jobs_;
  return stats;
}

}  // namespace farlift::transfer
