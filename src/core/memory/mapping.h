// Mapping: page-aligned memory of our own, backed by a memfd and mapped shared, so that a forked
// child sees the same frames and can map them again by descriptor (spec blob 9, fork hazard).
//
// Invariants: zero-filled when made; at least the asked length, rounded up to pages; pages appear
//             when first touched, so making a large mapping is cheap; the memfd is sealed against
//             resizing. Threads: immutable after create().
// Errors: no_memory; invalid_argument for length 0.
#pragma once

#include "core/base/result.h"
#include "core/base/types.h"
#include "core/base/unique_fd.h"

#include <cstddef>
#include <span>

namespace farlift::memory {

struct MappingOptions {
  bool huge_pages = true;  // try 2 MiB pages first where the host has free ones
  int numa_node = -1;      // preferred node, -1: none
  const char* name = "farlift";
};

class Mapping {
 public:
  static Result<Mapping> create(Length length, const MappingOptions& options);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::span<std::byte> bytes() const noexcept { return bytes_; }
  int memfd() const noexcept { return memfd_.get(); }
  bool huge_pages() const noexcept { return huge_pages_; }

 private:
  Mapping() = default;
  UniqueFd memfd_;
  std::span<std::byte> bytes_;
  bool huge_pages_ = false;
};

// Makes pages of a mapping present without changing a byte of them, so that whoever writes them
// first does not have to wait. From any thread; nothing happens where the kernel cannot do it.
void populate(std::span<std::byte> bytes) noexcept;

}  // namespace farlift::memory
