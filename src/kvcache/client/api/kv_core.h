// KvCore: what the copies of a KvClient and its registrations share.
//
// Threads: any. Ownership: the loop, and with it the client, goes before what it stands on.
#pragma once

#include "kvcache/client/api/loop.h"
#include "kvcache/client/api/setup.h"

#include <memory>
#include <sys/types.h>

namespace farlift::kv::client {

class KvCore {
 public:
  KvOptions options;
  std::unique_ptr<Setup> setup;  // null in tests, which bring an environment of their own
  pid_t owner = 0;
  std::unique_ptr<Loop> loop;  // last: closes first
};

// A registration, dropped under the loop's mutex.
class KvRegistration {
 public:
  KvRegistration(std::shared_ptr<KvCore> core, std::unique_ptr<LandingMemory> memory)
      : core_(std::move(core)), memory_(std::move(memory)) {}
  KvRegistration(const KvRegistration&) = delete;
  KvRegistration& operator=(const KvRegistration&) = delete;
  ~KvRegistration() {
    core_->loop->exclude([this] { memory_.reset(); });
  }
  std::span<std::byte> bytes() const noexcept { return memory_->bytes(); }

 private:
  const std::shared_ptr<KvCore> core_;
  std::unique_ptr<LandingMemory> memory_;
};

}  // namespace farlift::kv::client
