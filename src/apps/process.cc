#include "apps/process.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <system_error>
#include <time.h>
#include <unistd.h>

namespace farlift::apps {

namespace {

std::string words(int error) { return std::generic_category().message(error); }

// Runs between fork and exec: async-signal-safe calls only. Returns the errno of what failed.
int become(char* const* argv, int output, const char* directory, pid_t parent) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0) return errno;
  if (getppid() != parent) return ESRCH;  // it died before the line above
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(output, 1) < 0 || dup2(output, 2) < 0)
    return errno;
  if (directory[0] != '\0' && chdir(directory) != 0) return errno;
  execvp(argv[0], argv);
  return errno;
}

}  // namespace

Outcome<Child> Child::start(const Options& options) {
  std::vector<std::string> text = options.argv;
  std::vector<char*> argv;
  argv.reserve(text.size() + 1);
  for (std::string& word : text) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string target = options.output.empty() ? "/dev/null" : options.output;
  const UniqueFd output(open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!output) return fail(kExitFailed, fmt::format("cannot write {}: {}", target, words(errno)));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fail(kExitFailed, "cannot make a pipe: " + words(errno));
  UniqueFd from_child(ends[0]);
  UniqueFd to_parent(ends[1]);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return fail(kExitFailed, "cannot start a process: " + words(errno));
  if (pid == 0) {
    const int error = become(argv.data(), output.get(), options.directory.c_str(), parent);
    const ssize_t told = write(ends[1], &error, sizeof error);
    _exit(told == sizeof error ? 127 : 126);
  }
  to_parent.reset();
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  int error = pidfd ? 0 : errno;
  if (error != 0) kill(pid, SIGKILL);
  if (error == 0 && read(from_child.get(), &error, sizeof error) != sizeof error) error = 0;
  if (error == 0) return Child(pid, std::move(pidfd));
  waitpid(pid, nullptr, 0);
  return fail(kExitFailed, fmt::format("cannot run {}: {}", options.argv[0], words(error)));
}

Child::~Child() {
  if (pidfd_) stop();
}

std::optional<int> Child::ended(std::chrono::milliseconds limit) {
  if (status_) return status_;
  pollfd wanted{pidfd_.get(), POLLIN, 0};
  if (poll(&wanted, 1, static_cast<int>(limit.count())) <= 0) return std::nullopt;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == pid_) status_ = status;
  return status_;
}

void Child::stop(std::chrono::milliseconds patience) {
  if (ended(std::chrono::milliseconds(0))) return;
  kill(pid_, SIGTERM);
  if (ended(patience)) return;
  kill(pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_) status_ = status;
}

std::optional<double> cpu_seconds(pid_t pid) {
  clockid_t clock = CLOCK_PROCESS_CPUTIME_ID;
  timespec time{};
  if (pid != 0 && clock_getcpuclockid(pid, &clock) != 0) return std::nullopt;
  if (clock_gettime(clock, &time) != 0) return std::nullopt;
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

std::string describe_wait_status(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was ended by signal {}", WTERMSIG(status));
  return fmt::format("exited with status {}", WEXITSTATUS(status));
}

std::optional<std::string> find_in_path(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return access(name.c_str(), X_OK) == 0 ? std::optional<std::string>(name) : std::nullopt;
  }
  const char* value = getenv("PATH");
  std::string path = value == nullptr ? "/usr/bin:/bin" : value;
  path += ":";
  for (std::size_t from = 0, to = 0; (to = path.find(':', from)) != std::string::npos;
       from = to + 1) {
    std::string candidate = path.substr(from, to - from) + "/" + name;
    if (to > from && access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return std::nullopt;
}

std::string how_to_call_us() {
  std::error_code ignored;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (self.empty()) return "farlift";
  std::string name = self.filename().string();
  if (const auto found = find_in_path(name);
      found && std::filesystem::equivalent(*found, self, ignored)) {
    return name;
  }
  const std::filesystem::path near = std::filesystem::proximate(self, ignored);
  if (near.empty() || *near.begin() == "..") return self.string();
  return near.has_parent_path() ? near.string() : "./" + near.string();
}

std::string first_line_of(const std::vector<std::string>& argv) {
  const UniqueFd file(static_cast<int>(syscall(SYS_memfd_create, "farlift-output", 1u)));
  if (!file) return "";
  Outcome<Child> child = Child::start({argv, fmt::format("/proc/self/fd/{}", file.get()), ""});
  if (!child || !child->ended(std::chrono::seconds(10))) return "";
  std::string text(512, '\0');
  const ssize_t got = pread(file.get(), text.data(), text.size(), 0);
  text.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  return text.substr(0, text.find('\n'));
}

}  // namespace farlift::apps
