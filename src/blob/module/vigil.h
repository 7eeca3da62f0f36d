// Vigil: keeps the server's event loop from sleeping for a moment after a small transfer, since the
// same client's next command is likely to follow at once and being woken costs more than the
// transfer.
//
// It does so with a descriptor that is always readable: while it hangs in the loop, the loop polls.
// Between two polls the core is handed to whoever else wants it.
//
// Invariants: at most kLongest and the `extra` of begin() after the last small transfer; a client
//             whose next command keeps being later is not waited for (core/base/adaptive_spin.h).
// Threads:    main. Errors: none; without a descriptor there is no vigil.
#pragma once

#include "core/base/adaptive_spin.h"
#include "core/base/clock.h"
#include "core/base/unique_fd.h"

namespace farlift::blob {

class Vigil {
 public:
  static constexpr Duration kLongest = std::chrono::microseconds(50);

  ~Vigil() { close(); }
  void open();
  void close();

  void begin(Duration extra);
  // The command came (or nobody waits for it any more).
  void end(bool came);

 private:
  static void on_turn(int fd, void* self, int mask) noexcept;
  void leave();

  UniqueFd event_;  // always readable
  AdaptiveSpin spin_{kLongest};
  bool in_loop_ = false;
  bool waiting_ = false;
  std::chrono::steady_clock::time_point until_{};
};

}  // namespace farlift::blob
