// Publisher: from a filled slot to its descriptor in the directory (spec kv 7, steps 4 to 6):
// seals, signs, publishes in the mode asked for, repairs what a dead descriptor blocks, keeps what
// may have been published.
//
// Invariants: P4: a slot is sealed, with its header written, before its descriptor leaves. P14: a
//             publish whose outcome is not known leaves the slot quarantined, never free. A slot
//             goes back to free after a definite refusal only.
// Threads:    one. Errors: in the PutReply; exactly one for each task, unless the node goes.
#pragma once

#include "kvcache/node/capability.h"
#include "kvcache/node/peers.h"
#include "kvcache/wire/frames.h"

#include <functional>
#include <memory>

namespace farlift::kv::node {

struct PublishTask {
  Tenant* tenant = nullptr;
  SlotRef slot;  // reserved, filled, nobody may write it
  Crc32c crc;
  PutMode mode = PutMode::if_absent;
  Version expected;
  std::function<void(PutReply)> done;
};

class Publisher {
 public:
  static constexpr int kTriesMax = 8;  // spec kv 7.6

  Publisher(Core& core, Peers& peers) : core_(core), peers_(peers) {}

  void start(PublishTask task);

  // The value under `location` is not the key's any more: quarantine it here, or tell its owner.
  void supersede(Tenant& tenant, ByteView key, ByteView descriptor);

 private:
  struct Try {
    PublishTask task;
    int tries = 0;
    PutMode mode = PutMode::if_absent;  // of this attempt: if_absent or if_version
    Version expected;
    Capability capability;
    bool sealed = false;
  };
  using TryPtr = std::shared_ptr<Try>;

  void attempt(const TryPtr& t, PutMode mode, Version expected, std::uint32_t rev);
  void answered(const TryPtr& t, const PublishReply& reply);
  void published(const TryPtr& t, const PublishReply& reply);
  void refused(const TryPtr& t, const PublishReply& reply);
  void replace(const TryPtr& t, const Bytes& current);
  void look_at_blocker(const TryPtr& t, const Bytes& current);
  void judge_blocker(const TryPtr& t, const Pair& pair);
  void repair(const TryPtr& t, const Bytes& dead);
  void clear_away(const TryPtr& t, const Bytes& dead);
  void outcome_unknown(const TryPtr& t);
  void end(const TryPtr& t, Outcome outcome, Version version = {});
  bool dead_here(const Location& location) const;

  Core& core_;
  Peers& peers_;
};

}  // namespace farlift::kv::node
