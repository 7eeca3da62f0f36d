// OfiInitiator, second part: reading the completion queue, and what to make of failures.
#include "core/base/log.h"
#include "core/fabric/ofi/initiator.h"

#include <algorithm>
#include <unistd.h>

namespace farlift::fabric::ofi {
namespace {

constexpr std::size_t kEntriesPerRead = 32;
constexpr auto kProbeDeadline = std::chrono::milliseconds(500);

}  // namespace

void OfiInitiator::make_progress() {
  drain();
  if (any_failed_) {
    any_failed_ = false;
    for (auto& peer : peers_) {
      if (peer != nullptr && !peer->failed.empty()) settle(*peer);
    }
  }
  if (!impatient()) return;
  const Instant now = domain_.clock().now();
  ask_probes(now);
  if (waiting_ == 0) return;
  for (auto& peer : peers_) {
    if (peer != nullptr && !peer->waiting.empty()) retry_waiting(*peer, now);
  }
}

void OfiInitiator::drain() {
  if (!links_ready_) {
    drain_queue(queue_.get(), nullptr);
  } else if (links_polled_) {
    drain_all_links();
  } else {
    drain_ready_links(0);
  }
}

void OfiInitiator::take_wake() noexcept {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t n = ::read(wake_event_.get(), &count, sizeof count);
}

// `of`: whose queue it is, or nullptr when it is everybody's.
void OfiInitiator::drain_queue(fid_cq* queue, const Peer* of) {
  fi_cq_entry entries[kEntriesPerRead];
  for (;;) {
    const ssize_t n = fi_cq_read(queue, entries, kEntriesPerRead);
    if (n == -FI_EAVAIL) {
      take_error(queue, of);
      continue;
    }
    if (n <= 0) return;
    for (ssize_t i = 0; i < n; ++i) take_entry(entries[i].op_context, of);
  }
}

OfiInitiator::Slot* OfiInitiator::posted_slot(void* context, const Peer* of) noexcept {
  const auto at = reinterpret_cast<std::uintptr_t>(context);
  const auto base = reinterpret_cast<std::uintptr_t>(slots_.data());
  if (at >= base && at < base + slots_.size() * sizeof(Slot) && (at - base) % sizeof(Slot) == 0) {
    Slot& slot = slots_[(at - base) / sizeof(Slot)];
    const bool its_own = of == nullptr || peers_[slot.operation.peer.raw()].get() == of;
    if (slot.state == SlotState::posted && its_own) return &slot;
    if (of != nullptr) return nullptr;  // the second report of a read, see initiator.h
  }
  log(LogLevel::error, "fabric: libfabric completed an operation that is not out");
  return nullptr;
}

void OfiInitiator::take_entry(void* context, const Peer* of) {
  Slot* const slot = posted_slot(context, of);
  if (slot == nullptr) return;
  const std::uint32_t peer = slot->operation.peer.raw();
  --peers_[peer]->posted;
  --posted_;
  complete(static_cast<std::uint32_t>(slot - slots_.data()), Status());
  drop_if_unused(peer);
}

void OfiInitiator::take_error(fid_cq* queue, const Peer* of) {
  fi_cq_err_entry entry{};
  if (fi_cq_readerr(queue, &entry, 0) <= 0) return;
  Slot* const slot = posted_slot(entry.op_context, of);
  if (slot == nullptr) return;
  const std::uint32_t index = static_cast<std::uint32_t>(slot - slots_.data());
  const std::uint32_t peer_index = slot->operation.peer.raw();
  Peer& peer = *peers_[peer_index];
  --peer.posted;
  --posted_;
  if (slot->aborted) {
    complete(index, Error::make(Errc::aborted, "fabric operation", entry.err));
    drop_if_unused(peer_index);
  } else if (!domain_.endpoint_per_peer()) {
    complete(index, completion_error(domain_.provider(), entry.err, entry.prov_errno));
    drop_if_unused(peer_index);
  } else {
    slot->state = SlotState::failed;
    slot->status = completion_error(domain_.provider(), entry.err, entry.prov_errno);
    peer.failed.push_back(index);
    any_failed_ = true;
  }
}

// Closes the peer's link and takes what its queue still says. What it says nothing about is over
// all the same, with `error`.
void OfiInitiator::end_connection(Peer& peer, Error error) {
  if (peer.link == nullptr) return;
  const bool quiet = close_link(peer) == 0;
  if (!quiet) error.quiet = false;
  for (std::uint32_t i = 0; peer.posted > 0 && i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.state != SlotState::posted || peers_[slot.operation.peer.raw()].get() != &peer)
      continue;
    --peer.posted;
    --posted_;
    if (slot.aborted) {
      complete(i, error);
    } else {
      slot.state = SlotState::failed;
      slot.status = error;
      peer.failed.push_back(i);
    }
  }
}

