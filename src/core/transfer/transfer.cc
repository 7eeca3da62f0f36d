#include "core/transfer/transfer.h"

#include "core/base/assert.h"
#include "core/base/mutex.h"
#include "core/transfer/crc_pool.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

namespace farlift::transfer {
namespace {

struct PieceCrc {
  Crc32c crc;
  Length length;
};

struct Slot {  // one operation in flight
  std::span<std::byte> bytes;
  PieceCrc* piece = nullptr;  // where its CRC goes
  Instant posted;
  bool used = false;
};

// The value's length when the windows can hold it.
Result<Length> checked_length(const TransferRequest& request) {
  Length length;
  for (const LocalSpan& span : request.local) length += Length(span.bytes.size());
  Length room;
  for (const RemoteWindow& window : request.remote) {
    if (window.length.raw() > std::numeric_limits<std::uint64_t>::max() - window.addr.raw()) {
      return Error::make(Errc::out_of_range, "remote window wraps");
    }
    // Only what is still missing is added, so the sum cannot wrap.
    room += std::min(window.length, length - room);
  }
  if (room < length)
    return Error::make(Errc::out_of_range, "remote windows are shorter than the value");
  return length;
}

}  // namespace

struct Transfer::State : std::enable_shared_from_this<State> {
  fabric::Initiator* initiator;
  TransferRequest request;
  const std::uint64_t context_base;
  Length length;

  // Where the next piece starts.
  std::size_t span = 0;
  std::size_t span_at = 0;
  std::size_t window = 0;
  std::uint64_t window_at = 0;
  Length cut;  // bytes of the pieces posted so far

  std::vector<Slot> slots;
  std::vector<std::uint32_t> free_slots;
  std::uint32_t in_flight = 0;
  std::deque<PieceCrc> crcs;  // in the value's order; elements stay where they are while it grows
  TransferOutcome result;

  // Pieces in the hands of the CrcPool. A pool thread lowers the count and wakes the driver under
  // the mutex, so that whoever has seen the count at zero knows that nobody will wake it any more.
  mutable Mutex hash_mutex;
  CondVar hash_idle;
  std::uint32_t hashing GUARDED_BY(hash_mutex) = 0;

  State(fabric::Initiator& by, TransferRequest what, std::uint32_t high)
      : initiator(&by), request(std::move(what)), context_base(std::uint64_t{high} << 32) {}

  // The first failure counts, but a flush is what a neighbour's fault did: where one of our own
  // operations was refused, that is what happened.
  void fail(Error error) {
    if (!result.status.ok()) {
      const Error first = result.status.error();
      const bool quiet = first.quiet && error.quiet;
      if (first.code != Errc::flushed || error.code != Errc::access) error = first;
      error.quiet = quiet;
    }
    result.status = error;
  }

