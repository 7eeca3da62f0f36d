// What a failed libfabric completion means, and the question that tells a refusal from a lost peer
// on tcp.
//
// Threads: a ListenerProbe belongs to one thread. Errors: none; a probe that cannot be made answers
//          `lost`.
#pragma once

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/unique_fd.h"
#include "core/fabric/fabric.h"
#include "core/fabric/ofi/ofi.h"

#include <cstdint>

namespace farlift::fabric::ofi {

// `err` and `provider_errno` of an error completion. Errc::again means: the provider does not say
// why the connection ended (tcp); ask a ListenerProbe.
Error completion_error(Provider provider, int err, int provider_errno) noexcept;

// Connects to a peer's listener without blocking, and hangs up. A peer that refused an operation
// still listens; one that is gone does not.
class ListenerProbe {
 public:
  enum class Answer : std::uint8_t { pending, listening, lost };
  ListenerProbe(const Address& address, Instant deadline) noexcept;
  Answer ask(Instant now) noexcept;

 private:
  UniqueFd socket_;
  Instant deadline_;
  Answer answer_ = Answer::pending;
};

}  // namespace farlift::fabric::ofi
