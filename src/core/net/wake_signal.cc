#include "core/net/wake_signal.h"

#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farlift::net {

Result<std::shared_ptr<WakeSignal>> WakeSignal::make() {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return Error::from_errno("eventfd");
  return std::make_shared<WakeSignal>(std::move(event));
}

void WakeSignal::raise() noexcept {
  raised_.store(true, std::memory_order_release);
  const std::uint64_t one = 1;
  // Fails only when the counter is full, and then the descriptor is readable already.
  [[maybe_unused]] const auto written = ::write(event_.get(), &one, sizeof one);
}

}  // namespace farlift::net
