// What the host itself offers: limits, pages, processor, Valkey.
#include "apps/console.h"
#include "apps/doctor.h"
#include "apps/files.h"
#include "apps/process.h"
#include "apps/server.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sys/resource.h>
#include <unistd.h>

namespace farlift::apps {

namespace {

constexpr std::uint64_t kComfortableMemlock = 1u << 30;

std::uint64_t number_after(const std::string& text, const std::string& mark) {
  const std::size_t at = text.find(mark);
  if (at == std::string::npos) return 0;
  return strtoull(text.c_str() + at + mark.size(), nullptr, 10);
}

Finding memlock() {
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  Finding out{"locked memory", Verdict::good, "unlimited", ""};
  if (limit.rlim_cur == RLIM_INFINITY) return out;
  out.value = human_bytes(limit.rlim_cur);
  if (limit.rlim_cur < kComfortableMemlock) {
    out.verdict = Verdict::limited;
    out.advice =
        "enough for the soft provider; a card pins what it registers: raise RLIMIT_MEMLOCK "
        "(systemd: LimitMEMLOCK=infinity)";
  }
  return out;
}

Finding huge_pages() {
  const std::string info = read_file("/proc/meminfo", 65536).value_or("");
  const std::uint64_t total = number_after(info, "HugePages_Total:");
  const std::uint64_t free_pages = number_after(info, "HugePages_Free:");
  Finding out{"huge pages", Verdict::good,
              fmt::format("{} of {} free, {} KiB each", free_pages, total,
                          number_after(info, "Hugepagesize:")),
              ""};
  if (free_pages == 0) {
    out.verdict = Verdict::limited;
    out.advice = "works without; for fewer page faults: sysctl vm.nr_hugepages=512";
  }
  return out;
}

Finding memory() {
  const std::string info = read_file("/proc/meminfo", 65536).value_or("");
  const std::uint64_t available = number_after(info, "MemAvailable:") * 1024;
  Finding out{"memory", Verdict::good, human_bytes(available) + " available", ""};
  if (available < (2ull << 30)) {
    out.verdict = Verdict::limited;
    out.advice =
        "the module starts with one segment of largeobj.segment-size (1 GiB); choose a smaller one";
  }
  return out;
}

Finding processor() {
  std::string features;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2")) features += " sse4.2";
  if (__builtin_cpu_supports("pclmul")) features += " pclmul";
  if (__builtin_cpu_supports("avx2")) features += " avx2";
  if (__builtin_cpu_supports("avx512f")) features += " avx512f";
  if (__builtin_cpu_supports("vpclmulqdq")) features += " vpclmulqdq";
  Finding out{"processor", Verdict::good,
              fmt::format("{} cores,{}", sysconf(_SC_NPROCESSORS_ONLN), features), ""};
  if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) {
    out.verdict = Verdict::limited;
    out.advice = "no instructions for CRC-32C: checking every byte will be slow";
  }
  return out;
}

Finding valkey() {
  Outcome<std::string> binary = find_valkey_server();
  if (!binary) return {"valkey-server", Verdict::missing, "not found", binary.error().text};
  const std::string line = first_line_of({*binary, "--version"});  // Valkey server v=8.0.1 sha=...
  const std::uint64_t major = number_after(line, " v=");
  Finding out{"valkey-server", Verdict::good, line.substr(0, line.find(" sha")) + ", " + *binary,
              ""};
  if (line.find("Valkey") == std::string::npos || major < 8) {
    out.verdict = Verdict::missing;
    out.advice = "the module needs Valkey 8.0 or newer (Debian 12: bookworm-backports)";
  }
  return out;
}

Finding module() {
  Outcome<std::string> path = find_module();
  if (!path) return {"module", Verdict::missing, "not found", path.error().text};
  return {"module", Verdict::good, *path, ""};
}

}  // namespace

std::vector<Finding> examine_machine() {
  return {processor(), memory(), memlock(), huge_pages(), valkey(), module()};
}

}  // namespace farlift::apps
