#include "core/fabric/sim/network.h"

#include "core/base/assert.h"

#include <algorithm>
#include <cstring>
#include <netinet/in.h>

namespace farlift::fabric::sim {
namespace {

constexpr std::size_t kClosedKeysMax = 1024;
constexpr std::uint16_t kFirstPort = 20000;
constexpr std::uint32_t kNetwork = 0x0a000001;  // 10.0.0.1, one address a domain

}  // namespace

SimNetwork::State::State(ManualClock& clock, const SimOptions& options)
    : clock_(clock),
      options_(options),
      faults_(options.faults),
      delay_max_(options.delay_max),
      prng_(options.seed) {
  ASSERT(options.step_bytes_max > 0 && options.in_flight_max > 0 && options.delay_max.count() > 0);
}

void SimNetwork::State::note(SimEvent::What what, std::uint64_t operation, std::uint64_t offset,
                             std::uint64_t length, Errc code) {
  trace_.push_back(SimEvent{clock_.now(), what, operation, offset, length, code});
}

void SimNetwork::State::show(SimAccess::When when, const Active& active, Run run) const {
  if (!observer_) return;
  const Operation& op = active.operation;
  SimAccess access;
  access.when = when;
  access.operation = active.number;
  access.kind = op.kind;
  access.peer = active.peer;
  access.key = op.key;
  access.addr = op.addr;
  access.local = op.local.subspan(run.from, run.length);
  if (active.region != nullptr) {
    access.remote = active.region->bytes.subspan(
        op.addr.raw() - active.region->addr.raw() + run.from, run.length);
  }
  access.reported = active.reported;
  observer_(access);
}

std::shared_ptr<Region> SimNetwork::State::add_region(std::uint32_t domain, const MemoryRef& memory,
                                                      Access access) {
  auto region = std::make_shared<Region>();
  region->domain = domain;
  region->bytes = memory.bytes;
  region->access = access;
  region->addr = RemoteAddr(
      options_.virtual_addressing ? reinterpret_cast<std::uint64_t>(memory.bytes.data()) : 0);
  region->key = RKey(options_.counting_keys ? ++next_key_[domain] : prng_.next());
  if (prng_.chance(faults_.repeated_key, 1000)) {
    std::vector<RKey> old;
    for (const auto& [owner, key] : closed_keys_) {
      if (owner == domain) old.push_back(key);
    }
    if (!old.empty()) {
      region->key = old[prng_.below(old.size())];
      note(SimEvent::What::fault, 0);
    }
  }
  regions_.push_back(region);
  return region;
}

void SimNetwork::State::close_region(Region& region) {
  if (!region.open) return;
  region.open = false;
  note(SimEvent::What::close, 0);
  if (closed_keys_.size() < kClosedKeysMax) closed_keys_.emplace_back(region.domain, region.key);
  std::erase_if(regions_, [&](const auto& r) { return r.get() == &region; });
}

Address SimNetwork::State::next_address(std::uint32_t domain, std::uint16_t port) {
  std::uint16_t& next = next_port_.try_emplace(domain, kFirstPort).first->second;
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(kNetwork + domain);
  in.sin_port = htons(port != 0 ? port : next++);
  return Address::from_bytes(std::as_bytes(std::span(&in, 1))).value();
}

std::shared_ptr<Listener> SimNetwork::State::add_listener(std::uint32_t domain,
                                                          std::uint16_t port) {
  const Address address = next_address(domain, port);
  if (find_listener(address) != nullptr) return nullptr;
  auto listener = std::make_shared<Listener>();
  listener->domain = domain;
  listener->address = address;
  listeners_.push_back(listener);
  ++listeners_changed_;
  return listener;
}

void SimNetwork::State::close_listener(Listener& listener) {
  if (!listener.open) return;
  drop(listener.address);
  listener.open = false;
  note(SimEvent::What::close, 0);
  std::erase_if(listeners_, [&](const auto& l) { return l.get() == &listener; });
  ++listeners_changed_;
}

std::shared_ptr<Listener> SimNetwork::State::find_listener(const Address& address) const {
  for (const auto& listener : listeners_) {
    if (listener->address == address) return listener;
  }
  return nullptr;
}

// Asked for in every step of every operation, and another one only when endpoints open and close.
const std::shared_ptr<Listener>& SimNetwork::State::listener_of(const Active& active) const {
  if (active.found_at != listeners_changed_) {
    active.peer_listener = find_listener(active.peer);
    active.found_at = listeners_changed_;
  }
  return active.peer_listener;
}

std::shared_ptr<Region> SimNetwork::State::find_region(const Active& active) const {
  const Operation& op = active.operation;
  for (const auto& region : regions_) {
    if (region->domain != active.listener->domain || region->key != op.key) continue;
    const bool right =
        op.kind == OpKind::write ? allows_write(region->access) : allows_read(region->access);
    if (!right || op.addr.raw() < region->addr.raw()) continue;
    if (fits(Offset(op.addr.raw() - region->addr.raw()), Length(op.local.size()),
             Length(region->bytes.size()))) {
      return region;
    }
  }
  return nullptr;
}

SimNetwork::State::Doom SimNetwork::State::draw_doom() {
  const SimFaults& faults = faults_;
  if (prng_.chance(faults.connection_lost, 1000)) return Doom::connection_lost;
  if (prng_.chance(faults.not_quiet, 1000)) return Doom::not_quiet;
  if (prng_.chance(faults.spurious_error, 1000)) return Doom::spurious_error;
  return Doom::none;
}

void SimNetwork::State::later(Active& active) {
  active.due = clock_.now() +
               Duration(prng_.below(static_cast<std::uint64_t>(delay_max_.count()))) + Duration(1);
}

void SimNetwork::State::post(const std::shared_ptr<Mailbox>& mailbox, const Address& peer,
                             const Operation& operation, Duration connect_deadline) {
  auto active = std::make_unique<Active>();
  active->number = next_operation_++;
  active->mailbox = mailbox;
  active->peer = peer;
  active->operation = operation;
  active->connect_until = clock_.now() + connect_deadline;
  active->doom = draw_doom();
  cut(*active);
  active->doom_after = prng_.below(active->runs.size() + 1);
  later(*active);
  ++mailbox->in_flight;
  note(SimEvent::What::post, active->number, 0, operation.local.size());
  show(SimAccess::When::posted, *active, Run{0, operation.local.size()});
  operations_.push_back(std::move(active));
}

// Decides how the operation's bytes will be cut, and in which order they move.
void SimNetwork::State::cut(Active& active) {
  const std::size_t size = active.operation.local.size();
  for (std::size_t from = 0; from < size;) {
    const std::size_t length =
        std::min<std::size_t>(size - from, 1 + prng_.below(options_.step_bytes_max));
    active.runs.push_back(Run{from, length});
    from += length;
  }
  if (options_.in_order) {
    std::reverse(active.runs.begin(), active.runs.end());
    return;
  }
  for (std::size_t i = active.runs.size(); i > 1; --i) {
    std::swap(active.runs[i - 1], active.runs[prng_.below(i)]);
  }
}

bool SimNetwork::State::runnable(std::size_t index) const {
  const Active& active = *operations_[index];
  if (active.phase == Phase::abort) return true;
  const Listener* const listener = listener_of(active).get();
  if (listener != nullptr && listener->stopped) return false;
  if (!options_.in_order) return true;
  for (std::size_t i = 0; i < index; ++i) {  // posted before
    if (same_link(*operations_[i], active)) return false;
  }
  return true;
}

bool SimNetwork::State::step() {
  if (operations_.empty()) return false;
  runnable_.clear();
  Instant earliest = Instant::max();
  for (std::size_t i = 0; i < operations_.size(); ++i) {
    if (!runnable(i)) continue;
    runnable_.push_back(i);
    earliest = std::min(earliest, operations_[i]->due);
  }
  if (earliest == Instant::max()) return false;
  if (earliest > clock_.now()) clock_.advance(earliest - clock_.now());
  std::erase_if(runnable_, [&](std::size_t i) { return operations_[i]->due > clock_.now(); });
  advance(runnable_[prng_.below(runnable_.size())]);
  return true;
}

void SimNetwork::State::advance(std::size_t index) {
  Active& active = *operations_[index];
  switch (active.phase) {
    case Phase::connect:
      connect(index);
      break;
    case Phase::check:
      check(index);
      break;
    case Phase::move:
      move(index);
      break;
    case Phase::acknowledge:
      finish(index, Status());
      break;
    case Phase::abort:
      finish(index, Error::make(Errc::aborted, "fabric operation"));
      break;
  }
}

void SimNetwork::State::connect(std::size_t index) {
  Active& active = *operations_[index];
  active.listener = listener_of(active);
  if (active.listener != nullptr) {
    note(SimEvent::What::connect, active.number);
    active.phase = Phase::check;
    later(active);
  } else if (clock_.now() >= active.connect_until) {
    finish(index, Error::make(Errc::unreachable, "connect to peer"));
  } else {
    active.due = active.connect_until;
  }
}

void SimNetwork::State::check(std::size_t index) {
  Active& active = *operations_[index];
  note(SimEvent::What::check, active.number);
  active.region = find_region(active);
  if (active.region == nullptr) {
    refuse(index);
    return;
  }
  show(SimAccess::When::admitted, active, Run{0, active.operation.local.size()});
  active.phase = Phase::move;
  later(active);
}

// True when the fault that was drawn for the operation struck, and the step is used up by it.
bool SimNetwork::State::meet_doom(std::size_t index) {
  Active& active = *operations_[index];
  if (active.doom == Doom::none || active.reported) return false;
  if (active.doom_after > 0) {
    --active.doom_after;
    return false;
  }
  note(SimEvent::What::fault, active.number);
  switch (active.doom) {
    case Doom::connection_lost:
      end_link(index, Errc::connection_lost);
      return true;
    case Doom::spurious_error:
      finish(index, Error::make(Errc::io, "fabric operation"));
      return true;
    case Doom::not_quiet:
      report(active, Error::not_quiet(Errc::io, "fabric operation"));
      active.reported = true;
      later(active);
      return true;
    case Doom::none:
      break;
  }
  return false;
}

void SimNetwork::State::move(std::size_t index) {
  Active& active = *operations_[index];
  if (options_.fence_mode == FenceMode::mr && !active.region->open) {
    refuse(index);
    return;
  }
  if (meet_doom(index)) return;
  if (active.runs.empty()) {
    active.phase = Phase::acknowledge;
    later(active);
    return;
  }
  const Run run = active.runs.back();
  active.runs.pop_back();
  const Operation& op = active.operation;
  show(SimAccess::When::moving, active, run);
  std::byte* const remote =
      active.region->bytes.data() + (op.addr.raw() - active.region->addr.raw()) + run.from;
  std::byte* const local = op.local.data() + run.from;
  if (op.kind == OpKind::write) {
    std::memcpy(remote, local, run.length);
  } else {
    std::memcpy(local, remote, run.length);
  }
  note(SimEvent::What::move, active.number, run.from, run.length);
  later(active);
}

void SimNetwork::State::refuse(std::size_t index) {
  if (options_.refusal_flushes) {
    const std::uint64_t at_fault = operations_[index]->number;
    end_link(index, Errc::flushed);
    ASSERT(at_fault != 0);
  } else {
    finish(index, Error::make(Errc::access, "fabric operation"));
  }
}

// `code` flushed: the operation itself was refused, the others on its link go with it.
void SimNetwork::State::end_link(std::size_t index, Errc code) {
  const std::uint64_t at_fault = operations_[index]->number;
  std::vector<std::uint64_t> numbers;
  for (const auto& other : operations_) {
    const bool over = other->phase == Phase::acknowledge || other->phase == Phase::abort;
    if (other->number == at_fault || (same_link(*other, *operations_[index]) && !over)) {
      numbers.push_back(other->number);
    }
  }
  for (const std::uint64_t number : numbers) {
    const auto found = std::find_if(operations_.begin(), operations_.end(),
                                    [&](const auto& a) { return a->number == number; });
    const Errc own = number == at_fault && code == Errc::flushed ? Errc::access : code;
    finish(static_cast<std::size_t>(found - operations_.begin()),
           Error::make(own, "fabric operation"));
  }
}

void SimNetwork::State::report(Active& active, const Status& status) {
  if (active.reported || active.mailbox->closed) return;
  note(SimEvent::What::complete, active.number, 0, 0, status.ok() ? Errc{} : status.code());
  active.mailbox->ready.push_back(Completion{active.operation.context, status});
  ++*active.mailbox->ready_of_owner;
}

void SimNetwork::State::finish(std::size_t index, const Status& status) {
  report(*operations_[index], status);
  operations_.erase(operations_.begin() + static_cast<std::ptrdiff_t>(index));
}

void SimNetwork::State::abort(const Mailbox& mailbox, const Address& peer) {
  for (auto& active : operations_) {
    if (active->mailbox.get() != &mailbox || active->peer != peer) continue;
    // Past its last byte it ends with its own result. What was reported as not quiet is beyond
    // recall: that is what not quiet means.
    if (active->phase == Phase::acknowledge || active->reported) continue;
    active->phase = Phase::abort;
    later(*active);
  }
}

void SimNetwork::State::forget(const Mailbox& mailbox) {
  std::erase_if(operations_, [&](const auto& a) { return a->mailbox.get() == &mailbox; });
}

void SimNetwork::State::stop(const Address& target, bool stopped) {
  const auto listener = find_listener(target);
  ASSERT(listener != nullptr);
  listener->stopped = stopped;
}

void SimNetwork::State::drop(const Address& target) {
  for (std::size_t i = 0; i < operations_.size();) {
    const Active& active = *operations_[i];
    const bool over = active.phase == Phase::connect || active.phase == Phase::abort;
    if (active.peer == target && !over) {
      finish(i, Error::make(Errc::connection_lost, "fabric operation"));
    } else {
      ++i;
    }
  }
}

SimNetwork::SimNetwork(ManualClock& clock, const SimOptions& options)
    : state_(std::make_unique<State>(clock, options)) {}
SimNetwork::~SimNetwork() = default;
bool SimNetwork::step() {
  MutexLock lock(state_->mutex);
  return state_->step();
}
void SimNetwork::stop(const Address& target, bool stopped) {
  MutexLock lock(state_->mutex);
  state_->stop(target, stopped);
}
void SimNetwork::drop(const Address& target) {
  MutexLock lock(state_->mutex);
  state_->drop(target);
}
void SimNetwork::set_faults(const SimFaults& faults) {
  MutexLock lock(state_->mutex);
  state_->set_faults(faults);
}
void SimNetwork::set_delay_max(Duration delay) {
  ASSERT(delay.count() > 0);
  MutexLock lock(state_->mutex);
  state_->set_delay_max(delay);
}
void SimNetwork::set_observer(SimObserver observer) {
  MutexLock lock(state_->mutex);
  state_->set_observer(std::move(observer));
}
bool SimNetwork::ready(const std::string& name) const {
  MutexLock lock(state_->mutex);
  return state_->ready_of(name) > 0;
}
std::size_t SimNetwork::moving() const noexcept {
  MutexLock lock(state_->mutex);
  return state_->moving();
}
const std::vector<SimEvent>& SimNetwork::trace() const noexcept {
  MutexLock lock(state_->mutex);
  return state_->trace();
}

}  // namespace farlift::fabric::sim
