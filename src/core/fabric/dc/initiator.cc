#include "core/fabric/dc/initiator.h"

#include "core/base/log.h"
#include "core/fabric/dc/registration.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farlift::fabric::dc {
namespace {

constexpr int kEntriesPerRead = 32;
constexpr unsigned kEventsPerAcknowledge = 64;
constexpr double kTries = 8;  // the first and seven more

// The largest timeout with which all tries together stay within the deadline: 4.096 us * 2^n each.
// The card may take up to four times as long for one.
std::uint8_t timeout_exponent(Duration deadline) noexcept {
  std::uint8_t exponent = 1;
  while (exponent < 20 && kTries * 4096.0 * static_cast<double>(2U << exponent) <=
                              static_cast<double>(deadline.count())) {
    ++exponent;
  }
  return exponent;
}

constexpr std::uint64_t entry_id(std::uint32_t index, std::uint32_t turn) noexcept {
  return std::uint64_t{turn} << 32 | index;
}

Error completion_error(ibv_wc_status status, bool aborted) noexcept {
  const auto os = static_cast<std::int32_t>(status);
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return Error::make(Errc::access, "DC operation", os);
    case IBV_WC_WR_FLUSH_ERR:
      return Error::make(aborted ? Errc::aborted : Errc::flushed, "DC operation", os);
    case IBV_WC_RETRY_EXC_ERR:
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Error::make(Errc::unreachable, "DC operation", os);
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
      return Error::make(Errc::invalid_argument, "local memory of a DC operation", os);
    default:
      return Error::make(Errc::io, "DC operation", os);
  }
}

}  // namespace

Result<std::unique_ptr<DcInitiator>> DcInitiator::make(const Card& card,
                                                       const InitiatorOptions& options,
                                                       Length operation_length_max) {
  auto initiator = std::unique_ptr<DcInitiator>(new DcInitiator(card, operation_length_max));
  TRY(initiator->open(options));
  return initiator;
}

Status DcInitiator::open(const InitiatorOptions& options) {
  TRY(open_waiting());
  const std::uint32_t wanted =
      options.in_flight_max != 0 ? options.in_flight_max : kInFlightDefault;
  const std::uint32_t in_flight_max = std::min(wanted, kInFlightMax);
  queue_ = card_.own<ibv_cq, &Verbs::destroy_cq>(
      card_.verbs().create_cq(card_.context(), static_cast<int>(in_flight_max), channel_.get()));
  if (queue_ == nullptr) return Error::from_errno("ibv_create_cq");
  const QueuePair::Limits limits{in_flight_max, timeout_exponent(options.connect_deadline)};
  lanes_.reserve(card_.options().queues);
  for (std::uint32_t i = 0; i < card_.options().queues; ++i) {
    TRY_ASSIGN(QueuePair pair, QueuePair::make(card_, queue_.get(), limits));
    lanes_.emplace_back(std::move(pair));
  }
  slots_.resize(in_flight_max);
  for (std::uint32_t i = in_flight_max; i > 0; --i) free_.push_back(i - 1);
  const DcAddress own = card_.address(1);
  TRY_ASSIGN(const Address named, own.to_address());
  std::vector<std::byte> bytes(named.bytes().begin(), named.bytes().end());
  std::fill(bytes.begin() + 16, bytes.begin() + 20, std::byte{0});
  TRY_ASSIGN(address_, Address::from_bytes(bytes));
  return ok_status();
}

Status DcInitiator::open_waiting() {
  wake_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_event_) return Error::from_errno("eventfd");
  channel_ = card_.own<ibv_comp_channel, &Verbs::destroy_comp_channel>(
      card_.verbs().create_comp_channel(card_.context()));
  if (channel_ == nullptr) return Error::from_errno("ibv_create_comp_channel");
  const int flags = ::fcntl(channel_->fd, F_GETFL);
  if (flags < 0 || ::fcntl(channel_->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return Error::from_errno("completion channel");
  }
  waitable_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!waitable_) return Error::from_errno("epoll_create1");
  for (const int fd : {wake_event_.get(), channel_->fd}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (::epoll_ctl(waitable_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Error::from_errno("epoll_ctl");
    }
  }
  return ok_status();
}

