// Grants: puts by ALLOC, a one-sided write of the client, and SEAL (spec kv 7, 2b). Only where
// every rail's fence mode is mr.
//
// Invariants: P3: a grant is a registration of exactly the payload of one reserved slot, under keys
//             never granted in that arena before. It is closed on every rail before the bytes are
//             looked at, and before the slot goes anywhere else. One that cannot be closed dooms
//             its arena: nothing is allocated there again, and the rotation ends as lost.
// Threads:    one. Errors: outcomes of spec kv 9 in the reply.
#pragma once

#include "kvcache/node/outcomes.h"
#include "kvcache/node/publisher.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace farlift::kv::node {

class Grants {
 public:
  Grants(Core& core, Publisher& publisher, Outcomes& outcomes)
      : core_(core), publisher_(publisher), outcomes_(outcomes) {}

  AllocReply alloc(Tenant& tenant, const AllocRequest& request);
  void seal(Tenant& tenant, const SealRequest& request, const Outcomes::Reply& reply);
  Outcome abort(Tenant& tenant, const AbortRequest& request);
  std::size_t live() const noexcept { return grants_.size(); }
  void close_all();  // the node goes

 private:
  struct Grant {
    Tenant* tenant = nullptr;
    PutId put_id{};
    SlotRef slot;
    std::uint32_t ms = 0;
    std::vector<std::unique_ptr<fabric::Registration>> registrations;
  };
  using PutKey = std::pair<std::string, PutId>;
  using GrantMap = std::map<std::uint64_t, Grant>;

  AllocReply reply_for(std::uint64_t slot_id, const Grant& grant) const;
  bool close(Grant& grant);
  void give_back(GrantMap::iterator at);
  void check(const SlotRef& slot, Tenant& tenant, const SealRequest& request);
  void publish(const SlotRef& slot, Tenant& tenant, const SealRequest& request, Crc32c crc);
  void finish(Tenant& tenant, const PutId& id, const PutReply& reply);
#ifdef FARLIFT_PLANTED_BUGS
  void check_before_close(const std::shared_ptr<Grant>& grant, Tenant& tenant,
                          const SealRequest& request);
#endif

  Core& core_;
  Publisher& publisher_;
  Outcomes& outcomes_;
  GrantMap grants_;  // by slot_id
  std::map<PutKey, std::uint64_t> by_put_;
  std::uint64_t next_id_ = 1;
};

}  // namespace farlift::kv::node
