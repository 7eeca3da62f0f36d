#include "core/fabric/ofi/registration.h"

#include <utility>

namespace farlift::fabric::ofi {

Status OfiRegistration::close() {
  MutexLock lock(mutex_);
  if (region_ == nullptr) return {};
  const int rc = close_fid(&std::exchange(region_, nullptr)->fid);
  if (rc != 0) return fabric_error(rc, "close registration");
  return {};
}

bool OfiRegistration::covers(std::span<const std::byte> part) const noexcept {
  const auto from = reinterpret_cast<std::uintptr_t>(part.data());
  const auto base = reinterpret_cast<std::uintptr_t>(bytes_.data());
  return from >= base && fits(Offset(from - base), Length(part.size()), length());
}

}  // namespace farlift::fabric::ofi
