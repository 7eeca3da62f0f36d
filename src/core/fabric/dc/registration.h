// DcRegistration: owns one ibv_mr.
//
// Invariants: remote rights are exactly those asked for; memory that peers may only read is not
// made
//             writable for the card either.
// Threads:    any. Errors: close() reports what the library said; then the memory is not fenced.
#pragma once

#include "core/base/mutex.h"
#include "core/fabric/dc/card.h"

#include <span>

namespace farlift::fabric::dc {

class DcRegistration final : public Registration {
 public:
  static Result<std::unique_ptr<DcRegistration>> make(const Card& card, const MemoryRef& memory,
                                                      Access access);
  ~DcRegistration() override { close().ignore(); }  // close() logged and counted it

  RKey key() const noexcept override { return RKey(rkey_); }
  RemoteAddr addr() const noexcept override {
    return RemoteAddr(reinterpret_cast<std::uintptr_t>(bytes_.data()));
  }
  Length length() const noexcept override { return Length(bytes_.size()); }
  Access access() const noexcept override { return access_; }
  Status close() override;

  std::uint32_t local_key() const noexcept { return lkey_; }
  bool covers(std::span<const std::byte> part) const noexcept;
  // Reads land here only when the card may write: remote_read memory is read-only for it.
  bool card_may_write() const noexcept { return access_ != Access::remote_read; }

 private:
  DcRegistration(const Verbs& verbs, ibv_mr* mr, std::span<std::byte> bytes, Access access)
      : verbs_(verbs), bytes_(bytes), access_(access), rkey_(mr->rkey), lkey_(mr->lkey), mr_(mr) {}

  const Verbs& verbs_;
  const std::span<std::byte> bytes_;
  const Access access_;
  const std::uint32_t rkey_;
  const std::uint32_t lkey_;
  Mutex mutex_;
  ibv_mr* mr_ GUARDED_BY(mutex_);
};

}  // namespace farlift::fabric::dc
