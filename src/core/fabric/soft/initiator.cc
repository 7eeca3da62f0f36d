#include "core/fabric/soft/initiator.h"

#include <algorithm>
#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace farlift::fabric::soft {
namespace {

constexpr std::uint64_t kWakeId = 1;
constexpr std::uint64_t kTimerId = 2;
constexpr int kEventsAtOnce = 64;

}  // namespace

SoftInitiator::SoftInitiator(SoftDomain& domain, const InitiatorOptions& options)
    : domain_(domain),
      options_(options),
      spin_(std::chrono::microseconds(domain.options().spin_us)),
      reader_([this] { wake(); }) {
  const std::uint32_t limit =
      options.in_flight_max == 0 ? kInFlightMax : std::min(options.in_flight_max, kInFlightMax);
  slots_.resize(limit);
  free_.reserve(limit);
  for (std::uint32_t i = limit; i > 0; --i) free_.push_back(i - 1);
}

Result<std::unique_ptr<SoftInitiator>> SoftInitiator::open(SoftDomain& domain,
                                                           const InitiatorOptions& options) {
  std::unique_ptr<SoftInitiator> initiator(new SoftInitiator(domain, options));
  TRY(initiator->start());
  return initiator;
}

Status SoftInitiator::start() {
  const SocketAddress& local = domain_.listen_address();
  reserved_ = UniqueFd(::socket(local.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  wake_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!reserved_ || !epoll_ || !wake_event_ || !timer_)
    return Error::from_errno("soft initiator descriptors");
  if (::bind(reserved_.get(), local.get(), local.size()) != 0)
    return Error::from_errno("soft initiator bind");
  TRY_ASSIGN(const SocketAddress bound, SocketAddress::of_socket(reserved_.get()));
  address_ = bound.encode();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeId;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_event_.get(), &event) != 0)
    return Error::from_errno("epoll_ctl");
  event.data.u64 = kTimerId;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &event) != 0)
    return Error::from_errno("epoll_ctl");
  return {};
}

SoftInitiator::~SoftInitiator() { close(); }

InitiatorPeer* SoftInitiator::find_peer(PeerId peer) const {
  const auto found = peers_.find(peer.raw());
  return found == peers_.end() ? nullptr : found->second.get();
}

Result<PeerId> SoftInitiator::add_peer(const Address& peer) {
  TRY_ASSIGN(const SocketAddress socket, domain_.peer_address(peer, true));
  for (const auto& [id, known] : peers_) {
    if (known->address == peer) {
      ++known->references;
      return known->id;
    }
  }
  auto fresh = std::make_unique<InitiatorPeer>();
  fresh->id = PeerId(next_peer_++);
  fresh->address = peer;
  fresh->socket = socket;
  fresh->references = 1;
  const PeerId id = fresh->id;
  peers_.emplace(id.raw(), std::move(fresh));
  return id;
}

void SoftInitiator::remove_peer(PeerId peer) {
  InitiatorPeer* known = find_peer(peer);
  if (known == nullptr || --known->references > 0) return;
  abort_links(*known);
  peers_.erase(peer.raw());
}

void SoftInitiator::abort(PeerId peer) {
  if (InitiatorPeer* known = find_peer(peer)) abort_links(*known);
}

Status SoftInitiator::post(const Operation& operation) {
  if (closed_) return Error::make(Errc::closed, "soft initiator");
  InitiatorPeer* peer = find_peer(operation.peer);
  if (peer == nullptr) return Error::make(Errc::not_found, "peer");
  if (operation.local.empty()) return Error::make(Errc::invalid_argument, "empty operation");
  if (operation.local.size() > kOperationBytesMax) return Error::make(Errc::too_large, "operation");
  if (free_.empty()) {
    domain_.counters().posts_deferred.add();
    return Error::make(Errc::again, "in_flight_max");
  }
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.operation = operation;
  slot.id = (++serial_ << 16) | index;
  slot.link = nullptr;
  slot.begun = false;
  slot.sent = false;
  slot.pull = false;
  slot.done_bytes = 0;
  ++in_flight_;
  const auto link = link_for(*peer, operation.local.size());
  if (!link.ok()) {
    finish(slot, link.error());
    ring();
    return {};
  }
  slot.link = *link;
  if ((*link)->state == Link::State::up) {
    route(**link, index);
    send(**link);
  } else {
    (*link)->queue.push_back(index);
    (*link)->queued_bytes += operation.local.size();
  }
  return {};
}

SoftInitiator::Slot* SoftInitiator::find_slot(std::uint64_t id) {
  const std::uint64_t index = id & 0xffff;
  if (id == 0 || index >= slots_.size() || slots_[index].id != id) return nullptr;
  return &slots_[index];
}

