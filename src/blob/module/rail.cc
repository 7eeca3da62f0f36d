#include "blob/module/rail.h"

#include <pthread.h>

#include <array>
#include <utility>

#include "core/base/log.h"

namespace farlift::blob {
namespace {

constexpr std::size_t kCompletionsAtOnce = 64;
// Unfenced buffers a rail may collect before it makes new transfers wait for the fence.
constexpr std::size_t kGraveyardMax = 64;
// Added to the load of a rail that waits for its fence, so that new transfers go elsewhere.
constexpr std::uint32_t kFencePenalty = 1000;

}  // namespace

Result<std::unique_ptr<Rail>> Rail::open(fabric::Domain& domain, const RailOptions& options, const Clock& clock) {
  std::unique_ptr<Rail> rail(new Rail(domain, options, clock));
  TRY_ASSIGN(rail->initiator_, domain.open_initiator(options.initiator));
  rail->address_ = rail->initiator_->address();
  if (options.own_thread) {
    rail->thread_ = std::thread([r = rail.get()] { r->run(); });
  }
  return rail;
}

Rail::~Rail() { stop(); }

void Rail::submit(Job job) {
  load_.fetch_add(1, std::memory_order_relaxed);
  if (!options_.own_thread) {
    execute(std::move(job));
    return;
  }
  {
    MutexLock lock(mutex_);
    if (!closed_) {
      commands_.emplace_back(std::move(job));
      initiator_->wake();
      return;
    }
  }
  fail(job, Error::make(Errc::closed, "rail is stopped"));
}

void Rail::cancel(JobId id) { enqueue(Cancel{id}); }

void Rail::forget(BindingId binding) { enqueue(Forget{binding}); }

void Rail::enqueue(Command command) {
  if (!options_.own_thread) {
    std::visit([this](auto& c) { execute(std::move(c)); }, command);
    return;
  }
  MutexLock lock(mutex_);
  if (closed_) return;
  commands_.push_back(std::move(command));
  initiator_->wake();
}

void Rail::stop() {
  if (options_.own_thread) {
    enqueue(Stop{});
    if (thread_.joinable()) thread_.join();
  } else if (!stopping_) {
    execute(Stop{});
    while (!running_.empty()) {
      if (!step()) initiator_->wait(-1);
    }
  }
  if (initiator_) initiator_->close();
  graveyard_.clear();
}

void Rail::run() {
  pthread_setname_np(pthread_self(), options_.name);
  for (;;) {
    const bool commanded = take_commands();
    const bool moved = step();
    if (stopping_ && running_.empty()) {
      MutexLock lock(mutex_);
      if (commands_.empty()) {
        closed_ = true;
        return;
      }
      continue;
    }
    if (!commanded && !moved) initiator_->wait(-1);
  }
}

bool Rail::take_commands() {
  std::vector<Command> taken;
  {
    MutexLock lock(mutex_);
    taken.swap(commands_);
  }
  for (Command& command : taken) {
    std::visit([this](auto& c) { execute(std::move(c)); }, command);
  }
  return !taken.empty();
}

void Rail::pump() {
  while (step()) {
  }
}

bool Rail::step() {
  std::array<fabric::Completion, kCompletionsAtOnce> completions;
  const std::size_t n = initiator_->poll(completions);
  for (std::size_t i = 0; i < n; ++i) {
    const auto slot = static_cast<std::uint32_t>(completions[i].context >> 32);
    const auto at = running_.find(slot);
    ASSERT(at != running_.end());  // a Transfer is kept until its last completion
    at->second.transfer->on_completion(completions[i]);
    if (at->second.transfer->done()) finish(slot);
  }
  if (n == 0) return false;
  // What the queue refused a moment ago may fit now.
  std::vector<std::uint32_t> ended;
  for (auto& [slot, running] : running_) {
    running.transfer->resume();
    if (running.transfer->done()) ended.push_back(slot);
  }
  for (const std::uint32_t slot : ended) finish(slot);
  fence_when_idle();
  return true;
}

void Rail::execute(Job job) {
  if (stopping_) return fail(job, Error::make(Errc::closed, "server is shutting down"));
  if (must_fence_first()) {
    waiting_.push_back(std::move(job));
    return;
  }
  begin(std::move(job));
}

void Rail::execute(Cancel cancel) {
  const auto at = slots_.find(cancel.id.raw());
  if (at == slots_.end()) {
    // Not begun: behind a fence.
    for (auto job = waiting_.begin(); job != waiting_.end(); ++job) {
      if (job->id != cancel.id) continue;
      Job taken = std::move(*job);
      waiting_.erase(job);
      return fail(taken, Error::make(Errc::aborted, "client is gone"));
    }
    return;
  }
  const std::uint32_t slot = at->second;
  Running& running = running_.at(slot);
  const fabric::PeerId peer = peers_.at(running.job.binding.raw());
  running.transfer->stop(Error::make(Errc::aborted, "client is gone"));
  if (running.transfer->done()) return finish(slot);
  // The link may be shared with another connection that named the same address; its transfers go on undisturbed.
  for (const auto& [other, r] : running_) {
    if (other != slot && peers_.at(r.job.binding.raw()) == peer) return;
  }
  initiator_->abort(peer);
}

void Rail::execute(Forget forget) {
  const auto at = peers_.find(forget.binding.raw());
  if (at == peers_.end()) return;
  initiator_->remove_peer(at->second);
  peers_.erase(at);
}

void Rail::execute(Stop) {
  stopping_ = true;
  for (Job& job : waiting_) fail(job, Error::make(Errc::closed, "server is shutting down"));
  waiting_.clear();
  std::vector<std::uint32_t> ended;
  for (auto& [slot, running] : running_) {
    running.transfer->stop(Error::make(Errc::aborted, "server is shutting down"));
    if (running.transfer->done()) ended.push_back(slot);
    else initiator_->abort(peers_.at(running.job.binding.raw()));
  }
  for (const std::uint32_t slot : ended) finish(slot);
}

void Rail::begin(Job job) {
  auto known = peers_.find(job.binding.raw());
  if (known == peers_.end()) {
    auto peer = initiator_->add_peer(job.peer);
    if (!peer.ok()) return fail(job, peer.error());
    known = peers_.emplace(job.binding.raw(), *peer).first;
  }
  while (next_slot_ == 0 || running_.contains(next_slot_)) ++next_slot_;
  const std::uint32_t slot = next_slot_++;
  Running running;
  running.begun = clock_.now();
  job.request.peer = known->second;
  running.transfer = std::make_unique<transfer::Transfer>(*initiator_, std::move(job.request), slot);
  running.job = std::move(job);
  slots_.emplace(running.job.id.raw(), slot);
  transfer::Transfer& transfer = *running_.emplace(slot, std::move(running)).first->second.transfer;
  transfer.start();
  if (transfer.done()) finish(slot);
}

void Rail::finish(std::uint32_t slot) {
  auto node = running_.extract(slot);
  Running& running = node.mapped();
  slots_.erase(running.job.id.raw());
  JobOutcome outcome{running.transfer->outcome(), clock_.now() - running.begun};
  running.transfer.reset();
  if (!outcome.transfer.status.ok() && !outcome.transfer.status.error().quiet) {
    if (graveyard_.empty()) load_.fetch_add(kFencePenalty, std::memory_order_relaxed);
    graveyard_.push_back(running.job.keep);
    log(LogLevel::warning, "a transfer ended without the fabric's promise that it is over; its buffers wait for the fence");
  }
  load_.fetch_sub(1, std::memory_order_relaxed);
  running.job.done(std::move(outcome));
}

void Rail::fail(Job& job, Error why) {
  load_.fetch_sub(1, std::memory_order_relaxed);
  JobOutcome outcome;
  outcome.transfer.status = why;
  job.done(std::move(outcome));
}

bool Rail::must_fence_first() const noexcept { return graveyard_.size() >= kGraveyardMax && !running_.empty(); }

void Rail::fence_when_idle() {
  if (graveyard_.empty() || !running_.empty() || stopping_) return;
  auto fresh = domain_.open_initiator(options_.initiator);
  if (!fresh.ok()) return;  // tried again after the next transfer
  const int old_fd = initiator_->wait_fd();
  initiator_->close();
  peers_.clear();
  {
    MutexLock lock(mutex_);  // submit() wakes the Initiator under this lock
    initiator_ = std::move(fresh).value();
  }
  if (on_new_wait_fd) on_new_wait_fd(old_fd, initiator_->wait_fd());
  graveyard_.clear();
  load_.fetch_sub(kFencePenalty, std::memory_order_relaxed);
  std::deque<Job> waiting = std::exchange(waiting_, {});
  for (Job& job : waiting) execute(std::move(job));
}

}  // namespace farlift::blob
