#include "core/fabric/dc/registration.h"

namespace farlift::fabric::dc {

Result<std::unique_ptr<DcRegistration>> DcRegistration::make(const Card& card,
                                                             const MemoryRef& memory,
                                                             Access access) {
  if (memory.bytes.empty()) return Error::make(Errc::invalid_argument, "register memory");
  int flags = access == Access::remote_read ? 0 : IBV_ACCESS_LOCAL_WRITE;
  if (allows_read(access)) flags |= IBV_ACCESS_REMOTE_READ;
  if (allows_write(access)) flags |= IBV_ACCESS_REMOTE_WRITE;
  ibv_mr* const mr =
      card.verbs().reg_mr(card.pd(), memory.bytes.data(), memory.bytes.size(), flags);
  if (mr == nullptr) return Error::from_errno("ibv_reg_mr");
  return std::unique_ptr<DcRegistration>(
      new DcRegistration(card.verbs(), mr, memory.bytes, access));
}

Status DcRegistration::close() {
  const MutexLock lock(mutex_);
  if (mr_ == nullptr) return ok_status();
  const int rc = verbs_.dereg_mr(mr_);
  check_destroyed(rc, "registration");
  if (rc != 0) return Error::not_quiet(Errc::io, "ibv_dereg_mr", rc);
  mr_ = nullptr;
  return ok_status();
}

bool DcRegistration::covers(std::span<const std::byte> part) const noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(bytes_.data());
  const auto from = reinterpret_cast<std::uintptr_t>(part.data());
  return from >= base && fits(Offset(from - base), Length(part.size()), Length(bytes_.size()));
}

}  // namespace farlift::fabric::dc
