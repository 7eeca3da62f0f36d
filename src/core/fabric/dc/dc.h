// mlx5's dynamically connected (DC) transport behind the fabric interface: what a cuObject token
// names (spec s3 1.1). One initiating queue pair (DCI) reaches any number of targets (DCT), named
// by GID, DCT number and a secret access key that travels out of band (spec s3 1.1, default
// 0xffeeddcc).
//
// libibverbs and libmlx5 are opened at run time, only by the functions below; nothing links to
// them. NOT YET RUN ON A CARD: the code is complete and tested up to the library calls, against a
// stand-in that checks every state change as the kernel's driver does. docs/decisions/0023 lists
// what a first run on hardware must confirm.
//
// What this provider gives
//   Addresses   24 bytes, see DcAddress. Remote addresses are virtual addresses, keys are the
//   card's
//               (32 bits).
//   Fence       FenceMode::mr: deregistering waits for the card.
//   Delivery    a write completes when the target's card has acknowledged it. A read-back that
//   would
//               flush the peer's PCIe queue is not possible: the window of a GET need not be
//               readable.
//   Faults      a refused operation stops its DCI: operations behind it on the same DCI complete as
//               flushed and may be retried once. Peers are spread over DcOptions::queues DCIs, so
//               others do not notice.
//   abort()     stops the peer's DCI, with the same effect on its neighbours.
//
// Threads:    as core/fabric/fabric.h.
// Errors:     unsupported: a library is missing, or the card knows no DC; not_found: no such card,
//             port or GID. `why`, when given, receives one sentence for people.
#pragma once

#include "core/fabric/fabric.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace farlift::fabric::dc {

class Verbs;

inline constexpr std::uint32_t kDefaultDcKey = 0xffeeddcc;
inline constexpr std::uint32_t kDctnMax = 0xffffff;  // 24 bits
inline constexpr std::uint32_t kQueuesMax = 64;

// A DC target. As fabric::Address: gid (16, network order), dctn (u32), lid (u16), zero (u16), all
// big-endian.
struct DcAddress {
  std::array<std::uint8_t, 16> gid{};
  std::uint32_t dctn = 0;  // 1..kDctnMax
  std::uint16_t lid = 0;   // 0 on RoCE

  static constexpr std::size_t kBytes = 24;
  // invalid_argument: a DCT number of 0 or above 24 bits, or a GID of zeros; permission: a
  // multicast GID (spec s3 1.2 V9).
  Status check() const noexcept;
  Result<Address> to_address() const;  // as check()
  static Result<DcAddress> from_address(const Address& address);
  friend bool operator==(const DcAddress&, const DcAddress&) noexcept = default;
};

struct DcOptions {
  std::string device;     // "mlx5_0"; empty: the first that knows DC and has an active port
  std::uint8_t port = 1;  // counted from 1
  int gid_index = -1;     // -1: the first RoCE v2 GID, on InfiniBand index 0
  std::uint32_t dc_key = kDefaultDcKey;
  std::uint32_t queues = 8;  // DCIs of one Initiator, 1..kQueuesMax
  std::uint8_t hop_limit = 64;
  std::uint8_t traffic_class = 0;
  std::uint8_t service_level = 0;
};

struct DeviceDescription {
  std::string name;
  bool dc = false;      // mlx5, so it may know DC
  std::string problem;  // why it cannot be used, empty when it can
};
// What is there; never empty. For `farlift doctor`.
Result<std::vector<DeviceDescription>> list_devices(std::string* why = nullptr);

// The libraries of this machine.
Result<std::shared_ptr<const Verbs>> load_verbs(std::string* why = nullptr);

Result<std::unique_ptr<Domain>> open_domain(const DcOptions& options, std::string* why = nullptr);
// For tests: with libraries of your own.
Result<std::unique_ptr<Domain>> open_domain(std::shared_ptr<const Verbs> verbs,
                                            const DcOptions& options, std::string* why = nullptr);

}  // namespace farlift::fabric::dc
