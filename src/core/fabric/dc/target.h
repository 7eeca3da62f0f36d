// DcTarget: the passive side, one DC target (DCT). The card serves it alone: no thread of ours.
//
// Invariants: peers that know its address and the DC key reach every registration of the domain,
// each
//             under its own key and rights.
// Threads:    any. Errors: a close that fails is no fence, and every later call says so again.
#pragma once

#include "core/base/mutex.h"
#include "core/base/unique_fd.h"
#include "core/fabric/dc/card.h"

namespace farlift::fabric::dc {

class DcTarget final : public TargetEndpoint {
 public:
  static Result<std::unique_ptr<DcTarget>> make(const Card& card);
  ~DcTarget() override { close().ignore(); }  // close() logged and counted it

  const Address& address() const noexcept override { return address_; }
  // The card makes progress: this only waits.
  Result<bool> progress(int timeout_ms, int fd) override;
  Status add_peer(const Address& peer) override;
  Status close() override;

 private:
  explicit DcTarget(const Card& card) : card_(card) {}
  Status open();
  Status start();

  const Card& card_;
  Address address_;
  UniqueFd closing_;  // an eventfd that close() raises for those inside progress()
  UniqueCq queue_;
  UniqueSrq receives_;  // a DCT must name one; nothing is ever posted to it
  Mutex mutex_;
  ibv_qp* target_ GUARDED_BY(mutex_) = nullptr;
};

}  // namespace farlift::fabric::dc
