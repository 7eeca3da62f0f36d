// The conformance suite on the soft provider: each lane, both ways of addressing, one stream and
// several.
#include "core/fabric/conformance.h"
#include "core/fabric/soft/soft.h"

namespace farlift::fabric {
namespace {

ConformanceProvider provider_of(const char* name, const soft::SoftOptions& options,
                                std::uint32_t streams, std::uint32_t rounds_percent) {
  static const SystemClock clock;
  ConformanceProvider provider;
  provider.name = name;
  provider.open = [options] { return soft::open_domain(options, clock); };
  provider.streams_per_peer = streams;
  provider.rounds_percent = rounds_percent;
  provider.bulk_bytes = 8u << 20;
  return provider;
}

}  // namespace

std::vector<ConformanceProvider> conformance_providers() {
  soft::SoftOptions remote;
  remote.host_lane = false;
  soft::SoftOptions host;
  soft::SoftOptions virtual32;
  virtual32.virtual_addressing = true;
  virtual32.dc_key = 0xffeeddcc;
  virtual32.spin_us = 20;
  return {provider_of("remote", remote, 1, 100), provider_of("host", host, 1, 100),
          provider_of("virtual_key32_spin", virtual32, 1, 30),
          provider_of("remote_streams4", remote, 4, 30)};
}

}  // namespace farlift::fabric
