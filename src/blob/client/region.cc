#include "blob/client/region.h"

#include "core/base/log.h"

#include <string>
#include <utility>

namespace farlift::client {

ClientError rdma_error(std::string text) { return ClientError{ErrorKind::rdma, std::move(text)}; }

Expected<std::shared_ptr<Region>> Region::make(std::shared_ptr<FabricHandle> fabric,
                                               const fabric::MemoryRef& memory,
                                               std::shared_ptr<void> owner) {
  // A provider may accept an empty registration (spec blob 10.3): it never gets to see one.
  if (memory.bytes.empty() || memory.bytes.data() == nullptr)
    return rdma_error("cannot register empty memory");
  auto registration = fabric->domain->register_memory(memory, fabric::Access::remote_read_write);
  if (!registration.ok()) {
    std::string text = "cannot register " + std::to_string(memory.bytes.size()) +
                       " bytes of memory: " + registration.error().describe();
    const Errc code = registration.code();
    if (code == Errc::no_memory || code == Errc::exhausted)
      text += "; is the limit on locked memory (ulimit -l) too low?";
    return rdma_error(std::move(text));
  }
  return std::make_shared<Region>(std::move(fabric), memory.bytes, std::move(owner),
                                  std::move(registration).value());
}

Region::Region(std::shared_ptr<FabricHandle> fabric, std::span<std::byte> memory,
               std::shared_ptr<void> owner,
               std::unique_ptr<fabric::Registration> registration) noexcept
    : fabric_(std::move(fabric)),
      memory_(memory),
      process_(::getpid()),
      owner_(std::move(owner)),
      registration_(std::move(registration)) {}

Region::~Region() {
  if (forked()) {
    // The registration and its domain belong to the parent; closing them here would speak on the
    // parent's sockets.
    static_cast<void>(registration_.release());
    static_cast<void>(
        new std::shared_ptr<FabricHandle>(std::move(fabric_)));  // NOLINT: left alive on purpose
    return;
  }
  cut_off();
}

Expected<std::shared_ptr<void>> Region::try_begin() {
  MutexLock lock(mutex_);  // closing drops the owner under it
  State expected = State::open;
  if (!state_.compare_exchange_strong(expected, State::busy, std::memory_order_acq_rel)) {
    return rdma_error(expected == State::busy ? "the region is busy with another transfer"
                                              : "the region is closed");
  }
  return owner_;
}

void Region::finish() noexcept {
  State expected = State::busy;
  state_.compare_exchange_strong(expected, State::open, std::memory_order_acq_rel);
}

Expected<void> Region::close() {
  std::shared_ptr<void> owner;  // dropped after the lock
  MutexLock lock(mutex_);
  State expected = State::open;
  if (!state_.compare_exchange_strong(expected, State::closing, std::memory_order_acq_rel)) {
    if (expected == State::busy)
      return rdma_error("the region is busy with a transfer and cannot be closed");
    return {};  // whoever closed it held the lock until it was done
  }
  close_registration();
  owner = std::move(owner_);
  return {};
}

void Region::cut_off() noexcept {
  std::shared_ptr<void> owner;
  MutexLock lock(mutex_);
  if (closed()) return;
  close_registration();
  owner = std::move(owner_);
}

void Region::close_registration() noexcept {
  if (const Status status = registration_->close(); !status.ok()) {
    log(LogLevel::error, "closing a registration failed: " + status.error().describe());
  }
  state_.store(State::closed, std::memory_order_release);
}

}  // namespace farlift::client
