// Core: what the parts of a node share: the environment, the options in force, memory, timers and
// counters. The parts (sessions, puts, rotation, ...) refer to it and to each other by reference.
//
// Invariants: callbacks given to the directory, the engines, the worker and the timers are wrapped
//             by guarded(): once the node goes they do nothing. Arenas live until the Core goes.
// Threads:    one.
#pragma once

#include "core/memory/budget.h"
#include "kvcache/control/environment.h"
#include "kvcache/node/arena.h"
#include "kvcache/node/counters.h"
#include "kvcache/node/node.h"
#include "kvcache/node/tenant.h"
#include "kvcache/node/timers.h"
#include "kvcache/node/worker.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace farlift::kv::node {

class Core {
 public:
  Core(const Environment& environment, NodeOptions options);
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;
  ~Core();

  const Environment environment;
  NodeOptions options;  // arena_size: what the rails took
  const Incarnation incarnation;
  fabric::FenceMode fence_mode = fabric::FenceMode::mr;  // the weakest of the rails
  bool virtual_address = false;
  Length read_max;
  memory::PinnedBudget budget;
  std::vector<KeySet> retired;  // a rail: every key an arena ever had
  Counters counters;
  Timers timers;
  std::unique_ptr<Worker> worker;
  // Brings the pages of new arenas in, so that puts do not wait for the kernel to clear them; null
  // where there are no threads.
  std::unique_ptr<transfer::CrcPool> toucher;
  std::vector<std::unique_ptr<Tenant>> tenants;
  std::vector<std::unique_ptr<Arena>> arenas;  // id n at n - 1
  bool draining = false;
  bool directory_up = false;
  bool room_came = false;  // an arena is writable again: the record shall say so soon

  void populate_later(Arena& arena);

  Instant now() const noexcept { return environment.clock.now(); }
  Directory& directory() const noexcept { return environment.directory; }
  Arena* arena(ArenaId id) noexcept {
    return id.raw() >= 1 && id.raw() <= arenas.size() ? arenas[id.raw() - 1].get() : nullptr;
  }
  Tenant* tenant(std::string_view name) noexcept;
  std::uint64_t random_u64() const;
  std::uint32_t next_uid() noexcept { return uid_++; }

  // The slot a location names, when it is of this incarnation and not free.
  SlotRef find(const Location& location) noexcept;
  Location locate(const SlotRef& ref) const noexcept {
    return ref.arena->location(options.id, incarnation, ref.index);
  }

  // What the directory's answers say about it; puts are refused while it is away (spec kv 10).
  void directory_answered(bool reached);
  std::function<void()> on_directory_back;

#ifdef FARLIFT_PLANTED_BUGS
  bool planted(PlantedBug bug) const noexcept { return options.planted == bug; }
#else
  static constexpr bool planted(PlantedBug /*bug*/) noexcept { return false; }
#endif

  template <class Call>
  auto guarded(Call call) const {
    return
        [alive = std::weak_ptr<int>(alive_), call = std::move(call)](auto&&... arguments) mutable {
          if (!alive.expired()) call(std::forward<decltype(arguments)>(arguments)...);
        };
  }
  void after(Duration time, std::function<void()> call) {
    timers.at(now() + time, guarded(std::move(call)));
  }

 private:
  std::uint32_t uid_;
  std::atomic<bool> stopping_{false};
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

// True where an error means that the directory could not be reached.
bool directory_lost(const Error& error) noexcept;
// Bytes 49..56 of a descriptor, whatever the rest is; none() when there are no such bytes.
Version raw_version(ByteView descriptor) noexcept;

}  // namespace farlift::kv::node
