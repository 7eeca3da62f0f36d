// Region: memory of the caller under one registration, and its state (spec blob 10.2).
//
//            try_begin()              finish()
//   open ───────────────▶ busy ─────────────────▶ open
//    │ close()              │ cut_off()
//    ▼                      ▼
//   closing ─────────────▶ closed   (final)
//
// Invariants: at most one transfer holds the region. `closed` is entered only after the
//             registration was closed, so nothing lands any more (on providers whose fence is the
//             endpoint, the caller closes that first, spec blob 10.3). The owner of the memory is
//             dropped after that, outside the lock, and not while a transfer uses it.
// Threads:    any.
// Errors:     rdma.
#pragma once

#include "blob/client/fabric_handle.h"
#include "core/base/mutex.h"
#include "core/fabric/fabric.h"
#include <farlift/expected.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <unistd.h>

namespace farlift::client {

class Region {
 public:
  static Expected<std::shared_ptr<Region>> make(std::shared_ptr<FabricHandle> fabric,
                                                const fabric::MemoryRef& memory,
                                                std::shared_ptr<void> owner);
  Region(std::shared_ptr<FabricHandle> fabric, std::span<std::byte> memory,
         std::shared_ptr<void> owner, std::unique_ptr<fabric::Registration> registration) noexcept;
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  bool closed() const noexcept { return state_.load(std::memory_order_acquire) == State::closed; }
  bool closing_or_closed() const noexcept {
    return state_.load(std::memory_order_acquire) >= State::closing;
  }
  std::span<std::byte> memory() const noexcept { return memory_; }
  const FabricHandle* fabric() const noexcept { return fabric_.get(); }
  fabric::Registration& registration() const noexcept { return *registration_; }

  // open → busy; the transfer also holds the memory's owner until it has looked at the memory for
  // the last time.
  Expected<std::shared_ptr<void>> try_begin();
  // busy → open, unless the region was closed meanwhile.
  void finish() noexcept;
  // open → closed. A busy region is left alone: rdma.
  Expected<void> close();
  // any → closed.
  void cut_off() noexcept;

  // True in the child of a fork: the region is the parent's.
  bool forked() const noexcept { return ::getpid() != process_; }

 private:
  enum class State : std::uint8_t { open, busy, closing, closed };
  void close_registration() noexcept;

  std::shared_ptr<FabricHandle> fabric_;
  const std::span<std::byte> memory_;
  const pid_t process_;
  std::atomic<State> state_{State::open};
  Mutex mutex_;  // serialises closing
  std::shared_ptr<void> owner_ GUARDED_BY(mutex_);
  std::unique_ptr<fabric::Registration> registration_;  // closes before the fabric goes
};

// An error of a transfer or a region.
ClientError rdma_error(std::string text);

}  // namespace farlift::client
