// Buffers: page-aligned memory that the fabric may map, kept for reuse because making it costs more
// than filling it.
//
// Invariants: a Buffer's memory is nobody else's until it is destroyed; idle memory is at most
//             kIdleMax together.
// Threads:    any. Errors: no_memory.
#pragma once

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/memory/mapping.h"

#include <cstddef>
#include <map>
#include <memory>
#include <span>

namespace farlift::s3::volume {

class Buffers;

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&&) noexcept = default;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  std::span<std::byte> bytes() const noexcept { return mapping_->bytes().first(length_); }
  int memfd() const noexcept { return mapping_->memfd(); }

 private:
  friend class Buffers;
  std::shared_ptr<Buffers> home_;
  std::unique_ptr<memory::Mapping> mapping_;
  std::size_t length_ = 0;
};

class Buffers : public std::enable_shared_from_this<Buffers> {
 public:
  static constexpr std::size_t kIdleMax = 64u << 20;

  Result<Buffer> take(Length length);
  std::size_t idle_bytes() const;

 private:
  friend class Buffer;
  void give_back(std::unique_ptr<memory::Mapping> mapping);
  mutable Mutex mutex_;
  std::multimap<std::size_t, std::unique_ptr<memory::Mapping>> idle_ GUARDED_BY(mutex_);
  std::size_t idle_bytes_ GUARDED_BY(mutex_) = 0;
};

}  // namespace farlift::s3::volume
