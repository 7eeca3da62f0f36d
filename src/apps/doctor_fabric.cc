// What can carry bytes here: the soft provider and its host lane, libfabric, cards.
#include "apps/doctor.h"
#include "apps/files.h"
#include "apps/process.h"
#include "core/base/clock.h"
#include "core/fabric/dc/dc.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <sys/mman.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>

namespace farlift::apps {

namespace {

Finding soft() {
  const SystemClock clock;
  auto domain = fabric::soft::open_domain({}, clock);
  if (!domain)
    return {"soft provider", Verdict::missing, domain.error().describe(),
            "loopback must be up: ip link set lo up"};
  auto target = (*domain)->open_target({});
  if (!target)
    return {"soft provider", Verdict::missing, target.error().describe(),
            "loopback must be up: ip link set lo up"};
  return {"soft provider", Verdict::good, "works, no card needed", ""};
}

// The host lane needs process_vm_readv between processes of one user. A child that is no
// descendant's descendant is the easy case, so the general rule is read too.
Finding host_lane() {
  const std::string scope = read_file("/proc/sys/kernel/yama/ptrace_scope", 16).value_or("0");
  Outcome<Child> child = Child::start({{"sleep", "30"}, "", ""});
  Finding out{"host lane", Verdict::good, "process_vm_readv works between processes of one user",
              ""};
  if (!child) return {"host lane", Verdict::limited, "not tried: " + child.error().text, ""};
  // Any readable address of the child serves: the first mapping that /proc shows.
  const std::string maps = read_file(fmt::format("/proc/{}/maps", child->pid()), 4096).value_or("");
  std::array<std::byte, 16> here{};
  const std::uintptr_t there = strtoull(maps.c_str(), nullptr, 16);
  iovec local{here.data(), here.size()};
  iovec remote{reinterpret_cast<void*>(there), here.size()};  // an address of another process
  const ssize_t got = process_vm_readv(child->pid(), &local, 1, &remote, 1, 0);
  const int error = errno;
  if (got != static_cast<ssize_t>(here.size())) {
    out.verdict = Verdict::limited;
    out.value = "refused: " + std::generic_category().message(error);
    out.advice =
        "bytes go by TCP on one host; containers: add the capability SYS_PTRACE or allow "
        "process_vm_readv in seccomp";
  } else if (scope[0] != '0' && geteuid() != 0) {
    out.verdict = Verdict::limited;
    out.value = fmt::format("kernel.yama.ptrace_scope is {}", scope.substr(0, 1));
    out.advice =
        "only related processes may use it, others go by TCP; sysctl kernel.yama.ptrace_scope=0 "
        "allows it";
  }
  return out;
}

std::vector<Finding> libfabric() {
  using fabric::ofi::Provider;
  const fabric::ofi::LibraryStatus any = fabric::ofi::library_status(fabric::ofi::kVersionAny);
  if (!any.usable) {
    return {{"libfabric", Verdict::limited, any.reason,
             "only for cards and the published tcp emulation: install libfabric1 (1.17 or newer)"}};
  }
  std::vector<Finding> out = {{"libfabric", Verdict::good, any.version, ""}};
  const struct {
    const char* name;
    Provider provider;
    fabric::ofi::VersionRule rule;
    const char* advice;
  } rows[] = {
      {"  tcp", Provider::tcp, fabric::ofi::kVersionAny,
       "no network interface that libfabric can use"},
      {"  verbs", Provider::verbs, fabric::ofi::kVersionAny,
       "InfiniBand and RoCE need a card and its driver"},
      {"  efa", Provider::efa, fabric::ofi::kVersionClient,
       "AWS EFA needs an EFA interface and libfabric 2.4 or newer"},
  };
  for (const auto& row : rows) {
    fabric::ofi::OfiOptions options;
    options.provider = row.provider;
    options.version = row.rule;
    std::string why;
    auto domains = fabric::ofi::list_domains(options, &why);
    Finding finding{row.name, Verdict::good, "", ""};
    if (domains) {
      for (const auto& domain : *domains) {
        const std::string one = fmt::format("{} ({})", domain.interface_name, domain.provider);
        if (finding.value.find(one) != std::string::npos) continue;  // one more address of it
        finding.value += (finding.value.empty() ? "" : ", ") + one;
      }
    } else {
      finding = Finding{row.name, Verdict::limited, why.empty() ? domains.error().describe() : why,
                        row.advice};
    }
    out.push_back(std::move(finding));
  }
  return out;
}

Finding cards() {
  std::string names;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/sys/class/infiniband"), closedir);
  while (folder) {
    const dirent* entry = readdir(folder.get());
    if (entry == nullptr) break;
    if (entry->d_name[0] != '.') names += (names.empty() ? "" : ", ") + std::string(entry->d_name);
  }
  if (!names.empty()) return {"RDMA cards", Verdict::good, names, ""};
  return {"RDMA cards", Verdict::limited, "none",
          "not needed: the soft provider carries the same protocols"};
}

// What tokens of cuObject clients name. Each card is opened, and a DC target made on it.
Finding dc() {
  std::string why;
  const auto devices = fabric::dc::list_devices(&why);
  if (!devices) {
    return {"mlx5 DC", Verdict::limited, why.empty() ? devices.error().describe() : why,
            "only for cuObject clients, and needs a ConnectX-5 or newer card"};
  }
  Finding out{"mlx5 DC", Verdict::good, "", ""};
  for (const auto& device : *devices) {
    out.value += fmt::format("{}{}: {}", out.value.empty() ? "" : ", ", device.name,
                             device.problem.empty() ? "makes DC targets" : device.problem);
    if (!device.problem.empty()) out.verdict = Verdict::limited;
  }
  return out;
}

}  // namespace

std::vector<Finding> examine_fabric() {
  std::vector<Finding> out = {soft(), host_lane(), cards(), dc()};
  for (Finding& finding : libfabric()) out.push_back(std::move(finding));
  return out;
}

}  // namespace farlift::apps
