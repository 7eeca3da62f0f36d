#include "tests/sim/runner.h"

#include "core/base/assert.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <iterator>
#include <poll.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace farlift::kv::simulation {
namespace {

std::string program = "kvcache_sim_test";  // NOLINT: of main()
char last_words[512];                      // NOLINT: for the signal handler
using Real = std::chrono::steady_clock;

double cpu_seconds() {
  timespec spent{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

void say_last_words(int signal) {
  (void)!::write(STDERR_FILENO, last_words, std::strlen(last_words));
  std::signal(signal, SIG_DFL);
  ::raise(signal);
}

// Runs what `next` gives until it gives nothing, or until a seed fails.
RunnerReport run_here(const RunnerOptions& options,
                      const std::function<std::optional<std::uint64_t>()>& next) {
  RunnerReport report;
  const double before = cpu_seconds();
  std::signal(SIGABRT, say_last_words);
  std::signal(SIGSEGV, say_last_words);
  while (const std::optional<std::uint64_t> seed = next()) {
    std::snprintf(last_words, sizeof last_words, "\nthe program ends in seed %llu; repeat: %s\n",
                  static_cast<unsigned long long>(*seed), replay_command(*seed).c_str());
    World world(Plan::of(*seed), options.bugs, options.trace);
    world.run();
    ++report.done;
    report.steps += world.steps();
    if (options.print) {
      std::printf("seed %llu: %llu steps, fingerprint %016llx\n",
                  static_cast<unsigned long long>(*seed),
                  static_cast<unsigned long long>(world.steps()),
                  static_cast<unsigned long long>(world.fingerprint()));
    }
    for (const auto& [what, count] : world.tally()) report.tally[what] += count;
    if (world.ledger().failure()) {
      report.failed = *seed;
      report.what = *world.ledger().failure() + "\n  " + world.plan().describe();
      break;
    }
  }
  std::signal(SIGABRT, SIG_DFL);
  std::signal(SIGSEGV, SIG_DFL);
  report.cpu_seconds = cpu_seconds() - before;
  return report;
}

// What the processes share. A seed that is drawn is run to its end by whoever drew it.
struct Shared {
  static constexpr std::size_t kJobsMax = 256;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> over{false};                          // a seed failed: draw no more
  std::array<std::atomic<std::uint64_t>, kJobsMax> at{};  // the seed a process is at
};

class SharedMemory {
 public:
  SharedMemory()
      : at_(::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                   0)) {
    ASSERT(at_ != MAP_FAILED);
    shared_ = new (at_) Shared;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { (void)::munmap(at_, sizeof(Shared)); }
  Shared& operator*() const { return *shared_; }

 private:
  void* const at_;
  Shared* shared_ = nullptr;
};

struct Child {
  pid_t pid = -1;
  std::FILE* from = nullptr;  // its report, when it is over
};

// One line a number; the sentence of a failure, with its lines, to the end.
void tell(const RunnerReport& report, std::FILE* to) {
  std::fprintf(to, "%llu %llu %.3f\n", static_cast<unsigned long long>(report.done),
               static_cast<unsigned long long>(report.steps), report.cpu_seconds);
  for (const auto& [what, count] : report.tally) {
    std::fprintf(to, "%llu %s\n", static_cast<unsigned long long>(count), what.c_str());
  }
  std::fprintf(to, "failed %llu\n%s",
               static_cast<unsigned long long>(report.failed.value_or(UINT64_MAX)),
               report.what.c_str());
}

// False: it did not come to its end.
bool hear(const std::string& text, RunnerReport& into) {
  std::istringstream in(text);
  std::uint64_t done = 0, steps = 0, failed = UINT64_MAX;
  double cpu = 0;
  std::string line;
  if (!(in >> done >> steps >> cpu)) return false;
  std::getline(in, line);
  while (std::getline(in, line) && !line.starts_with("failed ")) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos) return false;
    into.tally[line.substr(space + 1)] += std::strtoull(line.c_str(), nullptr, 10);
  }
  if (!line.starts_with("failed ")) return false;
  failed = std::strtoull(line.c_str() + 7, nullptr, 10);
  into.done += done;
  into.steps += steps;
  into.cpu_seconds += cpu;
  if (failed != UINT64_MAX && failed < into.failed.value_or(UINT64_MAX)) {
    into.failed = failed;
    into.what.assign(std::istreambuf_iterator<char>(in), {});
  }
  return true;
}

Child start(const RunnerOptions& options, Shared& shared, std::size_t number,
            Real::time_point begin) {
  int ends[2];
  ASSERT(::pipe(ends) == 0);
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  ASSERT(pid >= 0);
  if (pid > 0) {
    ::close(ends[1]);
    return {pid, ::fdopen(ends[0], "r")};
  }
  ::close(ends[0]);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  const RunnerReport report = run_here(options, [&]() -> std::optional<std::uint64_t> {
    if (shared.over || Real::now() - begin >= options.limit) return std::nullopt;
    const std::uint64_t drawn = shared.next++;
    if (drawn >= options.count) return std::nullopt;
    shared.at[number] = options.from + drawn;
    return options.from + drawn;
  });
  if (report.failed) shared.over = true;
  std::fflush(nullptr);
  std::FILE* const to = ::fdopen(ends[1], "w");
  tell(report, to);
  std::fclose(to);
  ::_exit(0);  // nothing of the parent's is this process's to clean up
}

void collect(Child& child, std::uint64_t seed, Shared& shared, RunnerReport& report) {
  std::string text;
  for (char some[4096]; const std::size_t n = std::fread(some, 1, sizeof some, child.from);) {
    text.append(some, n);
  }
  std::fclose(child.from);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (hear(text, report)) return;
  shared.over = true;
  if (seed < report.failed.value_or(UINT64_MAX)) {
    report.failed = seed;
    report.what = "the process ended in this seed, status " + std::to_string(status);
  }
}

void say_progress(const RunnerOptions& options, const Shared& shared, Real::time_point begin) {
  const std::uint64_t begun = std::min<std::uint64_t>(shared.next, options.count);
  const double seconds = std::chrono::duration<double>(Real::now() - begin).count();
  std::printf("   %llu of %llu seeds begun, %.0f s, %.1f seeds/s\n",
              static_cast<unsigned long long>(begun),
              static_cast<unsigned long long>(options.count), seconds,
              static_cast<double>(begun) / seconds);
  std::fflush(stdout);
}

RunnerReport run_in_processes(const RunnerOptions& options) {
  const auto begin = Real::now();
  const SharedMemory memory;
  Shared& shared = *memory;
  RunnerReport report;
  std::vector<Child> children;
  for (std::size_t i = 0; i < std::min<std::size_t>(options.jobs, Shared::kJobsMax); ++i) {
    children.push_back(start(options, shared, i, begin));
  }
  auto said = begin;
  for (std::size_t i = 0; i < children.size(); ++i) {
    pollfd waiting{::fileno(children[i].from), POLLIN, 0};
    while (::poll(&waiting, 1, 1000) == 0) {
      if (options.report_every.count() == 0 || Real::now() - said < options.report_every) continue;
      said = Real::now();
      say_progress(options, shared, begin);
    }
    collect(children[i], shared.at[i], shared, report);
  }
  report.seconds = std::chrono::duration<double>(Real::now() - begin).count();
  return report;
}

}  // namespace

