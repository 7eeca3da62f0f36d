// KvCore: what the copies of a KvClient and its registrations share.
//
// Threads: any. Ownership: the loop, and with it the client, goes before what it stands on. In a
// forked child, where locks may be held for ever and no thread of the parent's lives, all of it is
// left alone.
#pragma once

#include "kvcache/client/api/loop.h"
#include "kvcache/client/api/setup.h"

#include <memory>
#include <sys/types.h>
#include <unistd.h>

namespace farlift::kv::client {

class KvCore {
 public:
  KvCore() = default;
  KvCore(const KvCore&) = delete;
  KvCore& operator=(const KvCore&) = delete;
  ~KvCore() {
    if (owned()) return;
    (void)loop.release();
    (void)setup.release();
  }
  bool owned() const noexcept { return owner == ::getpid(); }

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
    if (core_->owned()) {
      core_->loop->exclude([this] { memory_.reset(); });
    } else {
      (void)memory_.release();
    }
  }
  std::span<std::byte> bytes() const noexcept { return memory_->bytes(); }

 private:
  const std::shared_ptr<KvCore> core_;
  std::unique_ptr<LandingMemory> memory_;
};

}  // namespace farlift::kv::client
