#include "core/fabric/soft/domain.h"

#include "core/fabric/soft/host_process.h"
#include "core/fabric/soft/initiator.h"
#include "core/fabric/soft/registration.h"
#include "core/fabric/soft/target.h"

#include <cstring>
#include <ifaddrs.h>

namespace farlift::fabric::soft {
namespace {

// The name of the interface that carries `ip`, or "" (a library call that fails here costs a name
// and nothing else).
std::string interface_of(const SocketAddress& ip) {
  std::string name;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return name;
  for (const ifaddrs* i = list; i != nullptr && name.empty(); i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != ip.family()) continue;
    if (ip.family() == AF_INET) {
      const auto* a = reinterpret_cast<const sockaddr_in*>(i->ifa_addr);
      const auto* b = reinterpret_cast<const sockaddr_in*>(ip.get());
      if (a->sin_addr.s_addr == b->sin_addr.s_addr) name = i->ifa_name;
    } else {
      const auto* a = reinterpret_cast<const sockaddr_in6*>(i->ifa_addr);
      const auto* b = reinterpret_cast<const sockaddr_in6*>(ip.get());
      if (std::memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0) name = i->ifa_name;
    }
  }
  ::freeifaddrs(list);
  return name;
}

}  // namespace

SoftDomain::SoftDomain(const SoftOptions& options, const Clock& clock, const SocketAddress& listen,
                       std::unique_ptr<Registry> registry)
    : options_(options),
      clock_(clock),
      listen_(listen),
      boot_id_(boot_id()),
      registry_(std::move(registry)) {
  info_.provider = "soft";
  info_.version = "1";
  info_.interface_name = interface_of(listen);
  info_.fence_mode = FenceMode::mr;
  info_.virtual_addressing = options.virtual_addressing;
  info_.local_registration_required = false;
  info_.reports_landed_crc = true;
  info_.in_flight_max = SoftInitiator::kInFlightMax;
  info_.operation_length_max = Length(kOperationBytesMax);
}

Result<std::unique_ptr<Registration>> SoftDomain::register_memory(const MemoryRef& memory,
                                                                  Access access) {
  TRY_ASSIGN(auto record, registry_->open(memory.bytes, access, SourceFile::of(memory)));
  return std::unique_ptr<Registration>(
      std::make_unique<SoftRegistration>(*registry_, std::move(record)));
}

Result<std::unique_ptr<TargetEndpoint>> SoftDomain::open_target(const TargetOptions& options) {
  TRY_ASSIGN(auto target, SoftTarget::open(*this, options));
  return std::unique_ptr<TargetEndpoint>(std::move(target));
}

Result<std::unique_ptr<Initiator>> SoftDomain::open_initiator(const InitiatorOptions& options) {
  TRY_ASSIGN(auto initiator, SoftInitiator::open(*this, options));
  return std::unique_ptr<Initiator>(std::move(initiator));
}

Result<SocketAddress> SoftDomain::peer_address(const Address& peer, bool target_rules) const {
  TRY_ASSIGN(const SocketAddress address, SocketAddress::decode(peer));
  if (address.family() != listen_.family()) {
    return Error::make(Errc::unsupported, listen_.family() == AF_INET
                                              ? "IPv6 address on an IPv4 service"
                                              : "IPv4 address on an IPv6 service");
  }
  if (target_rules) TRY(address.check_target(true));
  return address;
}

Status SoftDomain::admit_peer(const Address& peer) {
  TRY(peer_address(peer, true));
  return {};
}

Result<std::unique_ptr<Domain>> open_domain(const SoftOptions& options, const Clock& clock) {
  TRY_ASSIGN(const SocketAddress listen, SocketAddress::parse(options.listen_ip, 0));
  if (!listen.check_target(false).ok())
    return Error::make(Errc::invalid_argument, "soft listen_ip cannot be connected to");
  TRY_ASSIGN(auto registry, Registry::create(options.virtual_addressing, options.dc_key));
  return std::unique_ptr<Domain>(
      std::make_unique<SoftDomain>(options, clock, listen, std::move(registry)));
}

SoftStats stats(const Domain& domain) noexcept {
  SoftStats s;
  const auto* soft = dynamic_cast<const SoftDomain*>(&domain);
  if (soft == nullptr) return s;
  const Counters& c = soft->counters();
  s.links_accepted = c.links_accepted.get();
  s.links_refused = c.links_refused.get();
  s.links_foreign = c.links_foreign.get();
  s.links_silent = c.links_silent.get();
  s.links_broken = c.links_broken.get();
  s.operations_served = c.operations_served.get();
  s.operations_refused = c.operations_refused.get();
  s.bytes_landed = c.bytes_landed.get();
  s.bytes_mapped = c.bytes_mapped.get();
  s.bytes_sent = c.bytes_sent.get();
  s.pulls_failed = c.pulls_failed.get();
  s.links_connected = c.links_connected.get();
  s.links_lost = c.links_lost.get();
  s.connect_failures = c.connect_failures.get();
  s.abort_limits = c.abort_limits.get();
  s.host_links = c.host_links.get();
  s.host_lane_refusals = c.host_lane_refusals.get();
  s.writes_remote = c.writes_remote.get();
  s.writes_host = c.writes_host.get();
  s.reads_remote = c.reads_remote.get();
  s.reads_host = c.reads_host.get();
  s.posts_deferred = c.posts_deferred.get();
  s.registrations_refused = soft->registry().refused();
  s.landed_overflows = soft->registry().landed_overflows();
  return s;
}

}  // namespace farlift::fabric::soft
