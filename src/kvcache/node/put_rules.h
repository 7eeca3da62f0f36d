// What both ways of putting have in common: what is refused before anything is done, and how
// outcomes are counted.
//
// Threads: one. Errors: none.
#pragma once

#include "kvcache/node/core.h"
#include "kvcache/wire/types.h"

namespace farlift::kv::node {

// ok, or why a put of this key and length cannot begin.
inline Outcome refuse_put(const Core& core, ByteView key, Length length) {
  if (!valid_key(key)) return Outcome::bad_arg;
  if (length > Slots::value_max(core.options.arena_size)) return Outcome::too_large;
  if (core.draining) return Outcome::full;
  if (!core.directory_up) return Outcome::control_down;  // spec kv 10: refuse puts
  return Outcome::ok;
}

inline void count_outcome(Core& core, Outcome outcome) {
  switch (outcome) {
    case Outcome::ok:
      return core.counters.add(Count::puts_ok);
    case Outcome::exists:
      return core.counters.add(Count::puts_exists);
    case Outcome::conflict:
      return core.counters.add(Count::puts_conflict);
    case Outcome::full:
      return core.counters.add(Count::puts_full);
    case Outcome::bad_crc:
      return core.counters.add(Count::puts_bad_crc);
    case Outcome::timeout:
      return core.counters.add(Count::puts_timeout);
    case Outcome::control_down:
      return core.counters.add(Count::puts_control_down);
    default:
      return core.counters.add(Count::puts_failed);
  }
}

}  // namespace farlift::kv::node
