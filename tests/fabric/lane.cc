#include "tests/fabric/lane.h"

#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"

#include <cstdlib>

namespace farlift::kv::lane {
namespace {

std::string setting(const char* name, const char* fallback) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

Lane ofi(fabric::ofi::Provider provider, const std::string& node_ip, const std::string& client_ip) {
  const auto options = [provider](const std::string& ip) {
    fabric::ofi::OfiOptions made;
    made.provider = provider;
    made.listen_ip = ip;
    return made;
  };
  Lane lane;
  for (const std::string& ip : {node_ip, client_ip}) {
    const auto found = fabric::ofi::list_domains(options(ip), &lane.missing);
    if (!found.ok()) return lane;
    lane.provider = rail_name(found->front().provider);
  }
  lane.missing.clear();
  lane.node = [at = options(node_ip)] { return fabric::ofi::open_domain(at, clock()); };
  lane.client = [at = options(client_ip)] { return fabric::ofi::open_domain(at, clock()); };
  return lane;
}

}  // namespace

const Clock& clock() {
  static const SystemClock one;
  return one;
}

Lane soft() {
  Lane lane;
  lane.provider = "soft";
  lane.node = [] {
    fabric::soft::SoftOptions options;
    options.host_lane = false;  // both ends are one process: the sockets are the harder lane
    return fabric::soft::open_domain(options, clock());
  };
  lane.client = lane.node;
  return lane;
}

Lane tcp() { return ofi(fabric::ofi::Provider::tcp, "127.0.0.1", "127.0.0.1"); }

Lane verbs() {
  return ofi(fabric::ofi::Provider::verbs, setting("FARLIFT_VERBS_TARGET_IP", "10.77.0.2"),
             setting("FARLIFT_VERBS_INITIATOR_IP", "10.77.0.1"));
}

bool in_soft_roce_vm() { return std::getenv("ROCE_VM") != nullptr; }

}  // namespace farlift::kv::lane
