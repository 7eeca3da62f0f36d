// DcDomain: one card behind the interface, and the form of its addresses.
#include "core/fabric/dc/initiator.h"
#include "core/fabric/dc/registration.h"
#include "core/fabric/dc/target.h"

#include <algorithm>

namespace farlift::fabric::dc {
namespace {

constexpr Length kOperationLengthMax{std::uint64_t{1} << 30};

class DcDomain final : public Domain {
 public:
  explicit DcDomain(std::unique_ptr<Card> card) : card_(std::move(card)) {
    info_.provider = "dc";
    info_.version = "rdma-core 44 or newer";
    info_.interface_name = card_->name();
    info_.fence_mode = FenceMode::mr;
    info_.virtual_addressing = true;
    info_.local_registration_required = true;
    info_.in_flight_max = DcInitiator::kInFlightDefault;
    info_.operation_length_max =
        std::min(kOperationLengthMax, Length(std::max<std::uint32_t>(card_->port().max_msg_sz, 1)));
  }

  const DomainInfo& info() const noexcept override { return info_; }
  Result<std::unique_ptr<Registration>> register_memory(const MemoryRef& memory,
                                                        Access access) override {
    TRY_ASSIGN(std::unique_ptr<Registration> made, DcRegistration::make(*card_, memory, access));
    return made;
  }
  Result<std::unique_ptr<TargetEndpoint>> open_target(const TargetOptions&) override {
    TRY_ASSIGN(std::unique_ptr<TargetEndpoint> made, DcTarget::make(*card_));
    return made;
  }
  Result<std::unique_ptr<Initiator>> open_initiator(const InitiatorOptions& options) override {
    TRY_ASSIGN(std::unique_ptr<Initiator> made,
               DcInitiator::make(*card_, options, info_.operation_length_max));
    return made;
  }
  Status admit_peer(const Address& peer) override {
    TRY(DcAddress::from_address(peer));
    return ok_status();
  }
  void release_peer(const Address&) override {}

 private:
  const std::unique_ptr<Card> card_;
  DomainInfo info_;
};

}  // namespace

Status DcAddress::check() const noexcept {
  if (dctn == 0 || dctn > kDctnMax) return Error::make(Errc::invalid_argument, "DCT number");
  if (std::all_of(gid.begin(), gid.end(), [](std::uint8_t b) { return b == 0; })) {
    return Error::make(Errc::invalid_argument, "GID of zeros");
  }
  if (gid[0] == 0xff) return Error::make(Errc::permission, "multicast GID");
  return ok_status();
}

Result<Address> DcAddress::to_address() const {
  TRY(check());
  std::array<std::byte, kBytes> bytes{};
  for (std::size_t i = 0; i < gid.size(); ++i) bytes[i] = std::byte{gid[i]};
  for (std::size_t i = 0; i < 4; ++i) bytes[16 + i] = static_cast<std::byte>(dctn >> (24 - 8 * i));
  for (std::size_t i = 0; i < 2; ++i) bytes[20 + i] = static_cast<std::byte>(lid >> (8 - 8 * i));
  return Address::from_bytes(bytes);
}

Result<DcAddress> DcAddress::from_address(const Address& address) {
  const auto bytes = address.bytes();
  if (bytes.size() != kBytes || bytes[22] != std::byte{0} || bytes[23] != std::byte{0}) {
    return Error::make(Errc::unsupported, "address of a DC target");
  }
  DcAddress out;
  for (std::size_t i = 0; i < out.gid.size(); ++i)
    out.gid[i] = std::to_integer<std::uint8_t>(bytes[i]);
  for (std::size_t i = 16; i < 20; ++i)
    out.dctn = out.dctn << 8 | std::to_integer<std::uint32_t>(bytes[i]);
  out.lid = static_cast<std::uint16_t>(std::to_integer<unsigned>(bytes[20]) << 8 |
                                       std::to_integer<unsigned>(bytes[21]));
  TRY(out.check());
  return out;
}

Result<std::unique_ptr<Domain>> open_domain(std::shared_ptr<const Verbs> verbs,
                                            const DcOptions& options, std::string* why) {
  TRY_ASSIGN(std::unique_ptr<Card> card, Card::open(std::move(verbs), options, why));
  // A card that has no DC says so only when it is asked for a DC queue.
  auto domain = std::make_unique<DcDomain>(std::move(card));
  if (const auto target = domain->open_target({}); !target.ok()) {
    if (why != nullptr) {
      *why = domain->info().interface_name + " makes no DC target: " + target.error().describe();
    }
    return Error::make(Errc::unsupported, "DC transport", target.error().os);
  }
  return std::unique_ptr<Domain>(std::move(domain));
}

Result<std::unique_ptr<Domain>> open_domain(const DcOptions& options, std::string* why) {
  TRY_ASSIGN(std::shared_ptr<const Verbs> verbs, load_verbs(why));
  return open_domain(std::move(verbs), options, why);
}

}  // namespace farlift::fabric::dc
