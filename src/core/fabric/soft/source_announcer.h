// SourceAnnouncer: what an initiator told the target of one link about its own memory (source.h).
//
// Invariants: a registration is announced before the first pull from it that says so, and taken
//             back once it is gone, with one of the next pulls: a few words, in the order of the
//             link, so the target never takes one memory for another.
// Threads:    the Initiator's. Errors: none.
#pragma once

#include "core/fabric/soft/registry.h"
#include "core/fabric/soft/soft_wire.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace farlift::fabric::soft {

class SourceAnnouncer {
 public:
  // One announcement and one that takes another back.
  static constexpr std::size_t kBytesMax = 2 * kRequestBytes;
  static constexpr std::size_t kSourcesMax = 256;

  // True: the target may copy `local` of `record` from its own view of the file, once it has the
  // first `size` bytes of `out`, which go before the pull. Sets `size` in either case.
  bool prepare(const std::shared_ptr<Registry::Record>& record, std::span<const std::byte> local,
               std::span<std::byte, kBytesMax> out, std::size_t& size);

 private:
  struct Told {
    std::weak_ptr<const Registry::Record> record;
    std::uint64_t serial = 0;
    std::uint64_t va = 0;
  };
  void take_back_one(std::span<std::byte, kBytesMax> out, std::size_t& size);

  std::vector<Told> told_;
  std::size_t looked_at_ = 0;  // where the search for a registration that is gone goes on
};

}  // namespace farlift::fabric::soft
