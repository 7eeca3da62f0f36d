#include "core/memory/segment.h"

#include <utility>

namespace farlift::memory {

Result<std::unique_ptr<Segment>> Segment::create(std::span<fabric::Domain* const> rails,
                                                 Length length, fabric::Access access,
                                                 PinnedBudget& budget,
                                                 const MappingOptions& options) {
  TRY_ASSIGN(Mapping mapping, Mapping::create(length, options));
  // The kernel charges every registration of the same pages, so each rail counts.
  const std::uint64_t bytes = mapping.bytes().size();
  if (!rails.empty() && bytes > UINT64_MAX / rails.size())
    return Error::make(Errc::exhausted, "pinned-byte budget");
  TRY_ASSIGN(PinnedBudget::Reservation reservation, budget.reserve(Length(bytes * rails.size())));
  std::unique_ptr<Segment> segment(new Segment(std::move(mapping), std::move(reservation)));
  segment->registrations_.reserve(rails.size());
  for (fabric::Domain* const rail : rails) {
    const fabric::MemoryRef memory{segment->bytes(), segment->mapping().memfd(), 0};
    // On failure the segment goes, and with it the registrations made so far.
    TRY_ASSIGN(auto registration, rail->register_memory(memory, access));
    segment->registrations_.push_back(std::move(registration));
  }
  return segment;
}

}  // namespace farlift::memory