void set_program(std::string name) { program = std::move(name); }
const std::string& program_name() { return program; }
std::string replay_command(std::uint64_t seed) {
  return program + " --seed " + std::to_string(seed) + " --trace";
}

RunnerReport run_seeds(const RunnerOptions& options) {
  if (options.jobs > 1) return run_in_processes(options);
  const auto begin = Real::now();
  std::uint64_t next = options.from;
  RunnerReport report = run_here(options, [&]() -> std::optional<std::uint64_t> {
    const bool over = next - options.from >= options.count || Real::now() - begin >= options.limit;
    return over ? std::nullopt : std::optional(next++);
  });
  report.seconds = std::chrono::duration<double>(Real::now() - begin).count();
  return report;
}

std::string progress_line(const RunnerOptions& options, const RunnerReport& report) {
  char line[512];
  const double seconds = std::max(report.seconds, 1e-3);
  const double cpu = std::max(report.cpu_seconds, 1e-3);
  const auto done = static_cast<double>(report.done);
  const int n = std::snprintf(
      line, sizeof line,
      "%llu of %llu seeds from %llu, %llu steps, %.1f s in %u process%s: %.1f seeds/s, %.1f a "
      "second of processor time",
      static_cast<unsigned long long>(report.done), static_cast<unsigned long long>(options.count),
      static_cast<unsigned long long>(options.from), static_cast<unsigned long long>(report.steps),
      report.seconds, options.jobs, options.jobs == 1 ? "" : "es", done / seconds, done / cpu);
  std::string text(line, static_cast<std::size_t>(std::max(n, 0)));
  if (report.done >= options.count || report.failed) return text;
  const std::uint64_t left = options.count - report.done;
  std::snprintf(line, sizeof line,
                "\n%llu remain, about %.0f s as fast as this: --from %llu --count %llu",
                static_cast<unsigned long long>(left),
                static_cast<double>(left) * seconds / std::max(done, 1.0),
                static_cast<unsigned long long>(options.from + report.done),
                static_cast<unsigned long long>(left));
  return text + line;
}

const std::map<std::string, Bugs>& known_bugs() {
  static const std::map<std::string, Bugs> bugs = [] {
    std::map<std::string, Bugs> all;
#ifdef FARLIFT_PLANTED_BUGS
    const auto node = [](PlantedBug bug) {
      Bugs b;
      b.node = bug;
      return b;
    };
    all["skip_grace_and_fence"] = node(PlantedBug::skip_grace_and_fence);
    all["constant_key"] = node(PlantedBug::constant_key);
    all["purge_by_version"] = node(PlantedBug::purge_by_version);
    all["crc_before_grant_close"] = node(PlantedBug::crc_before_grant_close);
    all["restored_incarnation"] = node(PlantedBug::restored_incarnation);
    all["free_on_unknown_publish"] = node(PlantedBug::free_on_unknown_publish);
    all["tag_without_key"] = node(PlantedBug::tag_without_key);
    all["tag_without_key"].client.tag_without_key = true;
    all["report_on_soft_timeout"].client.report_on_soft_timeout = true;
    all["fence_mr_everywhere"] = node(PlantedBug::fence_mr_everywhere);
    all["fence_mr_everywhere"].client.skip_crc = true;
#endif
    return all;
  }();
  return bugs;
}

}  // namespace farlift::kv::simulation