DcInitiator::Peer* DcInitiator::find(PeerId peer) const noexcept {
  if (peer.raw() >= peers_.size()) return nullptr;
  Peer* const found = peers_[peer.raw()].get();
  return found != nullptr && found->references > 0 ? found : nullptr;
}

Result<PeerId> DcInitiator::add_peer(const Address& peer) {
  if (closed_) return Error::make(Errc::closed, "initiator");
  TRY_ASSIGN(const DcAddress address, DcAddress::from_address(peer));
  const std::vector<std::byte> key(peer.bytes().begin(), peer.bytes().end());
  if (const auto known = by_address_.find(key); known != by_address_.end()) {
    ++peers_[known->second]->references;
    return PeerId(known->second);
  }
  const auto lane = std::min_element(
      lanes_.begin(), lanes_.end(), [](const Lane& a, const Lane& b) { return a.peers < b.peers; });
  auto entry = std::make_unique<Peer>();
  entry->address = address;
  entry->references = 1;
  entry->lane = static_cast<std::uint32_t>(lane - lanes_.begin());
  const auto free = std::find(peers_.begin(), peers_.end(), nullptr);
  const auto index = static_cast<std::uint32_t>(free - peers_.begin());
  if (free == peers_.end()) {
    peers_.push_back(std::move(entry));
  } else {
    *free = std::move(entry);
  }
  by_address_.emplace(key, index);
  ++lane->peers;
  return PeerId(index);
}

void DcInitiator::remove_peer(PeerId id) {
  Peer* const peer = find(id);
  if (peer == nullptr || --peer->references > 0) return;
  const auto entry = std::find_if(by_address_.begin(), by_address_.end(),
                                  [&](const auto& known) { return known.second == id.raw(); });
  by_address_.erase(entry);
  peer->references = 1;  // abort() takes only known peers
  abort(id);
  peer->references = 0;
  drop_if_unused(id);
}

// A peer nobody names any more keeps its place until its last operation has completed.
void DcInitiator::drop_if_unused(PeerId id) {
  std::unique_ptr<Peer>& peer = peers_[id.raw()];
  if (peer == nullptr || peer->references > 0 || peer->operations > 0) return;
  --lanes_[peer->lane].peers;
  peer.reset();
}

Status DcInitiator::check(const Operation& operation) const {
  if (closed_) return Error::make(Errc::closed, "initiator");
  if (find(operation.peer) == nullptr) {
    return Error::make(Errc::invalid_argument, "peer of the operation");
  }
  if (operation.local.empty()) return Error::make(Errc::invalid_argument, "empty operation");
  if (operation.local.size() > operation_length_max_.raw()) {
    return Error::make(Errc::too_large, "fabric operation");
  }
  if (operation.key.raw() > UINT32_MAX) {
    return Error::make(Errc::invalid_argument, "key of a DC operation: 32 bits");
  }
  const auto* memory = static_cast<const DcRegistration*>(operation.local_registration);
  if (memory == nullptr || !memory->covers(operation.local) ||
      (operation.kind == OpKind::read && !memory->card_may_write())) {
    return Error::make(Errc::invalid_argument, "local registration");
  }
  return ok_status();
}

Status DcInitiator::post(const Operation& operation) {
  TRY(check(operation));
  if (free_.empty()) return Error::make(Errc::again, "operations in flight");
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  slot.state = SlotState::waiting;
  slot.aborted = false;
  ++slot.turn;
  slot.operation = operation;
  slot.status = ok_status();
  ++peer_of(slot).operations;
  Lane& lane = lanes_[peer_of(slot).lane];
  if (lane.pair.state() == QueuePair::State::ready && lane.waiting.empty()) {
    submit(index);
  } else {
    lane.waiting.push_back(index);
  }
  return ok_status();
}

