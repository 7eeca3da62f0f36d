#include "core/fabric/soft/initiator.h"

namespace farlift::fabric::soft {

// Shows that we may read the target's process and that it is the one at the other end of this link.
void SoftInitiator::prove_host(Link& link, const Hello& theirs) {
  link.cell = theirs.challenge;
  auto process = HostProcess::open(theirs.pid);
  Token16 proof{};
  link.can_read = process.ok() && theirs.registry_slots > 0 && process->holds_other_end(link.fd.get(), theirs.socket_fd) &&
                  process->read(proof.data(), theirs.cell_addr, proof.size()).ok() && proof == link.challenge;
  if (!link.can_read) {
    domain_.counters().host_lane_refusals.add();
    return;
  }
  link.process = *std::move(process);
  link.registry_addr = theirs.registry_addr;
  link.registry_slots = theirs.registry_slots;
}

void SoftInitiator::host_reads(std::uint64_t budget) {
  std::uint64_t moved = 0;
  while (!host_reads_.empty() && moved < budget) {
    Slot& slot = slots_[host_reads_.front()];
    const std::uint64_t before = slot.done_bytes;
    if (host_read_piece(slot)) host_reads_.pop_front();
    moved += std::max<std::uint64_t>(slot.done_bytes - before, 1);
  }
}

// What the target's table says of the key, checked for the operation.
Result<EntryImage> SoftInitiator::entry_of(Link& link, const Operation& operation, bool fresh) {
  const auto known = link.entries.find(operation.key);
  EntryImage entry;
  if (known != link.entries.end() && !fresh) {
    entry = known->second;
  } else {
    const std::uint64_t slot = Registry::slot_of(operation.key, link.registry_slots);
    // Twice in one call: an entry that is being rewritten shows itself by the difference.
    EntryImage again;
    const std::uint64_t at = link.registry_addr + slot * sizeof(EntryImage);
    const iovec local[2] = {{&entry, sizeof entry}, {&again, sizeof again}};
    const iovec remote[2] = {{reinterpret_cast<void*>(at), sizeof entry},   // NOLINT(performance-no-int-to-ptr)
                             {reinterpret_cast<void*>(at), sizeof again}};  // NOLINT(performance-no-int-to-ptr)
    TRY(link.process.read(local, remote));
    link.entries.erase(operation.key);
    if (entry != again || !entry.open() || entry.key != operation.key.raw()) return Error::make(Errc::access, "key");
    if (link.entries.size() >= kEntriesMax) link.entries.clear();
    link.entries.emplace(operation.key, entry);
  }
  if (entry.access > static_cast<std::uint64_t>(Access::remote_read_write) || !allows_read(static_cast<Access>(entry.access))) {
    return Error::make(Errc::access, "right");
  }
  if (operation.addr.raw() < entry.base ||
      !fits(Offset(operation.addr.raw() - entry.base), Length(operation.local.size()), Length(entry.length))) {
    return Error::make(Errc::access, "range");
  }
  return entry;
}

// One piece with its proof: the entry before, the data, the entry after, copied in this order by one call.
Status SoftInitiator::copy_checked(Link& link, Slot& slot, const EntryImage& entry, std::uint64_t length, bool& changed) {
  const Operation& op = slot.operation;
  const std::uint64_t at = link.registry_addr + Registry::slot_of(op.key, link.registry_slots) * sizeof(EntryImage);
  const std::uint64_t from = entry.va + (op.addr.raw() - entry.base) + slot.done_bytes;
  EntryImage before;
  EntryImage after;
  const iovec local[3] = {
      {&before, sizeof before}, {op.local.data() + slot.done_bytes, length}, {&after, sizeof after}};
  const iovec remote[3] = {{reinterpret_cast<void*>(at), sizeof before},   // NOLINT(performance-no-int-to-ptr)
                           {reinterpret_cast<void*>(from), length},        // NOLINT(performance-no-int-to-ptr)
                           {reinterpret_cast<void*>(at), sizeof after}};   // NOLINT(performance-no-int-to-ptr)
  const Status copied = link.process.read(local, remote);
  if (!copied.ok()) {
    changed = copied.code() == Errc::io;  // memory that went away with its registration faults: look again
    return copied;
  }
  changed = before != entry || after != entry;
  if (changed) return Error::make(Errc::access, "registration changed");
  return {};
}

// Copies the next piece of a host-lane read; true when the operation is over.
bool SoftInitiator::host_read_piece(Slot& slot) {
  Link& link = *slot.link;
  Status last = Error::make(Errc::access, "registration changed");
  for (const bool fresh : {false, true}) {
    const auto entry = entry_of(link, slot.operation, fresh);
    if (!entry.ok()) {
      finish(slot, entry.error());
      return true;
    }
    const std::uint64_t length = std::min(slot.operation.local.size() - slot.done_bytes, kReadPieceBytesMax);
    bool changed = false;
    last = copy_checked(link, slot, *entry, length, changed);
    if (last.ok()) {
      slot.done_bytes += length;
      if (slot.done_bytes < slot.operation.local.size()) return false;
      finish(slot, {});
      return true;
    }
    if (!changed) break;
  }
  finish(slot, last);
  return true;
}

}  // namespace farlift::fabric::soft
