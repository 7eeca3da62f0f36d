// Core: what the parts of a client share (reader, writer, remover, groups). Nothing here acts by
// itself.
//
// Threads: the loop's. Errors: none.
#pragma once

#include "kvcache/client/client.h"
#include "kvcache/client/counters.h"
#include "kvcache/client/descriptor_cache.h"
#include "kvcache/client/landing.h"
#include "kvcache/client/links.h"
#include "kvcache/client/resolver.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <utility>

namespace farlift::kv::client {

using OpId = std::uint64_t;

struct Core {
  const Environment& environment;
  const ClientOptions& options;
  Keyring& keys;
  const Domains& domains;
  HeaderPool& headers;
  Counters& counters;
  DescriptorCache& cache;
  Links& links;
  Resolver& resolver;
  ClientId client_id{};
  std::deque<std::function<void()>> reports{};  // callbacks of the caller, run at the end of step()

  Instant now() const noexcept { return environment.clock.now(); }
  void report(std::function<void()> call) { reports.push_back(std::move(call)); }
  // An operation ends by then, whatever happens (spec kv 9, "total time").
  Instant deadline() const noexcept {
    return now() + 2 * options.operation_limit + options.control_timeout;
  }
};

// Deadlines of operations, soonest first.
class Timers {
 public:
  void set(OpId id, Instant& current, Instant due) {
    due_.erase({current, id});
    current = due;
    due_.insert({due, id});
  }
  void drop(OpId id, Instant current) { due_.erase({current, id}); }
  Instant next() const noexcept { return due_.empty() ? Instant::max() : due_.begin()->first; }
  // The soonest that is due by `now`; 0: none.
  OpId due(Instant now) const noexcept {
    return due_.empty() || due_.begin()->first > now ? 0 : due_.begin()->second;
  }

 private:
  std::set<std::pair<Instant, OpId>> due_;
};

}  // namespace farlift::kv::client
