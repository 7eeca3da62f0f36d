// Topology: which primary owns each slot, as one node of the cluster told it.
//
// Invariants: every slot names a known node or none. Replicas are not kept: transfers go to
//             primaries. Threads: plain value.
// Errors:     protocol when the reply has another shape than the command's.
#pragma once

#include "core/base/result.h"
#include "core/net/resp/reply_error.h"
#include "core/net/resp/slot.h"
#include "core/net/resp/value.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace farlift::resp {

class Topology {
 public:
  static constexpr std::size_t kNodesMax = 4096;

  Topology() noexcept { owner_.fill(kNone); }
  // From the reply of CLUSTER SLOTS or CLUSTER SHARDS (use_tls picks the port). A node that does
  // not know its own address (an empty host, or "?") is taken to be the one that answered.
  static Result<Topology> from_slots(const Value& reply, const Endpoint& answered_by);
  static Result<Topology> from_shards(const Value& reply, const Endpoint& answered_by,
                                      bool use_tls);

  const Endpoint* owner(std::uint16_t slot) const noexcept;  // nullptr: no node serves it
  void move(std::uint16_t slot,
            const Endpoint& to);  // what a MOVED reply says; ignored past kNodesMax
  const std::vector<Endpoint>& nodes() const noexcept { return nodes_; }
  std::size_t slots_covered() const noexcept;

 private:
  static constexpr std::uint16_t kNone = 0xffff;
  std::optional<std::uint16_t> index_of(const Endpoint& node);
  Status assign(std::int64_t first, std::int64_t last, const Endpoint& node);

  std::vector<Endpoint> nodes_;
  std::array<std::uint16_t, kSlotCount> owner_;
};

}  // namespace farlift::resp
