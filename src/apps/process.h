// Child: one process that we started and will end, by its pid and no other.
//
// Invariants: the child gets SIGTERM when the thread that started it dies, so nothing outlives us.
// Threads:    one owner. Errors: Failure with the system's words.
#pragma once

#include "apps/outcome.h"
#include "core/base/unique_fd.h"

#include <chrono>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace farlift::apps {

class Child {
 public:
  struct Options {
    std::vector<std::string> argv;  // argv[0] is searched in PATH unless it holds a slash
    std::string output;             // stdout and stderr are appended to this file
    std::string directory;          // working directory, empty: ours
  };
  static Outcome<Child> start(const Options& options);
  Child(Child&&) = default;
  Child& operator=(Child&&) = delete;
  ~Child();  // stop()

  pid_t pid() const noexcept { return pid_; }
  // Readable once the process has ended; for poll().
  int pidfd() const noexcept { return pidfd_.get(); }
  // Waits up to `limit` for the end; the wait status, or empty while it runs.
  std::optional<int> ended(std::chrono::milliseconds limit);
  // SIGTERM, `patience` for an orderly end, then SIGKILL. Idempotent.
  void stop(std::chrono::milliseconds patience = std::chrono::seconds(30));

 private:
  Child(pid_t pid, UniqueFd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_;
  UniqueFd pidfd_;
  std::optional<int> status_;
};

// CPU time a process has used so far, all its threads; empty when it is gone. 0: this process.
std::optional<double> cpu_seconds(pid_t pid);

std::string describe_wait_status(int status);  // "exited with status 1", "was ended by signal 9"
std::optional<std::string> find_in_path(const std::string& name);
// How a person calls this very program from a shell in this folder: its name when PATH finds it,
// else its path.
std::string how_to_call_us();
// First line that a program prints, empty when it cannot be run.
std::string first_line_of(const std::vector<std::string>& argv);

}  // namespace farlift::apps
