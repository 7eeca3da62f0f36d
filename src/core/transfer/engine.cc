#include "core/transfer/engine.h"

#include "core/base/assert.h"
#include "core/base/log.h"

#include <algorithm>
#include <array>
#include <optional>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace farlift::transfer {
namespace {

constexpr std::uint32_t kInFlightDefault = 64;
constexpr std::size_t kCompletionsPerPoll = 64;
constexpr int kRetryMs =
    1;  // the Initiator says again although nothing is out: nobody will wake us

std::string key_of(const fabric::Address& address) {
  const auto bytes = address.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

EngineOptions settled(EngineOptions options, const fabric::DomainInfo& info) {
  if (options.in_flight_max == 0)
    options.in_flight_max = info.in_flight_max > 0 ? info.in_flight_max : kInFlightDefault;
  if (info.in_flight_max > 0)
    options.in_flight_max = std::min(options.in_flight_max, info.in_flight_max);
  if (info.operation_length_max.raw() > 0)
    options.piece_max = std::min(options.piece_max, info.operation_length_max);
  return options;
}

}  // namespace

struct Engine::Live {
  TransferId id;
  fabric::OpKind kind = fabric::OpKind::write;
  Peer* peer = nullptr;
  std::unique_ptr<Lender> lender;
  std::optional<Transfer> transfer;  // none: refused before it began
  Status refused;
  bool queued = false;  // in ready_
  bool ending = false;  // in ending_
  bool cancelled = false;
};

Engine::Engine(fabric::Domain& domain, const Clock& clock, const EngineOptions& options)
    : domain_(domain), clock_(clock), options_(settled(options, domain.info())) {
  ASSERT(options_.in_flight_per_transfer_max > 0 && options_.piece_max.raw() > 0);
}

Result<std::unique_ptr<Engine>> Engine::create(fabric::Domain& domain, const Clock& clock,
                                               const EngineOptions& options) {
  std::unique_ptr<Engine> engine(new Engine(domain, clock, options));
  engine->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!engine->epoll_) return Error::from_errno("engine epoll");
  engine->wake_event_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!engine->wake_event_) return Error::from_errno("engine event");
  epoll_event event{};
  event.events = EPOLLIN;
  if (epoll_ctl(engine->epoll_.get(), EPOLL_CTL_ADD, engine->wake_event_.get(), &event) != 0) {
    return Error::from_errno("engine epoll");
  }
  TRY(engine->open());
  engine->address_ = engine->initiator_->address();
  return engine;
}

Engine::~Engine() { close(); }

Status Engine::open() {
  TRY_ASSIGN(auto initiator, domain_.open_initiator(options_.initiator));
  const int fd = initiator->wait_fd();
  provider_fd_ = fd >= 0;
  if (provider_fd_) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return Error::from_errno("engine epoll");
  }
  MutexLock lock(wake_mutex_);
  initiator_ = std::move(initiator);
  return {};
}

Engine::Peer& Engine::acquire(const fabric::Address& address) {
  Peer& peer = peers_[key_of(address)];
  if (peer.users++ == 0) peer.address = address;
  if (!peer.id.ok() && initiator_ != nullptr) peer.id = initiator_->add_peer(address);
  return peer;
}

void Engine::release(Peer& peer) {
  ASSERT(peer.users > 0);
  if (--peer.users > 0) return;
  if (peer.id.ok() && initiator_ != nullptr) initiator_->remove_peer(*peer.id);
  peers_.erase(key_of(peer.address));
}

void Engine::bind(const fabric::Address& peer) { acquire(peer); }

void Engine::unbind(const fabric::Address& peer) {
  const auto at = peers_.find(key_of(peer));
  ASSERT(at != peers_.end() && at->second.users > at->second.transfers);
  release(at->second);
}

TransferId Engine::submit(Job job, std::unique_ptr<Lender> lender) {
  const TransferId id = draw_id();
  submit(id, std::move(job), std::move(lender));
  return id;
}

void Engine::submit(TransferId id, Job job, std::unique_ptr<Lender> lender) {
  auto owned = std::make_unique<Live>();
  Live& live = *owned;
  live.id = id;
  live.kind = job.kind;
  live.lender = std::move(lender);
  const bool fresh = live_.emplace(static_cast<std::uint32_t>(id.raw()), std::move(owned)).second;
  ASSERT(fresh);  // 2^32 transfers would have to begin while one lives
  live_count_.store(live_.size(), std::memory_order_relaxed);
  if (initiator_ == nullptr && !closed_) live.refused = open();
  live.peer = &acquire(job.peer);
  ++live.peer->transfers;
  if (closed_) live.refused = Error::make(Errc::aborted, "engine is closed");
  if (live.refused.ok() && !live.peer->id.ok()) live.refused = live.peer->id.error();
  if (live.refused.ok()) make_transfer(live, std::move(job));
  settle(live);
}

