// OfiTarget: one passive endpoint on the shared domain.
//
// Invariants: close() returns after fi_close() of the endpoint, which no reader of the queue
//             overlapped.
// Threads:    any. Errors: closed after close().
#pragma once

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/fabric/ofi/domain.h"

#include <atomic>
#include <memory>
#include <vector>

namespace farlift::fabric::ofi {

class OfiTarget final : public TargetEndpoint {
 public:
  static Result<std::unique_ptr<OfiTarget>> make(OfiDomain& domain, TargetProgress& progress,
                                                 UniqueFid<fid_ep> endpoint, const Address& address,
                                                 bool own_thread);
  ~OfiTarget() override;

  const Address& address() const noexcept override { return address_; }
  Result<bool> progress(int timeout_ms, int fd) override;
  Status add_peer(const Address& peer) override;
  Status close() override;

 private:
  OfiTarget(OfiDomain& domain, TargetProgress& progress, UniqueFid<fid_ep> endpoint,
            const Address& address, UniqueFd closed_event, bool own_thread)
      : domain_(domain),
        progress_(progress),
        address_(address),
        own_thread_(own_thread),
        closed_event_(std::move(closed_event)),
        endpoint_(std::move(endpoint)) {}
  // 1 when `fd` is readable, 0 when nothing happened within the time, -1 when closed.
  int wait_readable(int timeout_ms, int fd) const;

  void empty_listener() REQUIRES(mutex_);

  OfiDomain& domain_;
  TargetProgress& progress_;
  const Address address_;
  const bool own_thread_;
  const UniqueFd closed_event_;  // stays readable once closed
  std::atomic<bool> closed_{false};
  Mutex mutex_;
  std::vector<Address> peers_ GUARDED_BY(mutex_);
  UniqueFid<fid_ep> endpoint_ GUARDED_BY(mutex_);
  Status close_status_ GUARDED_BY(mutex_);  // once endpoint_ is gone
};

}  // namespace farlift::fabric::ofi
