// SignalGuard: puts the process's signal dispositions back as they were. libfabric opens every
// provider it has, and some of those install handlers of their own, after which the server would no
// longer hear SIGTERM.
//
// Threads: any; dispositions are the process's, so nobody else may change them meanwhile. Errors:
//          none.
#pragma once

#include <array>
#include <csignal>

namespace farlift::blob {

class SignalGuard {
 public:
  SignalGuard() noexcept {
    for (std::size_t i = 1; i < saved_.size(); ++i)
      known_[i] = ::sigaction(static_cast<int>(i), nullptr, &saved_[i]) == 0;
  }
  ~SignalGuard() {
    for (std::size_t i = 1; i < saved_.size(); ++i) {
      if (known_[i]) ::sigaction(static_cast<int>(i), &saved_[i], nullptr);
    }
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  static constexpr std::size_t kSignals = 65;
  std::array<struct sigaction, kSignals> saved_{};
  std::array<bool, kSignals> known_{};
};

}  // namespace farlift::blob