void Engine::make_transfer(Live& live, Job job) {
  TransferRequest request;
  request.kind = job.kind;
  request.peer = *live.peer->id;
  request.local = std::move(job.local);
  request.remote = std::move(job.remote);
  request.piece_max = options_.piece_max;
  request.in_flight_max = options_.in_flight_per_transfer_max;
  request.compute_crc = job.compute_crc;
  request.crc_pool = options_.crc_pool;
  request.hashed = [this] { wake(); };
  request.clock = &clock_;
  live.transfer.emplace(*initiator_, std::move(request), static_cast<std::uint32_t>(live.id.raw()));
}

// Puts a transfer where it belongs after anything happened to it: in the round, or among those that
// end, or neither while its operations are out.
void Engine::settle(Live& live) {
  if (live.transfer && live.transfer->wants_to_post()) {
    if (!std::exchange(live.queued, true)) ready_.push_back(&live);
    return;
  }
  if (live.queued) {
    ready_.erase(std::find(ready_.begin(), ready_.end(), &live));
    live.queued = false;
  }
  const bool over = !live.transfer || live.transfer->in_flight() == 0;
  if (over && !std::exchange(live.ending, true)) ending_.push_back(&live);
}

void Engine::cancel(TransferId id) {
  const auto at = live_.find(static_cast<std::uint32_t>(id.raw()));
  if (at == live_.end() || at->second->id != id) return;
  cancel(*at->second);
}

void Engine::cancel_all() {
  for (const auto& [high, live] : live_) cancel(*live);
}

void Engine::cancel(Live& live) {
  if (std::exchange(live.cancelled, true)) return;
  ++live.peer->cancelled;
  if (live.transfer) live.transfer->stop(Error::make(Errc::aborted, "transfer cancelled"));
  settle(live);
  abort_if_all_cancelled(*live.peer);
}

// Connections may share a peer (spec blob 3.1): one that goes must not cut the other's transfers
// off.
void Engine::abort_if_all_cancelled(Peer& peer) {
  if (peer.transfers == 0 || peer.cancelled < peer.transfers) return;
  if (peer.id.ok() && initiator_ != nullptr) initiator_->abort(*peer.id);
}

bool Engine::step() {
  clear_wake();
  bool moved = post_ready();
  moved = poll() || moved;
  if (unquiet_) fence();
  moved = post_ready() || moved;
  return report() || moved;
}

bool Engine::post_ready() {
  bool moved = false;
  blocked_ = false;
  while (!ready_.empty() && in_flight_ < options_.in_flight_max) {
    Live& live = *ready_.front();
    const PostResult result = live.transfer->post(1);
    in_flight_ += result.posted;
    moved = moved || result.posted > 0;
    if (result.again) {
      blocked_ = true;
      break;
    }
    ready_.pop_front();
    live.queued = false;
    settle(live);
  }
  return moved;
}

bool Engine::poll() {
  if (initiator_ == nullptr) return false;
  std::array<fabric::Completion, kCompletionsPerPoll> completions;
  const std::size_t count = initiator_->poll(completions);
  for (const fabric::Completion& completion : std::span(completions).first(count)) {
    const auto at = live_.find(static_cast<std::uint32_t>(completion.context >> 32));
    ASSERT(at != live_.end() && at->second->transfer && in_flight_ > 0);
    Live& live = *at->second;
    live.transfer->take(completion);
    --in_flight_;
    if (!completion.status.ok() && !completion.status.error().quiet) unquiet_ = true;
    settle(live);
  }
  return count > 0;
}

void Engine::fence() {
  fences_.fetch_add(1, std::memory_order_relaxed);
  log(LogLevel::warning,
      "transfer: an operation ended not quiet; the rail's initiator is replaced");
  close_initiator(Error::not_quiet(Errc::flushed, "fence of the rail"));
  const Status opened = open();
  for (auto& [key, peer] : peers_) {
    peer.id =
        opened.ok() ? initiator_->add_peer(peer.address) : Result<fabric::PeerId>(opened.error());
  }
  for (const auto& [high, live] : live_) {
    if (live->transfer && !live->transfer->done()) {
      if (live->peer->id.ok()) {
        live->transfer->move_to(*initiator_, *live->peer->id);
      } else {
        live->transfer->stop(live->peer->id.error());
      }
    }
    settle(*live);
  }
}

