// Counters: what INFO largeobj shows of the past (spec blob 9). They only grow.
//
// Threads: any; each is one relaxed atomic. Errors: none.
#pragma once

#include <atomic>
#include <cstdint>

namespace farlift::blob {

class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

struct Counters {
  // The server's view: a SET reads from the client, a GET writes to it. Operations count failures
  // too, bytes do not.
  Counter rdma_reads, rdma_read_bytes, rdma_read_usec;
  Counter rdma_writes, rdma_write_bytes, rdma_write_usec;
  // Once per failed command.
  Counter rdma_read_errors, rdma_write_errors, rdma_crc_mismatches;
  Counter dram_hits, dram_misses, dram_pool_exhausted;
  Counter set_finalize_stale, set_value_failures;
  Counter reclaims;
  // Ours: replies withheld because the fabric could not promise that it is quiet, and transfers
  // whose client went away.
  Counter rdma_not_quiet, rdma_cancelled;
  // Ours, fabric-provider Auto: bindings that turned out to speak libfabric's tcp.
  Counter rdma_fallback_bindings;
};

}  // namespace farlift::blob
