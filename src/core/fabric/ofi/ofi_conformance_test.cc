// The conformance suite over libfabric's tcp wire on loopback, with the libfabric that is
// installed.
#include "core/fabric/conformance.h"
#include "core/fabric/ofi/ofi.h"

#include <cstdio>

namespace farlift::fabric {
namespace {

const SystemClock kClock;

Result<std::unique_ptr<Domain>> open_tcp() {
  ofi::OfiOptions options;
  options.listen_ip = "127.0.0.1";
  return ofi::open_domain(options, kClock);
}

}  // namespace

std::vector<ConformanceProvider> conformance_providers() {
  const ofi::LibraryStatus library = ofi::library_status(ofi::kVersionAny);
  if (!library.usable) {
    std::printf("skipped: %s\n", library.reason.c_str());
    return {};
  }
  ConformanceProvider tcp;
  tcp.name = "ofi_tcp";
  tcp.open = open_tcp;
  tcp.exact_refusal = false;   // a refusal tears the connection down
  tcp.abort_is_fence = false;  // what the sockets between the ends hold still lands
  tcp.rounds_percent = 25;
  return {tcp};
}

}  // namespace farlift::fabric