Status DcInitiator::route_to(Peer& peer) {
  if (peer.route != nullptr) return ok_status();
  ibv_ah_attr route = card_.route(peer.address);
  peer.route = card_.own<ibv_ah, &Verbs::destroy_ah>(card_.verbs().create_ah(card_.pd(), &route));
  if (peer.route == nullptr) return Error::make(Errc::unreachable, "ibv_create_ah", errno);
  return ok_status();
}

// Hands a waiting operation to the card, or completes it with the reason why not.
void DcInitiator::submit(std::uint32_t index) {
  Slot& slot = slots_[index];
  Peer& peer = peer_of(slot);
  Lane& lane = lanes_[peer.lane];
  if (const Status routed = route_to(peer); !routed.ok()) return complete(index, routed);
  const auto* memory = static_cast<const DcRegistration*>(slot.operation.local_registration);
  const Status posted =
      lane.pair.post(slot.operation, memory->local_key(), entry_id(index, slot.turn),
                     peer.route.get(), peer.address.dctn, card_.options().dc_key);
  if (posted.ok()) {
    slot.state = SlotState::posted;
    ++lane.posted;
  } else if (posted.code() == Errc::again && lane.posted > 0) {
    lane.waiting.push_front(index);
  } else {
    complete(index, posted);
  }
}

void DcInitiator::complete(std::uint32_t index, Status status) {
  Slot& slot = slots_[index];
  ASSERT(slot.state == SlotState::waiting || slot.state == SlotState::posted);
  Peer& peer = peer_of(slot);
  if (slot.state == SlotState::posted) --lanes_[peer.lane].posted;
  --peer.operations;
  slot.state = SlotState::ready;
  slot.status = status;
  ready_.push_back(index);
  drop_if_unused(slot.operation.peer);
}

void DcInitiator::abort(PeerId id) {
  Peer* const peer = find(id);
  if (peer == nullptr || peer->operations == 0) return;
  const std::uint32_t lane_index = peer->lane;
  Lane& lane = lanes_[lane_index];
  const auto waiting = std::exchange(lane.waiting, {});
  for (const std::uint32_t index : waiting) {
    if (slots_[index].operation.peer == id) {
      complete(index, Error::make(Errc::aborted, "DC operation"));
    } else {
      lane.waiting.push_back(index);
    }
  }
  bool out = false;
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::posted && slot.operation.peer == id) out = slot.aborted = true;
  }
  if (!out) return;
  const Status stopped = lane.pair.stop();
  if (lane.pair.state() == QueuePair::State::broken) fail_posted(lane_index, stopped);
  mend(lane_index);
}

// Its queue was destroyed: no entry will come. Quiet, unless even that failed.
void DcInitiator::fail_posted(std::uint32_t lane_index, const Status& close_status) {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.state != SlotState::posted || peer_of(slot).lane != lane_index) continue;
    Error error = Error::make(slot.aborted ? Errc::aborted : Errc::flushed, "DC operation");
    error.quiet = close_status.ok() || close_status.error().quiet;
    complete(i, error);
  }
}

// Brings a stopped lane back once its last entry came, and hands out what waited.
void DcInitiator::mend(std::uint32_t lane_index) {
  Lane& lane = lanes_[lane_index];
  if (lane.pair.state() != QueuePair::State::ready) {
    if (lane.posted > 0 || closed_) return;
    if (const Status restarted = lane.pair.restart(); !restarted.ok()) {
      logf(LogLevel::error, "fabric dc: a DC initiator cannot be restarted: %s",
           restarted.error().describe().c_str());
      for (const std::uint32_t index : std::exchange(lane.waiting, {})) complete(index, restarted);
      return;
    }
  }
  while (!lane.waiting.empty()) {
    const std::uint32_t index = lane.waiting.front();
    lane.waiting.pop_front();
    submit(index);
    if (!lane.waiting.empty() && lane.waiting.front() == index) return;  // the card's queue is full
  }
}

