// Whether a cache takes puts yet: its node has announced itself and its tenant has an arena.
//
// Threads: any. Errors: false after 20 s.
#pragma once

#include <farlift/kv.h>

#include <array>
#include <chrono>
#include <thread>

namespace farlift::kv::testing {

// Leaves the one byte 0 under the key "ready".
inline bool takes_puts(KvClient& client) {
  constexpr std::array<std::byte, 1> kValue{};
  for (int i = 0; i < 1000; ++i) {
    if (client.put("ready", kValue, KvPutMode::replace).ok()) return true;
    // tidy: allow sleep the node announces itself meanwhile
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

}  // namespace farlift::kv::testing
