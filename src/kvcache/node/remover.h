// Remover: what makes a published value disappear from the directory: DELETE, SUPERSEDED,
// STALE_SEEN (spec kv 5, 8.1, 9.4).
//
// Invariants: P11: beside explicit deletes only descriptors that name this node are removed, and by
//             their location. A slot whose key was removed is quarantined: memory, registration and
//             keys stay as they are until the rotation.
// Threads:    one. Errors: outcomes of spec kv 9; control_down where the outcome is not known.
#pragma once

#include "kvcache/node/core.h"
#include "kvcache/wire/frames.h"

#include <functional>
#include <memory>

namespace farlift::kv::node {

class Remover {
 public:
  static constexpr int kTriesMax = 8;
  using Reply = std::function<void(Outcome)>;

  explicit Remover(Core& core) : core_(core) {}

  void remove(Tenant& tenant, RemoveRequest request, Reply reply);
  // Acts only on what the directory shows too.
  void superseded(Tenant& tenant, const SupersededRequest& request, const Reply& reply);
  void stale_seen(Tenant& tenant, const StaleSeenRequest& request, const Reply& reply);

 private:
  struct Removal {
    Tenant* tenant = nullptr;
    RemoveRequest request;
    Reply reply;
    int tries = 0;
  };
  using RemovalPtr = std::shared_ptr<Removal>;
  void look(const RemovalPtr& removal);
  void unpublish(const RemovalPtr& removal, const Bytes& descriptor);
  void answered(const RemovalPtr& removal, const SlotRef& slot, const UnpublishReply& reply);

  Core& core_;
};

}  // namespace farlift::kv::node
