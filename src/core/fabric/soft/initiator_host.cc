#include "core/fabric/soft/initiator.h"
#include "core/fabric/soft/registration.h"

namespace farlift::fabric::soft {

// Shows that we may read the target's process and that it is the one at the other end of this link.
void SoftInitiator::prove_host(Link& link, const Hello& theirs) {
  link.cell = theirs.challenge;
  auto process = HostProcess::open(theirs.pid);
  Token16 proof{};
  const bool proven = process.ok() && theirs.registry_slots > 0 &&
                      process->holds_other_end(link.fd.get(), theirs.socket_fd) &&
                      process->read(proof.data(), theirs.cell_addr, proof.size()).ok() &&
                      proof == link.challenge;
  if (!proven) {
    domain_.counters().host_lane_refusals.add();
    return;
  }
  auto target = std::make_shared<HostTarget>();
  target->process = *std::move(process);
  target->registry_addr = theirs.registry_addr;
  target->registry_slots = theirs.registry_slots;
  link.host = std::move(target);
}

// Puts before a pull what the target has to know of the file behind its source.
RequestKind SoftInitiator::announce_source(Link& link, Slot& slot) {
  const Operation& op = slot.operation;
  const auto* registration = dynamic_cast<const SoftRegistration*>(op.local_registration);
  if (!link.takes_sources || registration == nullptr) return RequestKind::pull;
  const std::span<std::byte, SourceAnnouncer::kBytesMax> room(slot.header.data(),
                                                              SourceAnnouncer::kBytesMax);
  const bool told = link.sources.prepare(registration->record(), op.local, room, slot.header_bytes);
  return told ? RequestKind::pull_source : RequestKind::pull;
}

// What the target's table says of the operation's key, checked for its right and range.
Result<EntryImage> SoftInitiator::entry_of(Link& link, const Operation& operation, bool fresh,
                                           bool& cached) {
  EntryImage entry;
  const auto known = link.entries.find(operation.key);
  cached = known != link.entries.end() && !fresh;
  if (cached) {
    entry = known->second;
  } else {
    link.entries.erase(operation.key);
    TRY_ASSIGN(entry, link.host->entry_of(operation.key));
    if (link.entries.size() >= kEntriesMax) link.entries.clear();
    link.entries.emplace(operation.key, entry);
  }
  if (entry.access > static_cast<std::uint64_t>(Access::remote_read_write) ||
      !allows_read(static_cast<Access>(entry.access))) {
    return Error::make(Errc::access, "right");
  }
  if (operation.addr.raw() < entry.base ||
      !fits(Offset(operation.addr.raw() - entry.base), Length(operation.local.size()),
            Length(entry.length))) {
    return Error::make(Errc::access, "range");
  }
  return entry;
}

void SoftInitiator::start_host_read(Slot& slot, bool fresh) {
  Link& link = *slot.link;
  const Operation& op = slot.operation;
  bool cached = false;
  const auto entry = entry_of(link, op, fresh, cached);
  if (!entry.ok()) return finish(slot, entry.error());
  auto job = std::make_unique<HostReader::Job>();
  job->group = &link;
  job->id = slot.id;
  job->target = link.host;
  job->entry = *entry;
  job->entry_cached = cached;
  job->from = entry->va + (op.addr.raw() - entry->base);
  job->to = op.local;
  job->want_crc = op.want_crc;
  const bool small = op.local.size() <= kInlineReadBytesMax && !reader_.pending();
  reader_.add(std::move(job));
  if (small) host_reads(kInlineReadBytesMax);
}

// Copies for a while, and takes what is done.
void SoftInitiator::host_reads(std::uint64_t budget) {
  std::uint64_t moved = 0;
  while (moved < budget) {
    const std::uint64_t n = reader_.step();
    if (n == 0) break;
    moved += n;
  }
  for (const auto& job : reader_.take_done()) {
    Slot* slot = find_slot(job->id);
    if (slot == nullptr) continue;
    if (!job->status.ok() && job->status.code() == Errc::access) {
      // A short key may have come back for a new registration since its entry was cached: look once
      // more.
      slot->link->entries.erase(slot->operation.key);
      if (job->entry_cached) {
        start_host_read(*slot, true);
        continue;
      }
    }
    finish(*slot, job->status, job->crc);
  }
}

}  // namespace farlift::fabric::soft
