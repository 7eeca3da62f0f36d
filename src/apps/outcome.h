// Outcome<T>: a value, or a Failure that says in one sentence what was wrong and what would be
// right, with the exit status it deserves.
//
// Threads: plain values. Errors: none.
#pragma once

#include <tl/expected.hpp>

#include <string>
#include <utility>

namespace farlift::apps {

// Exit statuses of `farlift`, part of its interface; `farlift --help` lists them.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNotFound = 3;     // no such key
inline constexpr int kExitUnreachable = 4;  // no server, or the connection was lost
inline constexpr int kExitCorrupt = 5;      // bytes did not match their checksum

struct [[nodiscard]] Failure {
  int exit_code = kExitFailed;
  std::string text;
};

template <class T>
using Outcome = tl::expected<T, Failure>;

inline tl::unexpected<Failure> fail(int exit_code, std::string text) {
  return tl::unexpected<Failure>(Failure{exit_code, std::move(text)});
}
inline tl::unexpected<Failure> fail(Failure failure) {
  return tl::unexpected<Failure>(std::move(failure));
}

}  // namespace farlift::apps
