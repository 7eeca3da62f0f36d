// Transfer: moves the bytes of one value between local spans lent to the fabric and a list of
// remote windows, in order: each window is filled (or read) before the next. Cuts at span and
// window boundaries and at the piece size, keeps at most `in_flight_max` operations out, stops
// posting at the first failure and waits for the rest (quiet rule).
//
// A Transfer is a passive state machine over one Initiator, owned by the Initiator's thread:
//
//   Transfer t(initiator, request, 7);
//   t.start();                                    // posts what fits
//   ... for each Completion whose context has 7 as its high word: t.on_completion(completion);
//   until t.done() t.outcome()                                   // bytes moved, crc (reads), or
//   the first error
//
// An Engine (engine.h) drives many of them fairly and brings the fence; most callers want that.
//
// Invariants: done() only when no operation of it is in flight and no piece is being hashed; a
//             window or span is never passed over its end; bytes of windows beyond the value's
//             length are not touched; nothing at all is posted when the windows cannot hold the
//             value.
// Threads:    the Initiator's (a CrcPool works inside, and wakes whoever drives the transfer).
// Errors:     the first failed operation's, but access where one was refused and others only
//             flushed by that; quiet == false if any operation's was. out_of_range:
//             the windows are shorter than the value, or one wraps the address space.
#pragma once

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/base/types.h"
#include "core/digest/crc32c.h"
#include "core/fabric/fabric.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace farlift::transfer {

class CrcPool;

// Values up to this length are hashed where they arrive: waking another thread costs more (some 45
// us on a small virtual machine) than hashing them does.
inline constexpr Length kInlineHashMax{1u << 20};

struct RemoteWindow {
  RKey key;
  RemoteAddr addr;
  Length length;
};

struct LocalSpan {
  std::span<std::byte> bytes;
  fabric::Registration* registration = nullptr;
};

struct TransferRequest {
  fabric::OpKind kind = fabric::OpKind::write;
  fabric::PeerId peer;
  std::vector<LocalSpan> local;      // total length is the value's length
  std::vector<RemoteWindow> remote;  // total length >= the value's
  Length piece_max{1u << 20};        // longest single operation; > 0
  std::uint32_t in_flight_max = 16;  // > 0
  bool compute_crc = false;          // over what arrived (reads), piece by piece while others fly
  CrcPool* crc_pool =
      nullptr;  // hashes there instead of on the Initiator's thread; outlives the transfer
  std::function<void()>
      hashed;  // called by the pool after each piece; empty: the Initiator's wake()
  const Clock* clock = nullptr;  // fills TransferOutcome::busy
};

struct TransferOutcome {
  Status status;
  Length moved;                  // bytes of completed operations
  std::uint32_t operations = 0;  // posted, failures included
  Crc32c crc;                    // valid when compute_crc and status is ok
  Duration busy{};               // the operations' times from posting to completion, summed
};

struct PostResult {
  std::uint32_t posted = 0;
  bool again = false;  // the Initiator is full: poll before posting more
};

class Transfer {
 public:
  // Contexts of its operations have `context_high` as their high word; the caller demultiplexes by
  // that. The low word is the transfer's own.
  Transfer(fabric::Initiator& initiator, TransferRequest request, std::uint32_t context_high);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;
  ~Transfer();  // ASSERTs that nothing is in flight

  void start();                                              // call once
  void on_completion(const fabric::Completion& completion);  // take() and then post what fits
  void resume();         // after post() said again: try to post more
  void stop(Error why);  // no more posting; done() once in-flight ones are back
  bool done() const noexcept;
  TransferOutcome outcome() const;  // ASSERTs done()

  // The same in smaller steps, for a driver that shares one Initiator out among many transfers.
  PostResult post(std::uint32_t at_most);
  void take(const fabric::Completion& completion);
  bool wants_to_post() const noexcept;
  bool failed() const noexcept;
  std::uint32_t in_flight() const noexcept;
  // The Initiator was closed, its completions are gone: what was in flight failed as `why`. Waits
  // for pieces being hashed, so that nobody calls the old Initiator's wake() any more.
  void lost(Error why);
  // Goes on with another Initiator; only with nothing in flight, after lost() where there was.
  void move_to(fabric::Initiator& initiator, fabric::PeerId peer) noexcept;

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace farlift::transfer
