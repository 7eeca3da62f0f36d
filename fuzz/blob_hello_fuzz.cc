// The address of BLOB.RDMA_HELLO on its whole way: hex, length, what it names, whether a loopback
// client may name it, and the provider's own rules.
#include "blob/module/address_policy.h"
#include "blob/wire/operands.h"
#include "core/base/assert.h"
#include "core/base/clock.h"
#include "core/fabric/soft/soft.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace {

using namespace farlift;

fabric::Domain& domain() {
  static const SystemClock clock;
  static const auto one = fabric::soft::open_domain({}, clock);
  return **one;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::vector<std::string_view> words{{reinterpret_cast<const char*>(data), size}};
  const auto bytes = blob::wire::parse_hello(words);
  if (!bytes) return 0;
  const bool length_ok = !blob::wire::check_address_length(bytes->size(), {true, false});
  ASSERT(length_ok == (bytes->size() == 16 || bytes->size() == 28));
  if (!length_ok) return 0;
  const auto address = fabric::Address::from_bytes(*bytes);
  ASSERT(address.ok());
  const auto target = blob::IpAddress::from_sockaddr(address->bytes());
  const bool admitted = domain().admit_peer(*address).ok();
  if (admitted) domain().release_peer(*address);
  // The provider takes nothing that we cannot name, and a loopback client may name nothing but
  // loopback.
  if (admitted) ASSERT(target.has_value());
  if (target) ASSERT(blob::AddressPolicy().admits(*target, std::nullopt) == target->loopback());
  return 0;
}
