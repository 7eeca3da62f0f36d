#include "core/fabric/sim/domain.h"

#include "core/base/assert.h"

#include <algorithm>
#include <cstring>
#include <netinet/in.h>

namespace farlift::fabric::sim {
namespace {

constexpr Length kOperationLengthMax{std::uint64_t{1} << 30};

Status check_peer(const Address& peer) {
  sockaddr_in in{};
  if (peer.size() != sizeof in) return Error::make(Errc::unsupported, "peer address length");
  std::memcpy(&in, peer.bytes().data(), sizeof in);
  if (in.sin_family != AF_INET) return Error::make(Errc::unsupported, "peer address family");
  const std::uint32_t ip = ntohl(in.sin_addr.s_addr);
  if (ip == 0 || ip == 0xffffffffu || (ip >> 28) == 0xe || (ip >> 16) == 0xa9fe) {
    return Error::make(Errc::permission, "peer address");
  }
  if (in.sin_port == 0) return Error::make(Errc::permission, "peer port");
  return {};
}

}  // namespace

std::unique_ptr<Domain> SimNetwork::open_domain(std::string name) {
  return std::make_unique<SimDomain>(*state_, std::move(name));
}

std::uint32_t SimDomain::enter(SimNetwork::State& state) {
  MutexLock lock(state.mutex);
  return state.add_domain();
}

SimDomain::SimDomain(SimNetwork::State& state, std::string name)
    : state_(state), number_(enter(state)) {
  info_.provider = "sim";
  info_.version = "1";
  info_.interface_name = std::move(name);
  info_.fence_mode = state.options().fence_mode;
  info_.virtual_addressing = state.options().virtual_addressing;
  info_.local_registration_required = state.options().local_registration_required;
  info_.in_flight_max = state.options().in_flight_max;
  info_.operation_length_max = kOperationLengthMax;
}

Result<std::unique_ptr<Registration>> SimDomain::register_memory(const MemoryRef& memory,
                                                                 Access access) {
  if (memory.bytes.empty()) return Error::make(Errc::invalid_argument, "register memory");
  MutexLock lock(state_.mutex);
  return std::unique_ptr<Registration>(
      std::make_unique<SimRegistration>(state_, state_.add_region(number_, memory, access)));
}

Result<std::unique_ptr<TargetEndpoint>> SimDomain::open_target(const TargetOptions& options) {
  MutexLock lock(state_.mutex);
  auto listener = state_.add_listener(number_, options.port);
  if (listener == nullptr) return Error::make(Errc::busy, "listen port");
  return std::unique_ptr<TargetEndpoint>(std::make_unique<SimTarget>(state_, std::move(listener)));
}

Result<std::unique_ptr<Initiator>> SimDomain::open_initiator(const InitiatorOptions& options) {
  MutexLock lock(state_.mutex);
  const Address address = state_.next_address(number_, 0);
  std::size_t& ready = state_.ready_of(info_.interface_name);
  return std::unique_ptr<Initiator>(
      std::make_unique<SimInitiator>(state_, address, options, ready));
}

Status SimDomain::admit_peer(const Address& peer) { return check_peer(peer); }

Result<bool> SimTarget::progress(int timeout_ms, int /*fd*/) {
  MutexLock lock(state_.mutex);
  if (!listener_->open) return Error::make(Errc::closed, "target endpoint");
  if (!state_.step() && timeout_ms > 0) {
    state_.clock().advance(std::chrono::milliseconds(timeout_ms));
  }
  return false;
}

Status SimTarget::add_peer(const Address& peer) {
  MutexLock lock(state_.mutex);
  if (!listener_->open) return Error::make(Errc::closed, "target endpoint");
  return check_peer(peer);
}

SimInitiator::SimInitiator(SimNetwork::State& state, const Address& address,
                           const InitiatorOptions& options, std::size_t& ready_of_owner)
    : state_(state),
      address_(address),
      connect_deadline_(options.connect_deadline),
      in_flight_max_(options.in_flight_max != 0 ? options.in_flight_max
                                                : state.options().in_flight_max) {
  mailbox_->ready_of_owner = &ready_of_owner;
}

Result<PeerId> SimInitiator::add_peer(const Address& peer) {
  MutexLock lock(state_.mutex);
  if (mailbox_->closed) return Error::make(Errc::closed, "initiator");
  TRY(check_peer(peer));
  for (std::uint32_t i = 0; i < peers_.size(); ++i) {
    if (peers_[i].references > 0 && peers_[i].address == peer) {
      ++peers_[i].references;
      return PeerId(i);
    }
  }
  peers_.push_back(Peer{peer, 1});
  return PeerId(static_cast<std::uint32_t>(peers_.size() - 1));
}

SimInitiator::Peer* SimInitiator::find(PeerId peer) noexcept {
  if (peer.raw() >= peers_.size() || peers_[peer.raw()].references == 0) return nullptr;
  return &peers_[peer.raw()];
}

void SimInitiator::remove_peer(PeerId peer) {
  Peer* const found = find(peer);
  if (found == nullptr || --found->references > 0) return;
  MutexLock lock(state_.mutex);
  state_.abort(*mailbox_, found->address);
}

Status SimInitiator::post(const Operation& operation) {
  MutexLock lock(state_.mutex);
  if (mailbox_->closed) return Error::make(Errc::closed, "initiator");
  const Peer* const peer = find(operation.peer);
  if (peer == nullptr) return Error::make(Errc::invalid_argument, "peer of the operation");
  if (operation.local.empty()) return Error::make(Errc::invalid_argument, "empty operation");
  if (operation.local.size() > kOperationLengthMax.raw()) {
    return Error::make(Errc::too_large, "fabric operation");
  }
  if (state_.options().local_registration_required && operation.local_registration == nullptr) {
    return Error::make(Errc::invalid_argument, "local registration");
  }
  if (mailbox_->in_flight >= in_flight_max_) {
    return Error::make(Errc::again, "operations in flight");
  }
  state_.post(mailbox_, peer->address, operation, connect_deadline_);
  return {};
}

void SimInitiator::abort(PeerId peer) {
  MutexLock lock(state_.mutex);
  if (const Peer* const found = find(peer); found != nullptr) {
    state_.abort(*mailbox_, found->address);
  }
}

std::size_t SimInitiator::poll(std::span<Completion> out) {
  MutexLock lock(state_.mutex);
  if (mailbox_->closed) return 0;
  if (mailbox_->ready.empty()) state_.step();
  std::size_t n = 0;
  for (; n < out.size() && !mailbox_->ready.empty(); ++n) {
    out[n] = mailbox_->ready.front();
    mailbox_->ready.pop_front();
    --*mailbox_->ready_of_owner;
    ASSERT(mailbox_->in_flight > 0);
    --mailbox_->in_flight;
  }
  return n;
}

// Where nothing can happen any more the time passes, and without a limit there is nothing to wait
// for: a test that waits for ever is told by its own loop.
void SimInitiator::wait(int timeout_ms) {
  Instant end{};
  for (bool first = true;; first = false) {
    MutexLock lock(state_.mutex);  // not held for long: others close and wake between two steps
    const Instant now = state_.clock().now();
    if (first) end = now + std::chrono::milliseconds(std::max(timeout_ms, 0));
    if (!mailbox_->ready.empty() || std::exchange(mailbox_->woken, false)) return;
    if (timeout_ms >= 0 && now >= end) return;
    if (state_.step()) continue;
    if (timeout_ms >= 0) state_.clock().advance(end - now);
    return;
  }
}

void SimInitiator::close() {
  MutexLock lock(state_.mutex);
  if (std::exchange(mailbox_->closed, true)) return;
  state_.forget(*mailbox_);
  *mailbox_->ready_of_owner -= mailbox_->ready.size();
  mailbox_->ready.clear();
  mailbox_->in_flight = 0;
  peers_.clear();
}

}  // namespace farlift::fabric::sim