void SoftInitiator::finish(Slot& slot, Status status, std::optional<Crc32c> crc) {
  ready_.push_back({slot.operation.context, status, crc});
  free_.push_back(static_cast<std::uint32_t>(&slot - slots_.data()));
  slot.id = 0;
  slot.link = nullptr;
}

std::size_t SoftInitiator::poll(std::span<Completion> out) {
  if (ready_.size() < out.size()) {
    host_reads(kReadBytesPerPoll);
    if (ready_.size() < out.size()) run(0);
  }
  std::size_t n = 0;
  while (n < out.size() && !ready_.empty()) {
    out[n++] = ready_.front();
    ready_.pop_front();
  }
  in_flight_ -= n;
  // Work that needs no event keeps wait_fd() readable, so that an event loop comes back.
  if (!ready_.empty() || reader_.pending()) ring();
  return n;
}

void SoftInitiator::wait(int timeout_ms) {
  if (!ready_.empty() || reader_.pending()) return;
  if (const Duration budget = timeout_ms != 0 ? spin_.budget() : Duration(0); budget.count() > 0) {
    const auto until = std::chrono::steady_clock::now() + budget;
    bool event = false;
    while (!(event = run(0)) && std::chrono::steady_clock::now() < until) AdaptiveSpin::breathe();
    spin_.count(event);
    if (event) return;
  }
  run(timeout_ms);
}

void SoftInitiator::wake() noexcept {
  const std::uint64_t one = 1;
  if (::write(wake_event_.get(), &one, sizeof one) < 0) return;  // full: it is readable already
}

void SoftInitiator::ring() noexcept {
  if (rung_) return;
  rung_ = true;
  wake();
}

// True when there was an event, a wake() included.
bool SoftInitiator::run(int timeout_ms) {
  epoll_event events[kEventsAtOnce];
  const int n = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, timeout_ms);
  for (int i = 0; i < n; ++i) {
    const std::uint64_t id = events[i].data.u64;
    std::uint64_t value = 0;
    if (id == kWakeId) {
      rung_ = false;
      if (::read(wake_event_.get(), &value, sizeof value) < 0) ASSERT(errno == EAGAIN);
    } else if (id == kTimerId) {
      timer_at_ = Instant{};
      if (::read(timer_.get(), &value, sizeof value) < 0) ASSERT(errno == EAGAIN);
      check_deadlines();
    } else if (const auto found = links_.find(id); found != links_.end()) {
      on_event(*found->second, events[i].events);
    }
  }
  dropped_.clear();
  return n > 0;
}

void SoftInitiator::check_deadlines() {
  const Instant now = domain_.clock().now();
  std::vector<Link*> late;
  for (const auto& [id, link] : links_) {
    if (link->state != Link::State::up && link->deadline <= now) late.push_back(link.get());
  }
  for (Link* link : late) {
    if (link->state == Link::State::leaving) {
      domain_.counters().abort_limits.add();
      fail(*link, Error::not_quiet(Errc::aborted, "soft abort: the target did not end the link"));
    } else {
      fail(*link, Error::make(Errc::unreachable, "soft connect deadline", ETIMEDOUT));
    }
  }
  arm_timer();
}

void SoftInitiator::arm_timer() {
  Instant first{};
  for (const auto& [id, link] : links_) {
    const bool timed = link->state != Link::State::up && link->deadline != Instant::max();
    if (timed && (first == Instant{} || link->deadline < first)) first = link->deadline;
  }
  if (first == timer_at_) return;
  timer_at_ = first;
  itimerspec spec{};
  if (first != Instant{}) {
    const auto left = std::max(first - domain_.clock().now(), Duration(1));
    spec.it_value.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000);
    spec.it_value.tv_nsec = static_cast<long>(left.count() % 1'000'000'000);
  }
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void SoftInitiator::close() {
  if (closed_) return;
  closed_ = true;
  for (auto& [id, peer] : peers_) abort_links(*peer);
  for (auto& [id, link] : links_) {
    if (link->deadline == Instant::max()) link->deadline = domain_.clock().now() + kLeaveLimit;
  }
  arm_timer();
  // kLeaveLimit bounds this: each leaving link either ends or is given up.
  while (!links_.empty()) run(100);
  peers_.clear();
  for (Slot& slot : slots_) {
    if (slot.id != 0) finish(slot, Error::make(Errc::aborted, "soft initiator closed"));
  }
  ready_.clear();
  in_flight_ = 0;
}

}  // namespace farlift::fabric::soft