void DcInitiator::drain() {
  ibv_wc entries[kEntriesPerRead];
  int count = 0;
  do {
    count = ibv_poll_cq(queue_.get(), kEntriesPerRead, entries);
    for (int i = 0; i < count; ++i) take(entries[i]);
  } while (count == kEntriesPerRead);
  if (count < 0) logf(LogLevel::error, "fabric dc: the completion queue cannot be read");
  for (std::uint32_t i = 0; i < lanes_.size(); ++i) {
    if (!lanes_[i].waiting.empty() || lanes_[i].pair.state() != QueuePair::State::ready) mend(i);
  }
}

void DcInitiator::take(const ibv_wc& entry) {
  const auto index = static_cast<std::uint32_t>(entry.wr_id);
  if (index >= slots_.size()) return;
  Slot& slot = slots_[index];
  if (slot.state != SlotState::posted || slot.turn != entry.wr_id >> 32) return;
  if (entry.status == IBV_WC_SUCCESS) return complete(index, ok_status());
  Lane& lane = lanes_[peer_of(slot).lane];
  if (lane.pair.state() == QueuePair::State::ready) lane.pair.note_stopped();
  complete(index, completion_error(entry.status, slot.aborted));
}

std::size_t DcInitiator::poll(std::span<Completion> out) {
  if (closed_) return 0;
  take_events();
  drain();
  std::size_t taken = 0;
  while (taken < out.size() && !ready_.empty()) {
    const std::uint32_t index = ready_.front();
    ready_.pop_front();
    Slot& slot = slots_[index];
    out[taken++] = Completion{slot.operation.context, slot.status};
    slot.state = SlotState::free;
    free_.push_back(index);
  }
  if (taken < out.size() && in_flight() > 0) arm();
  return taken;
}

// Asks for an event with the next entry, and looks once more: one may have come before the card
// knew. wait_fd() is then readable, by our own event where the entry was already here.
void DcInitiator::arm() {
  if (armed_) return;
  if (ibv_req_notify_cq(queue_.get(), 0) != 0) {
    logf(LogLevel::error, "fabric dc: no event can be asked for");
    return;
  }
  armed_ = true;
  drain();
  if (!ready_.empty()) wake();
}

void DcInitiator::take_events() {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto woken = ::read(wake_event_.get(), &count, sizeof count);
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  while (armed_ && card_.verbs().get_cq_event(channel_.get(), &queue, &context) == 0) {
    armed_ = false;
    if (++events_to_acknowledge_ < kEventsPerAcknowledge) continue;
    card_.verbs().ack_cq_events(queue_.get(), std::exchange(events_to_acknowledge_, 0));
  }
}

void DcInitiator::wait(int timeout_ms) {
  if (closed_ || !ready_.empty()) return;
  if (in_flight() > 0) arm();
  if (!ready_.empty()) return;
  pollfd fd{waitable_.get(), POLLIN, 0};
  if (::poll(&fd, 1, timeout_ms) <= 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const auto woken = ::read(wake_event_.get(), &count, sizeof count);
}

void DcInitiator::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto raised = ::write(wake_event_.get(), &one, sizeof one);
}

void DcInitiator::close() {
  if (closed_) return;
  closed_ = true;
  for (Lane& lane : lanes_) {
    if (const Status closed = lane.pair.close(); !closed.ok()) {
      logf(LogLevel::error, "fabric dc: %s", closed.error().describe().c_str());
    }
  }
  if (events_to_acknowledge_ > 0) {
    card_.verbs().ack_cq_events(queue_.get(), std::exchange(events_to_acknowledge_, 0));
  }
  ready_.clear();
  free_.clear();
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    slots_[i].state = SlotState::free;
    free_.push_back(i);
  }
}

}  // namespace farlift::fabric::dc
