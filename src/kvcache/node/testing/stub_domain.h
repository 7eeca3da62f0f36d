// A domain that misbehaves as a test asks: repeats keys, fails to close, has no room, keeps closed
// registrations alive or grants rights nobody asked for (a registration cache).
//
// Threads: one.
#pragma once

#include "core/fabric/fabric.h"
#include "kvcache/node/testing/world.h"

#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace farlift::kv::node::testing {

struct StubControl {
  std::deque<RKey> next_keys;        // reported by the next registrations
  std::optional<RKey> constant_key;  // by all of them
  std::optional<std::size_t> fail_close_on_rail;
  std::optional<std::size_t> fail_target_close_on_rail;
  std::optional<std::size_t> fail_target_open_on_rail;
  Length room{UINT64_MAX};              // what may be registered, in all
  Length registration_max{UINT64_MAX};  // in one piece
  bool cache = false;                   // closed registrations live on, writable
  Length registered;
  std::vector<fabric::Address> introduced;  // to targets, in order

  WrapDomain wrap();
};

}  // namespace farlift::kv::node::testing
