#include "core/fabric/ofi/registration.h"

#include "core/fabric/ofi/domain.h"

#include <utility>

namespace farlift::fabric::ofi {

Status OfiRegistration::close() {
  MutexLock lock(mutex_);
  if (region_ == nullptr) return {};
  fid_mr* const region = std::exchange(region_, nullptr);
  int rc = 0;
  domain_.change_registrations([&] { rc = close_fid(&region->fid); });
  if (rc != 0) return fabric_error(rc, "close registration");
  return {};
}

bool OfiRegistration::covers(std::span<const std::byte> part) const noexcept {
  const auto from = reinterpret_cast<std::uintptr_t>(part.data());
  const auto base = reinterpret_cast<std::uintptr_t>(bytes_.data());
  return from >= base && fits(Offset(from - base), Length(part.size()), length());
}

}  // namespace farlift::fabric::ofi