// One connection broke. On both providers everything behind the operation at fault is flushed, so
// the connection is of no further use; rxm would even stay dead for good.
void OfiInitiator::settle(Peer& peer) {
  end_connection(peer, Error::make(Errc::flushed, "fabric operation"));
  std::vector<std::uint32_t> slots = std::move(peer.failed);
  peer.failed.clear();
  std::sort(slots.begin(), slots.end(),
            [this](std::uint32_t a, std::uint32_t b) { return slots_[a].order < slots_[b].order; });
  const bool cause_unknown = domain_.provider() == Provider::tcp;
  if (cause_unknown) {
    ListenerProbe probe(peer.address, domain_.clock().now() + kProbeDeadline);
    faults_.push_back(Fault{std::move(slots), std::move(probe)});
    return;
  }
  const bool has_cause = std::any_of(slots.begin(), slots.end(), [this](std::uint32_t i) {
    return slots_[i].status.code() != Errc::flushed;
  });
  for (std::size_t i = 0; i < slots.size(); ++i) {
    Error error = slots_[slots[i]].status.error();
    if (!has_cause && i == 0)
      error.code = Errc::connection_lost;  // nobody was refused: the peer is gone
    complete(slots[i], error);
  }
}

void OfiInitiator::ask_probes(Instant now) {
  for (std::size_t i = 0; i < faults_.size();) {
    const ListenerProbe::Answer answer = faults_[i].probe.ask(now);
    if (answer == ListenerProbe::Answer::pending) {
      ++i;
      continue;
    }
    report_fault(faults_[i].slots, answer == ListenerProbe::Answer::listening);
    faults_.erase(faults_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// tcp: the target serves operations in order and hangs up at the first that it refuses, so the
// first that failed is the one at fault; the others were behind it.
void OfiInitiator::report_fault(const std::vector<std::uint32_t>& slots, bool peer_listens) {
  bool first = true;
  for (const std::uint32_t index : slots) {
    Error error = slots_[index].status.error();
    if (error.code == Errc::again || error.code == Errc::flushed) {
      if (!peer_listens) {
        error.code = Errc::connection_lost;
      } else {
        error.code = first ? Errc::access : Errc::flushed;
      }
    }
    if (slots_[index].aborted) error.code = Errc::aborted;
    first = false;
    complete(index, error);
  }
}

void OfiInitiator::abort(PeerId id) {
  Peer* const peer = find(id);
  if (peer == nullptr) return;
  fail_waiting(*peer, Error::make(Errc::aborted, "fabric operation"));
  peer->blocked = false;
  for (Slot& slot : slots_) {
    if (slot.state != SlotState::free && slot.state != SlotState::ready &&
        slot.operation.peer == id) {
      slot.aborted = true;
    }
  }
  // A card's shared endpoint serves everybody: there, what is out ends by itself.
  if (domain_.endpoint_per_peer())
    end_connection(*peer, Error::make(Errc::aborted, "fabric operation"));
  for (const std::uint32_t index : std::exchange(peer->failed, {})) {
    complete(index, Error::make(Errc::aborted, "fabric operation"));
  }
}

}  // namespace farlift::fabric::ofi
