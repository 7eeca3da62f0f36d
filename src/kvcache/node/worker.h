// Worker: hashes and copies values beside the loop. What is small, and everything where there are
// no threads (simulations), is done at once; its end is told by step() all the same.
//
// Invariants: done() runs on the loop's thread, from step(), exactly once, unless the Worker is
//             destroyed before: then the work is over and done() never runs. The memory belongs to
//             the caller and stays until then.
// Threads:    submitting and step(): one. Errors: none.
#pragma once

#include "core/base/mutex.h"
#include "core/base/types.h"
#include "core/base/unique_fd.h"
#include "core/transfer/crc_pool.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace farlift::kv::node {

class Worker {
 public:
  using Done = std::function<void(Crc32c)>;

  explicit Worker(std::uint32_t threads);
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  void hash(std::span<const std::byte> bytes, Done done);
  // The CRC is that of the bytes as they stand in `to`.
  void copy(std::span<std::byte> to, std::span<const std::byte> from, Done done);

  bool step();
  int wait_fd() const noexcept { return event_.get(); }
  transfer::CrcPool* pool() noexcept { return pool_.get(); }  // null: no threads

 private:
  struct Finished {
    Crc32c crc;
    Done done;
  };
  void run(std::function<Crc32c()> work, std::size_t bytes, Done done);
  void finish(Crc32c crc, Done done);

  UniqueFd event_;
  Mutex mutex_;
  std::vector<Finished> finished_ GUARDED_BY(mutex_);
  std::unique_ptr<transfer::CrcPool> pool_;  // last: joins first
};

}  // namespace farlift::kv::node
