// Evictor: makes room for a write when the pool is full, may not grow, and maxmemory-policy is one
// that evicts. Without it a full pool below the shrink watermark would refuse writes for ever,
// since only whole segments leave by the Reclaimer.
//
// Victims are large objects, picked as the server picks its own: the best of reclaim-sample-size
// random keys by idle time, frequency, time to live or chance; volatile-* policies take keys with a
// time to live only.
//
// Invariants: the key being written is never a victim; at most kVictimsMax keys go for one write;
//             every victim fires "evicted", is told to replicas and counted in `reclaims`. Nothing
//             happens on a replica.
// Threads:    main. Errors: that of the last reservation.
#pragma once

#include "blob/module/api.h"
#include "blob/module/blob_store.h"
#include "core/store/pool.h"

#include <cstddef>
#include <optional>
#include <string_view>

namespace farlift::blob {

inline constexpr std::size_t kVictimsMax = 64;

// Reserves storage for `key`, evicting if need be and allowed. `ctx` is the command's.
Result<store::Draft> reserve_or_evict(vk::Ctx* ctx, std::string_view key, Length length);

}  // namespace farlift::blob
