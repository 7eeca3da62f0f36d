// The end of a link orders memory: what the target did before it shut the socket down happened
// before the initiator saw the end. The kernel gives that order; ThreadSanitizer does not know it
// of shutdown(), so under it these two say it again.
//
// Threads: any. Errors: none.
#pragma once

#include <atomic>

namespace farlift::fabric::soft {

#if defined(__SANITIZE_THREAD__)
inline std::atomic<unsigned> link_ends{0};
inline void link_end_given() noexcept { link_ends.fetch_add(1, std::memory_order_acq_rel); }
inline void link_end_seen() noexcept {
  static_cast<void>(link_ends.load(std::memory_order_acquire));
}
#else
inline void link_end_given() noexcept {}
inline void link_end_seen() noexcept {}
#endif

}  // namespace farlift::fabric::soft
