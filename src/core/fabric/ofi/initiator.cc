#include "core/fabric/ofi/initiator.h"

#include "core/base/log.h"
#include "core/fabric/ofi/listener_guard.h"
#include "core/fabric/ofi/registration.h"

#include <algorithm>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

namespace farlift::fabric::ofi {
namespace {

constexpr int kImpatientMs = 1;  // a connection coming up raises nothing: look again
constexpr int kSleepMaxMs = 1000;
constexpr long kPollSleepNs = 50'000;     // between two looks at a queue that cannot block
constexpr std::uint32_t kEagerTries = 8;  // a connection is up after three events; then in peace
constexpr auto kTryRest = std::chrono::milliseconds(1);
constexpr auto kSpin =
    std::chrono::microseconds(30);  // before blocking: halves the round trip of 64 KiB

std::string key_of(const Address& address) {
  const auto bytes = address.bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

OfiInitiator::OfiInitiator(OfiDomain& domain, const InitiatorOptions& options,
                           CompletionQueue queue, UniqueFd wake_event, UniqueFd links_ready,
                           std::uint32_t in_flight_max)
    : domain_(domain),
      connect_deadline_(options.connect_deadline),
      blocks_(queue.blocks),
      wake_event_(std::move(wake_event)),
      links_ready_(std::move(links_ready)),
      slots_(in_flight_max),
      queue_(std::move(queue.queue)) {
  for (std::uint32_t i = 0; i < in_flight_max; ++i) free_.push_back(i);
}

Result<std::unique_ptr<OfiInitiator>> OfiInitiator::make(OfiDomain& domain,
                                                         const InitiatorOptions& options) {
  const std::uint32_t wanted =
      options.in_flight_max != 0 ? options.in_flight_max : domain.info().in_flight_max;
  const std::uint32_t in_flight_max = std::clamp<std::uint32_t>(wanted, 1, kInFlightMax);
  TRY_ASSIGN(CompletionQueue queue, domain.open_queue(in_flight_max + kQueueMargin));
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return Error::from_errno("eventfd");
  UniqueFd links_ready;
  if (domain.domain_per_peer()) {
    links_ready = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event interest{};
    interest.events = EPOLLIN;
    interest.data.u64 = kWakeMark;
    if (!links_ready ||
        ::epoll_ctl(links_ready.get(), EPOLL_CTL_ADD, event.get(), &interest) != 0) {
      return Error::from_errno("epoll");
    }
  }
  std::unique_ptr<OfiInitiator> initiator(new OfiInitiator(
      domain, options, std::move(queue), std::move(event), std::move(links_ready), in_flight_max));
  TRY_ASSIGN(const UniqueInfo info, domain.endpoint_info(TargetOptions{}));
  TRY_ASSIGN(initiator->base_endpoint_, domain.open_endpoint(info.get(), initiator->queue_.get()));
  TRY_ASSIGN(initiator->address_, endpoint_name(initiator->base_endpoint_.get()));
  TRY(initiator->close_door(initiator->base_endpoint_.get()));
  return initiator;
}

// Our endpoints listen too, but nobody connects to an initiator.
Status OfiInitiator::close_door(fid_ep* endpoint) const {
  if (domain_.provider() != Provider::tcp) return {};
  TRY_ASSIGN(const Address name, endpoint_name(endpoint));
  refuse_connections(name);
  return {};
}

Result<PeerId> OfiInitiator::add_peer(const Address& peer) {
  if (closed_) return Error::make(Errc::closed, "initiator");
  TRY_ASSIGN(const Address address, domain_.canonical(peer));
  if (const auto found = by_address_.find(key_of(address)); found != by_address_.end()) {
    ++peers_[found->second]->references;
    return PeerId(found->second);
  }
  TRY_ASSIGN(const OfiDomain::Admitted admitted, domain_.admit(address));
  auto entry = std::make_unique<Peer>();
  entry->address = address;
  entry->fi_addr = admitted.fi_addr;
  entry->references = 1;
  const auto hole = std::find(peers_.begin(), peers_.end(), nullptr);
  const auto index = static_cast<std::uint32_t>(hole - peers_.begin());
  if (hole == peers_.end()) {
    peers_.push_back(std::move(entry));
  } else {
    *hole = std::move(entry);
  }
  by_address_.emplace(key_of(address), index);
  return PeerId(index);
}

OfiInitiator::Peer* OfiInitiator::find(PeerId peer) const noexcept {
  if (peer.raw() >= peers_.size() || peers_[peer.raw()] == nullptr) return nullptr;
  Peer* const found = peers_[peer.raw()].get();
  return found->references > 0 ? found : nullptr;
}

void OfiInitiator::remove_peer(PeerId peer) {
  Peer* const found = find(peer);
  if (found == nullptr || --found->references > 0) return;
  by_address_.erase(key_of(found->address));
  found->references = 1;  // abort() takes only known peers
  abort(peer);
  found->references = 0;
  drop_if_unused(peer.raw());
}

void OfiInitiator::drop_if_unused(std::uint32_t index) {
  Peer* const peer = peers_[index].get();
  if (peer == nullptr || peer->references > 0 || peer->posted > 0 || !peer->failed.empty()) return;
  close_link(*peer);  // before the address that it uses goes
  domain_.release(peer->address);
  peers_[index].reset();
}

Status OfiInitiator::check(const Operation& operation) const {
  if (closed_) return Error::make(Errc::closed, "initiator");
  if (find(operation.peer) == nullptr)
    return Error::make(Errc::invalid_argument, "peer of the operation");
  if (operation.local.empty()) return Error::make(Errc::invalid_argument, "empty operation");
  if (operation.local.size() > domain_.info().operation_length_max.raw()) {
    return Error::make(Errc::too_large, "fabric operation");
  }
  if (domain_.info().local_registration_required) {
    const auto* registration = static_cast<const OfiRegistration*>(operation.local_registration);
    if (registration == nullptr || !registration->covers(operation.local)) {
      return Error::make(Errc::invalid_argument, "local registration");
    }
  }
  return {};
}

Status OfiInitiator::post(const Operation& operation) {
  TRY(check(operation));
  if (free_.empty()) return Error::make(Errc::again, "operations in flight");
  const std::uint32_t index = free_.front();
  free_.pop_front();
  Slot& slot = slots_[index];
  slot.operation = operation;
  slot.order = next_order_++;
  slot.aborted = false;
  slot.state = SlotState::waiting;
  Peer& peer = *find(operation.peer);
  peer.waiting.push_back(index);
  ++waiting_;
  if (peer.waiting.size() == 1) retry_waiting(peer, domain_.clock().now());
  return {};
}

Result<OfiInitiator::Taken> OfiInitiator::try_post(Slot& slot) {
  const Operation& operation = slot.operation;
  TRY_ASSIGN(fid_ep* const endpoint, endpoint_of(operation.peer.raw()));
  const Peer& peer = *peers_[operation.peer.raw()];
  iovec local{operation.local.data(), operation.local.size()};
  fi_rma_iov remote{};
  remote.addr = operation.addr.raw();
  remote.len = operation.local.size();
  remote.key = operation.key.raw();
  void* descriptor = nullptr;
  if (domain_.info().local_registration_required) {
    descriptor = static_cast<const OfiRegistration*>(operation.local_registration)->descriptor();
  }
  fi_msg_rma message{};
  message.msg_iov = &local;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = peer.link != nullptr ? peer.link->fi_addr : peer.fi_addr;
  message.rma_iov = &remote;
  message.rma_iov_count = 1;
  message.context = &slot.context;
  // Delivery-complete on the call itself: 1.17 ignores the endpoint-wide flag, and without it a
  // completion overtakes the bytes and even a refusal (spec blob 5.4).
  const ssize_t rc = operation.kind == OpKind::write
                         ? fi_writemsg(endpoint, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                         : fi_readmsg(endpoint, &message, FI_COMPLETION);
  if (rc == 0) return Taken::yes;
  if (rc == -FI_EAGAIN) return Taken::no;
  return fabric_error(rc, operation.kind == OpKind::write ? "post write" : "post read");
}

void OfiInitiator::retry_waiting(Peer& peer, Instant now) {
  if (!peer.failed.empty()) return;  // the link is broken, and settle() has yet to close it
  // A peer that refuses would be tried again as fast as it can say no.
  if (peer.blocked && ++peer.tries > kEagerTries && now - peer.tried < kTryRest) return;
  peer.tried = now;
  while (!peer.waiting.empty()) {
    const std::uint32_t index = peer.waiting.front();
    auto taken = try_post(slots_[index]);
    if (taken.ok() && taken.value() == Taken::no) break;
    peer.waiting.pop_front();
    --waiting_;
    peer.blocked = false;
    peer.probe.reset();
    if (taken.ok()) {
      slots_[index].state = SlotState::posted;
      ++peer.posted;
      ++posted_;
    } else {
      complete(index, taken.error());
    }
  }
  if (peer.waiting.empty()) return;
  // With operations out this is a full queue, and their completions make room. Without, it is a
  // connection coming up, which libfabric would try for ever.
  const std::size_t out = domain_.endpoint_per_peer() ? peer.posted : posted_;
  if (out > 0) {
    peer.blocked = false;
  } else if (!peer.blocked) {
    peer.blocked = true;
    peer.blocked_since = now;
    peer.tries = 0;
    peer.probe.reset();
  } else {
    wait_for_connection(peer, now);
  }
}

// Nobody is waited for who refuses a plain connection, too.
void OfiInitiator::wait_for_connection(Peer& peer, Instant now) {
  const Instant deadline = peer.blocked_since + connect_deadline_;
  bool over = now >= deadline;
  if (!over && domain_.provider() == Provider::tcp && peer.tries > kEagerTries) {
    if (!peer.probe) peer.probe.emplace(peer.address, deadline);
    over = peer.probe->ask(now) == ListenerProbe::Answer::lost;
  }
  if (!over) return;
  peer.blocked = false;
  peer.probe.reset();
  fail_waiting(peer, Error::make(Errc::unreachable, "connect to peer"));
  close_link(peer);  // nothing was posted on it
}

void OfiInitiator::fail_waiting(Peer& peer, Error error) {
  while (!peer.waiting.empty()) {
    const std::uint32_t index = peer.waiting.front();
    peer.waiting.pop_front();
    --waiting_;
    complete(index, error);
  }
}

void OfiInitiator::complete(std::uint32_t index, Status status) {
  Slot& slot = slots_[index];
  slot.state = SlotState::ready;
  slot.status = status;
  ready_.push_back(index);
}

std::size_t OfiInitiator::poll(std::span<Completion> out) {
  if (closed_) return 0;
  make_progress();
  std::size_t n = 0;
  while (n < out.size() && !ready_.empty()) {
    const std::uint32_t index = ready_.front();
    ready_.pop_front();
    Slot& slot = slots_[index];
    out[n].context = slot.operation.context;
    out[n].status = slot.status;
    ++n;
    slot.state = SlotState::free;
    free_.push_back(index);
  }
  return n;
}

void OfiInitiator::wait(int timeout_ms) {
  if (closed_) return;
  const Instant start = domain_.clock().now();
  for (;;) {
    if (!ready_.empty() || woken_.exchange(false)) return;
    const Instant now = domain_.clock().now();
    const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(now - start).count();
    if (timeout_ms >= 0 && spent >= timeout_ms) return;
    int slice = impatient() ? kImpatientMs : kSleepMaxMs;
    if (timeout_ms >= 0) slice = std::min(slice, static_cast<int>(timeout_ms - spent));
    rest(slice);
    if (any_failed_ || impatient()) make_progress();
  }
}

void OfiInitiator::rest(int timeout_ms) {
  if (posted_ > 0) {
    const auto until = std::chrono::steady_clock::now() + kSpin;
    do {
      drain();
      if (!ready_.empty() || any_failed_) return;
    } while (std::chrono::steady_clock::now() < until);
  }
  if (links_ready_ && !links_polled_) {
    rest_on_links(timeout_ms);
    return;
  }
  if (!blocks_) {
    rest_polling(timeout_ms);
    return;
  }
  fi_cq_entry entry{};
  const ssize_t n = fi_cq_sread(queue_.get(), &entry, 1, nullptr, timeout_ms);
  if (n > 0) take_entry(entry.op_context, nullptr);
  if (n == -FI_EAVAIL) take_error(queue_.get(), nullptr);
}

void OfiInitiator::rest_polling(int timeout_ms) {
  pollfd fd{wake_event_.get(), POLLIN, 0};
  const timespec nap{0, kPollSleepNs};
  const bool busy = posted_ > 0 && timeout_ms > 0;
  if ((busy ? ::ppoll(&fd, 1, &nap, nullptr) : ::poll(&fd, 1, timeout_ms)) > 0) {
    take_wake();
  }
  drain();
}

void OfiInitiator::wake() noexcept {
  woken_.store(true);
  if (blocks_) {
    queue_->ops->signal(queue_.get());
  } else {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_event_.get(), &one, sizeof one);
  }
}

void OfiInitiator::close() {
  if (std::exchange(closed_, true)) return;
  for (auto& peer : peers_) {
    if (peer != nullptr) close_link(*peer);
  }
  base_endpoint_.reset();
  // The queue stays until the destructor: wake() may still be called.
  for (auto& peer : peers_) {
    if (peer != nullptr) domain_.release(peer->address);
  }
  peers_.clear();
  by_address_.clear();
  faults_.clear();
  ready_.clear();
  waiting_ = posted_ = 0;
  free_.clear();
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    slots_[i].state = SlotState::free;
    free_.push_back(i);
  }
}

}  // namespace farlift::fabric::ofi
