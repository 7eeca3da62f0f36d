#include "blob/module/info.h"

#include "blob/module/module.h"

#include <initializer_list>
#include <utility>

namespace farlift::blob {
namespace {

using Field = std::pair<const char*, std::uint64_t>;

void section(vk::InfoCtx* info, const char* name, std::initializer_list<Field> fields) {
  if (vk::InfoAddSection(info, name) != vk::kOk) return;  // not asked for
  for (const auto& [field, value] : fields) vk::InfoAddFieldULongLong(info, field, value);
}

void dram_section(vk::InfoCtx* info) {
  Module& m = module();
  m.store().settle();  // what was freed a moment ago is no longer in use
  const Counters& c = m.counters();
  const store::PoolStats s = m.store().stats();
  const std::uint64_t capacity = s.capacity.raw();
  const auto victim = m.store().draining();
  section(info, "dram",
          {{"num_objects", m.store().live()},
           {"dram_objects", m.store().live()},
           {"dram_segments", s.segments},
           {"dram_draining_segments", s.draining_segments},
           {"dram_allocated_bytes", s.allocated.raw()},
           {"dram_capacity_bytes", capacity},
           {"dram_utilization_pct", capacity == 0 ? 0 : s.allocated.raw() * 100 / capacity},
           {"dram_hits", c.dram_hits.get()},
           {"dram_misses", c.dram_misses.get()},
           {"promotions", 0},
           {"dram_scaling_expands", s.expands},
           {"dram_scaling_shrinks", s.shrinks},
           {"reclaims", c.reclaims.get()},
           {"pending_reclaims", victim ? m.store().live_in(*victim) : 0},
           {"dram_segment_size_bytes", m.store().segment_size().raw()},
           {"rdma_registered_segments", m.services().available() ? s.segments : 0}});
}

void rdma_section(vk::InfoCtx* info) {
  Module& m = module();
  const Counters& c = m.counters();
  section(info, "rdma",
          {{"rdma_sessions", m.sessions().size()},
           {"rdma_reads", c.rdma_reads.get()},
           {"rdma_read_bytes", c.rdma_read_bytes.get()},
           {"rdma_read_usec", c.rdma_read_usec.get()},
           {"rdma_writes", c.rdma_writes.get()},
           {"rdma_write_bytes", c.rdma_write_bytes.get()},
           {"rdma_write_usec", c.rdma_write_usec.get()},
           {"rdma_services", m.services().size()},
           {"rdma_fallback_bindings", c.rdma_fallback_bindings.get()},
           {"rdma_cancelled", c.rdma_cancelled.get()},
           {"rdma_not_quiet", c.rdma_not_quiet.get()}});
  vk::InfoAddFieldCString(info, "rdma_provider", m.services().provider_names().c_str());
}

void error_section(vk::InfoCtx* info) {
  const Counters& c = module().counters();
  section(info, "error_metrics",
          {{"rdma_read_errors", c.rdma_read_errors.get()},
           {"rdma_write_errors", c.rdma_write_errors.get()},
           {"rdma_crc_mismatches", c.rdma_crc_mismatches.get()},
           {"disk_read_errors", 0},
           {"disk_write_errors", 0},
           {"dram_pool_exhausted", c.dram_pool_exhausted.get()},
           {"disk_staging_buffer_exhausted", 0},
           {"disk_capacity_exceeded", 0},
           {"set_finalize_stale", c.set_finalize_stale.get()},
           {"set_value_failures", c.set_value_failures.get()}});
}

}  // namespace

void write_info(vk::InfoCtx* info, int for_crash_report) noexcept {
  if (for_crash_report == 0) {
    dram_section(info);
    rdma_section(info);
  }
  error_section(info);
}

}  // namespace farlift::blob
