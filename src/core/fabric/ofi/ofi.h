// libfabric behind the fabric interface: EFA, InfiniBand and RoCE (verbs), and libfabric's own tcp
// wire for peers that speak it. The library is opened at run time, only by the functions below;
// nothing links to it.
//
// What each provider gives
//   tcp    FI_PROTO_XNET, the native RDM provider ("net" in 1.17, "tcp" in 2.x), with
//          FenceMode::endpoint. A refused operation tears the connection down: it completes as
//          access, the operations behind it as flushed. The provider has one code for a refusal and
//          for a lost connection; we tell them apart by asking whether the peer's listener still
//          answers, so `access` may be reported for a connection that broke under a live peer.
//          abort() makes the local buffers ours again at once, but what the sockets between the
//          ends hold of a write may still land: as with every registration here, the owner of the
//          remote memory closes its endpoint before that memory is reused.
//   verbs  "verbs;ofi_rxm", FenceMode::mr (the registration cache is off). Refusals and losses have
//          codes of their own.
//   efa    fabric "efa-direct", FenceMode::mr. Peers must be introduced on both sides. abort()
//          cannot recall what the card already has: such operations end with their own result.
//
// Invariants: the environment is prepared (registration cache off) before the first libfabric call.
//             Writes ask for delivery-complete on every call. Keys are random where the application
//             picks them. On tcp and verbs each peer of an Initiator has an endpoint of its own (on
//             tcp in a libfabric domain of its own), so abort() of one peer closes that endpoint
//             (the only fence these providers have) and a fault of one peer never touches
//             another.
// Threads:    as core/fabric/fabric.h. One thread per domain makes progress for its targets.
// Errors:     unsupported: libfabric is missing or its version is refused; not_found: no such
//             interface or address. `why`, when given, receives one sentence for people.
// Not kept:   TargetOptions::connections_max and InitiatorOptions::streams_per_peer have no
//             counterpart in libfabric.
#pragma once

#include "core/fabric/fabric.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace farlift::fabric::ofi {

enum class Provider : std::uint8_t { tcp, verbs, efa };

// Accepts versions from major.minor on, and below `below_major` when that is not 0.
struct VersionRule {
  std::uint32_t major = 1;
  std::uint32_t minor = 17;
  std::uint32_t below_major = 0;
};
inline constexpr VersionRule kVersionAny{1, 17, 0};       // tcp, verbs
inline constexpr VersionRule kVersionEfaServer{2, 0, 0};  // spec blob 5.1
inline constexpr VersionRule kVersionClient{2, 4, 3};     // spec blob 10.1, rdma_usable()
inline constexpr const char* kLibraryName = "libfabric.so.1";

struct LibraryStatus {
  bool usable = false;
  std::string version;  // "1.17", empty when it could not be loaded
  std::string reason;   // why it is not usable
};
// Loads libfabric (it stays loaded) and checks its version. Creates no fabric objects.
LibraryStatus library_status(const VersionRule& rule, const std::string& library = kLibraryName);

struct OfiOptions {
  Provider provider = Provider::tcp;
  std::string
      interface_name;  // network interface (tcp) or card (verbs, efa); empty: the first that fits
  std::string listen_ip;  // numeric; tcp and verbs: the local address, empty: the interface's
  VersionRule version;
  std::string library = kLibraryName;
};

struct DomainDescription {
  std::string provider;  // "net", "tcp", "verbs;ofi_rxm", "efa"
  std::string interface_name;
  std::string address;  // numeric address where it has one
};
// Every domain that open_domain() could open with these options; never empty.
Result<std::vector<DomainDescription>> list_domains(const OfiOptions& options,
                                                    std::string* why = nullptr);

// `clock` outlives the domain.
Result<std::unique_ptr<Domain>> open_domain(const OfiOptions& options, const Clock& clock,
                                            std::string* why = nullptr);

}  // namespace farlift::fabric::ofi
