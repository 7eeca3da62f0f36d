// Transfer: moves the bytes of one value between local spans lent to the fabric and a list of remote windows, in order:
// each window is filled (or read) before the next. Cuts at span and window boundaries and at the piece size, keeps at
// most `in_flight_max` operations out, stops posting at the first failure and waits for the rest (quiet rule).
//
// A Transfer is a passive state machine over one Initiator, owned by the Initiator's thread:
//
//   Transfer t(initiator, request);
//   t.start();                                    // posts what fits
//   ... for each Completion of this transfer: t.on_completion(completion); until t.done()
//   t.outcome()                                   // bytes moved, crc (reads), or the first error
//
// Invariants: done() only when no operation of it is in flight; a window or span is never passed over its end; bytes of
//             windows beyond the value's length are not touched.
// Threads:    the Initiator's. Errors: the first failed operation's; quiet == false if any operation's was.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/base/types.h"
#include "core/digest/crc32c.h"
#include "core/fabric/fabric.h"

namespace farlift::transfer {

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
  std::vector<LocalSpan> local;          // total length is the value's length
  std::vector<RemoteWindow> remote;      // total length >= the value's
  Length piece_max{1u << 20};            // longest single operation
  std::uint32_t in_flight_max = 16;
  bool compute_crc = false;              // over what arrived (reads), piece by piece while others fly
};

struct TransferOutcome {
  Status status;
  Length moved;                          // bytes of completed operations
  std::uint32_t operations = 0;          // posted, failures included
  Crc32c crc;                            // valid when compute_crc and status is ok
};

class Transfer {
 public:
  // Contexts of its operations are `context_base` + piece index modulo 2^32; the caller demultiplexes by the high word.
  Transfer(fabric::Initiator& initiator, TransferRequest request, std::uint32_t context_high);
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  void start();                                   // call once
  void on_completion(const fabric::Completion& completion);
  void resume();                                  // after post() said again: try to post more
  void stop(Error why);                           // no more posting; done() once in-flight ones are back
  bool done() const noexcept;
  TransferOutcome outcome() const;                // ASSERTs done()

 private:
  struct Piece;
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace farlift::transfer
