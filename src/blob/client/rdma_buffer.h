// BufferState: the memory behind an RdmaBuffer, shared by its copies and by regions made from it.
//
// Threads: immutable. Errors: none.
#pragma once

#include "core/memory/mapping.h"

#include <cstddef>

namespace farlift::client {

class BufferState {
 public:
  BufferState(memory::Mapping mapping_in, std::size_t length_in) noexcept
      : mapping(std::move(mapping_in)), length(length_in) {}
  const memory::Mapping mapping;
  const std::size_t length;  // as asked for; the mapping is rounded up to pages
};

}  // namespace farlift::client
