// Assertions that stay on in release. For our own mistakes only: input from a peer or a user never
// asserts, it returns an error.
//
// Threads: any. Errors: a failed ASSERT prints the expression and place to stderr and aborts.
#pragma once

namespace farlift {

[[noreturn]] void assertion_failed(const char* expression, const char* file, int line) noexcept;

}  // namespace farlift

#define ASSERT(cond)                            \
  (__builtin_expect(static_cast<bool>(cond), 1) \
       ? static_cast<void>(0)                   \
       : ::farlift::assertion_failed(#cond, __FILE__, __LINE__))

#ifdef NDEBUG
#define DCHECK(cond) static_cast<void>(sizeof(static_cast<bool>(cond)))
#else
#define DCHECK(cond) ASSERT(cond)
#endif