  bool all_cut() const noexcept { return cut == length; }
  fabric::Operation next_operation();
  void advance(std::size_t by) noexcept;
  std::uint32_t take_slot();
  bool hash_elsewhere(const Slot& slot);
  bool hashed_here() const noexcept {
    return request.crc_pool == nullptr || length <= kInlineHashMax;
  }
};

// The piece at the cursor: as long as the span, the window and the piece size allow.
fabric::Operation Transfer::State::next_operation() {
  while (span_at == request.local[span].bytes.size()) ++span, span_at = 0;
  while (window_at == request.remote[window].length.raw()) ++window, window_at = 0;
  const LocalSpan& from = request.local[span];
  const RemoteWindow& to = request.remote[window];
  const std::uint64_t now = std::min({std::uint64_t{from.bytes.size() - span_at},
                                      to.length.raw() - window_at, request.piece_max.raw()});
  ASSERT(now > 0);
  fabric::Operation operation;
  operation.kind = request.kind;
  operation.peer = request.peer;
  operation.key = to.key;
  operation.addr = to.addr + Offset(window_at);
  operation.local = from.bytes.subspan(span_at, now);
  operation.local_registration = from.registration;
  return operation;
}

void Transfer::State::advance(std::size_t by) noexcept {
  span_at += by;
  window_at += by;
  cut += Length(by);
}

std::uint32_t Transfer::State::take_slot() {
  if (free_slots.empty()) {
    slots.emplace_back();
    return static_cast<std::uint32_t>(slots.size() - 1);
  }
  const std::uint32_t slot = free_slots.back();
  free_slots.pop_back();
  return slot;
}

Transfer::Transfer(fabric::Initiator& initiator, TransferRequest request,
                   std::uint32_t context_high)
    : state_(std::make_shared<State>(initiator, std::move(request), context_high)) {
  State& s = *state_;
  ASSERT(s.request.piece_max.raw() > 0 && s.request.in_flight_max > 0);
  auto length = checked_length(s.request);
  if (length.ok()) {
    s.length = *length;
  } else {
    s.fail(length.error());
  }
}

Transfer::~Transfer() { ASSERT(state_->in_flight == 0); }

void Transfer::start() { resume(); }

void Transfer::resume() { (void)post(std::numeric_limits<std::uint32_t>::max()); }

void Transfer::on_completion(const fabric::Completion& completion) {
  take(completion);
  resume();
}

bool Transfer::failed() const noexcept { return !state_->result.status.ok(); }

std::uint32_t Transfer::in_flight() const noexcept { return state_->in_flight; }

bool Transfer::wants_to_post() const noexcept {
  return !failed() && !state_->all_cut() && state_->in_flight < state_->request.in_flight_max;
}

PostResult Transfer::post(std::uint32_t at_most) {
  State& s = *state_;
  PostResult result;
  while (result.posted < at_most && wants_to_post()) {
    fabric::Operation operation = s.next_operation();
    const std::uint32_t index = s.take_slot();
    operation.context = s.context_base + index;
    operation.want_crc = s.request.compute_crc && s.hashed_here();
    Slot& slot = s.slots[index];
    slot = Slot{operation.local, nullptr,
                s.request.clock != nullptr ? s.request.clock->now() : Instant(), true};
    const Status posted = s.initiator->post(operation);
    if (!posted.ok()) {
      slot.used = false;
      s.free_slots.push_back(index);
      if (posted.code() == Errc::again) {
        result.again = true;
        break;
      }
      ++s.result.operations;
      s.fail(posted.error());
      break;
    }
    ++s.result.operations;
    ++s.in_flight;
    ++result.posted;
    s.advance(operation.local.size());
    if (s.request.compute_crc) slot.piece = &s.crcs.emplace_back();
  }
  return result;
}

void Transfer::take(const fabric::Completion& completion) {
  State& s = *state_;
  const std::uint64_t index = completion.context - s.context_base;
  ASSERT(index < s.slots.size() && s.slots[index].used);
  const Slot slot = s.slots[index];
  s.slots[index].used = false;
  s.free_slots.push_back(static_cast<std::uint32_t>(index));
  --s.in_flight;
  if (s.request.clock != nullptr) s.result.busy += s.request.clock->now() - slot.posted;
  if (!completion.status.ok()) return s.fail(completion.status.error());
  s.result.moved += Length(slot.bytes.size());
  if (!s.request.compute_crc || failed()) return;
  slot.piece->length = Length(slot.bytes.size());
  if (completion.crc) {
    slot.piece->crc = *completion.crc;
    return;
  }
  if (!s.hash_elsewhere(slot)) slot.piece->crc = digest::crc32c(slot.bytes);
}

// False when the piece is to be hashed here: the value is small, there is no pool, or its queue is
// full.
bool Transfer::State::hash_elsewhere(const Slot& slot) {
  if (hashed_here()) return false;
  {
    MutexLock lock(hash_mutex);
    ++hashing;
  }
  const auto job = [self = shared_from_this(), slot] {
    const Crc32c crc = digest::crc32c(slot.bytes);
    MutexLock lock(self->hash_mutex);
    slot.piece->crc = crc;
    --self->hashing;
    self->hash_idle.notify_all();
    if (self->request.hashed) {
      self->request.hashed();
    } else {
      self->initiator->wake();
    }
  };
  if (request.crc_pool->try_submit(job)) return true;
  MutexLock lock(hash_mutex);
  --hashing;
  return false;
}

void Transfer::stop(Error why) {
  if (!done()) state_->fail(why);
}

bool Transfer::done() const noexcept {
  const State& s = *state_;
  if (s.in_flight > 0 || (!failed() && !s.all_cut())) return false;
  if (s.request.crc_pool == nullptr) return true;
  MutexLock lock(s.hash_mutex);
  return s.hashing == 0;
}

TransferOutcome Transfer::outcome() const {
  ASSERT(done());
  TransferOutcome outcome = state_->result;
  for (const PieceCrc& piece : state_->crcs)
    outcome.crc = digest::crc32c_combine(outcome.crc, piece.crc, piece.length);
  return outcome;
}

void Transfer::lost(Error why) {
  State& s = *state_;
  if (s.in_flight > 0) s.fail(why);
  const Instant now = s.request.clock != nullptr ? s.request.clock->now() : Instant();
  for (std::uint32_t index = 0; index < s.slots.size(); ++index) {
    if (!s.slots[index].used) continue;
    s.slots[index].used = false;
    s.free_slots.push_back(index);
    s.result.busy += now - s.slots[index].posted;
  }
  s.in_flight = 0;
  MutexLock lock(s.hash_mutex);
  while (s.hashing > 0) s.hash_idle.wait(s.hash_mutex);
}

void Transfer::move_to(fabric::Initiator& initiator, fabric::PeerId peer) noexcept {
  State& s = *state_;
  ASSERT(s.in_flight == 0);
  s.request.peer = peer;
  MutexLock lock(s.hash_mutex);
  ASSERT(s.hashing == 0);
  s.initiator = &initiator;
}

}  // namespace farlift::transfer