// After this no operation is out, no memory lent is touched, and no piece is being hashed. The
// Initiator is taken out of wake()'s reach first: others may call that at any time.
void Engine::close_initiator(Error why) {
  if (initiator_ == nullptr) return;
  if (provider_fd_) (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, initiator_->wait_fd(), nullptr);
  std::unique_ptr<fabric::Initiator> closing;
  {
    MutexLock lock(wake_mutex_);
    closing = std::move(initiator_);
  }
  closing->close();
  for (const auto& [high, live] : live_) {
    if (live->transfer) live->transfer->lost(why);
  }
  in_flight_ = 0;
  unquiet_ = false;
  for (auto& [key, peer] : peers_) peer.id = Error::make(Errc::closed, "peer");
}

bool Engine::report() {
  if (ending_.empty()) return false;
  std::vector<std::unique_ptr<Live>> over;
  std::erase_if(ending_, [this, &over](Live* live) {
    if (live->transfer && !live->transfer->done()) return false;  // still being hashed
    over.push_back(std::move(live_.extract(static_cast<std::uint32_t>(live->id.raw())).mapped()));
    return true;
  });
  for (const auto& live : over) {
    Peer& peer = *live->peer;
    --peer.transfers;
    if (live->cancelled) --peer.cancelled;
    abort_if_all_cancelled(peer);
    release(peer);
  }
  live_count_.store(live_.size(), std::memory_order_relaxed);
  for (const auto& live : over) {
    TransferOutcome outcome;
    outcome.status = live->refused;
    if (live->transfer) outcome = live->transfer->outcome();
    count(*live, outcome);
    live->transfer.reset();
    live->lender->done(outcome);
    live->lender.reset();
  }
  return !over.empty();
}

void Engine::count(const Live& live, const TransferOutcome& outcome) noexcept {
  Counters& counters = live.kind == fabric::OpKind::write ? write_ : read_;
  counters.operations.fetch_add(outcome.operations, std::memory_order_relaxed);
  counters.bytes.fetch_add(outcome.moved.raw(), std::memory_order_relaxed);
  counters.nanoseconds.fetch_add(static_cast<std::uint64_t>(outcome.busy.count()),
                                 std::memory_order_relaxed);
  if (!outcome.status.ok()) counters.errors.fetch_add(1, std::memory_order_relaxed);
}

void Engine::wait(int timeout_ms) {
  if (initiator_ != nullptr) {
    if (blocked_ && in_flight_ == 0)
      timeout_ms = timeout_ms < 0 ? kRetryMs : std::min(timeout_ms, kRetryMs);
    initiator_->wait(timeout_ms);
    return;
  }
  const Instant until = clock_.now() + std::chrono::milliseconds(timeout_ms);
  MutexLock lock(wake_mutex_);
  while (!woken_) {
    if (timeout_ms < 0) {
      woken_changed_.wait(wake_mutex_);
    } else if (const Duration left = until - clock_.now();
               left.count() <= 0 || !woken_changed_.wait_for(wake_mutex_, left)) {
      break;
    }
  }
}

void Engine::wake() noexcept {
  MutexLock lock(wake_mutex_);
  if (!std::exchange(woken_, true)) {
    const std::uint64_t one = 1;
    ASSERT(write(wake_event_.get(), &one, sizeof one) == sizeof one);
    woken_changed_.notify_all();
  }
  if (initiator_ != nullptr) initiator_->wake();
}

void Engine::clear_wake() noexcept {
  MutexLock lock(wake_mutex_);
  if (!std::exchange(woken_, false)) return;
  std::uint64_t count = 0;
  ASSERT(read(wake_event_.get(), &count, sizeof count) == sizeof count);
}

void Engine::close() {
  closed_ = true;
  close_initiator(Error::not_quiet(Errc::aborted, "engine closed"));
  // A done() may submit again; that is refused and reported too.
  while (!live_.empty()) {
    for (const auto& [high, live] : live_) {
      if (live->transfer) live->transfer->stop(Error::make(Errc::aborted, "engine closed"));
      settle(*live);
    }
    (void)report();
  }
}

EngineStats Engine::stats() const {
  const auto read_out = [](const Counters& counters) {
    EngineStats::Kind kind;
    kind.operations = counters.operations.load(std::memory_order_relaxed);
    kind.bytes = counters.bytes.load(std::memory_order_relaxed);
    kind.usec = counters.nanoseconds.load(std::memory_order_relaxed) / 1000;
    kind.errors = counters.errors.load(std::memory_order_relaxed);
    return kind;
  };
  EngineStats stats;
  stats.write = read_out(write_);
  stats.read = read_out(read_);
  stats.fences = fences_.load(std::memory_order_relaxed);
  stats.live = live_count_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace farlift::transfer
