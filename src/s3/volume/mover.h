// Mover: needle bytes into a client's window, and windows of our own that the object service writes
// into. All of it within the budget for registered memory.
//
//   mover.push(request, [](const PushOutcome& outcome) { ...reply... });
//   TRY_ASSIGN(auto window, mover.open_window(length, deadline));  // then the service writes to it
//   window->close();                                               // nothing lands from here on
//
// Invariants
//   Checked:  a byte is sent only after the block it is in was compared with its CRC; a push of a
//             whole needle sends nothing before all of the needle was.
//   Quiet:    an outcome is told only when nothing of the push can be written any more. A client
//             that stopped may delay it past the deadline; what was lent, and its share of the
//             budget, stay lent until then, but no thread waits.
//   Windows:  exactly as long as asked, writable for peers and nothing else (spec s3 8.4).
//
// Threads: any; push() works on the calling thread and calls back on it, or on the rail's.
// Errors:  those of Needle::read; too_large, timeout (budget; see `stage`); no_memory; those of the
//          transfer.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/fabric/fabric.h"
#include "core/transfer/runner.h"
#include "s3/volume/buffers.h"
#include "s3/volume/pin_budget.h"
#include "s3/volume/volume.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace farlift::s3::volume {

// A client's window, or the part of it that one needle goes to.
struct RemoteTarget {
  fabric::Address peer;
  RKey key;
  RemoteAddr addr;
};

struct PushRequest {
  Needle needle;
  Offset offset;
  Length length;  // > 0, within the needle
  RemoteTarget target;
  Instant deadline;
};

enum class PushStage : std::uint8_t { budget, read, memory, send };

struct PushOutcome {
  Status status;
  PushStage stage = PushStage::send;  // where it failed
  Length written;                     // confirmed
  bool untouched = true;              // failed before anything can have been sent
  Crc32c crc;                         // of the bytes, when ok
};

class Window {
 public:
  ~Window();  // close()
  std::span<std::byte> bytes() const noexcept { return buffer_.bytes(); }
  RKey key() const noexcept { return key_; }
  RemoteAddr addr() const noexcept { return addr_; }
  const fabric::Address& address() const noexcept { return address_; }
  // The fence: nothing lands from here on. Failing that, the bytes must not be used.
  Status close();

 private:
  friend class Mover;
  Window() = default;
  PinBudget::Pass pass_;
  Buffer buffer_;
  std::unique_ptr<fabric::Registration> registration_;
  // Of its own where only the end of an endpoint is a fence; closes first.
  std::unique_ptr<fabric::TargetEndpoint> endpoint_;
  fabric::Address address_;
  RKey key_;
  RemoteAddr addr_;
};

struct MoverOptions {
  Length budget{0};  // 0: PinBudget::from_rlimit()
  fabric::TargetOptions target;
  transfer::RunnerOptions runner;
};

class Mover {
 public:
  // `domain` and `clock` outlive the mover.
  static Result<std::unique_ptr<Mover>> create(fabric::Domain& domain, const Clock& clock,
                                               MoverOptions options);
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;
  ~Mover();

  void push(PushRequest request, std::function<void(const PushOutcome&)> reply);
  Result<std::unique_ptr<Window>> open_window(Length length, Instant deadline);
  // Ends what is in progress; outcomes are told before it returns.
  void stop();

  PinBudget& budget() noexcept { return budget_; }
  fabric::Domain& domain() noexcept { return domain_; }

 private:
  struct Piece;
  Mover(fabric::Domain& domain, const Clock& clock, MoverOptions options);
  Result<std::unique_ptr<fabric::Registration>> register_buffer(const Buffer& buffer,
                                                                fabric::Access access);

  fabric::Domain& domain_;
  const Clock& clock_;
  const MoverOptions options_;
  PinBudget budget_;
  const std::shared_ptr<Buffers> buffers_ = std::make_shared<Buffers>();
  std::unique_ptr<fabric::TargetEndpoint> endpoint_;  // where registrations are fences
  std::unique_ptr<transfer::Runner> runner_;
};

}  // namespace farlift::s3::volume
