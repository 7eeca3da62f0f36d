// Segment: one Mapping registered on every rail, charged to the pinned-byte budget (once a rail)
// while it lives.
//
// Invariants: registered on all rails or not made at all; registrations close before the memory is
//             unmapped.
// Threads:    immutable after create(). Errors: no_memory, exhausted (budget), or the rail's own.
#pragma once

#include "core/fabric/fabric.h"
#include "core/memory/budget.h"
#include "core/memory/mapping.h"

#include <memory>
#include <span>
#include <vector>

namespace farlift::memory {

class Segment {
 public:
  // `rails` outlive the segment. `access` is what peers may do (blob: Access::local, spec blob
  // 1.3).
  static Result<std::unique_ptr<Segment>> create(std::span<fabric::Domain* const> rails,
                                                 Length length, fabric::Access access,
                                                 PinnedBudget& budget,
                                                 const MappingOptions& options);
  std::span<std::byte> bytes() const noexcept { return mapping_.bytes(); }
  const Mapping& mapping() const noexcept { return mapping_; }
  // The registration on rail number `rail` (index into `rails`).
  fabric::Registration* registration(std::size_t rail) const noexcept {
    return registrations_[rail].get();
  }
  std::size_t rails() const noexcept { return registrations_.size(); }

 private:
  Segment(Mapping mapping, PinnedBudget::Reservation reservation)
      : mapping_(std::move(mapping)), reservation_(std::move(reservation)) {}
  Mapping mapping_;
  PinnedBudget::Reservation reservation_;
  std::vector<std::unique_ptr<fabric::Registration>> registrations_;  // last: closes first
};

}  // namespace farlift::memory
