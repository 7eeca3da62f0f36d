// OfiDomain: one libfabric domain with its shared address vector; makes registrations, target
// endpoints and initiators.
//
// Invariants: addressing and key policy follow the granted mr_mode. Closed in the order endpoints,
//             queues, address vector, domain, fabric (members are declared in reverse).
// Threads:    any. Errors: as core/fabric/fabric.h.
#pragma once

#include "core/base/mutex.h"
#include "core/fabric/ofi/library.h"
#include "core/fabric/ofi/target_progress.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace farlift::fabric::ofi {

struct CompletionQueue {
  UniqueFid<fid_cq> queue;
  bool blocks = false;   // fi_cq_sread and fi_cq_signal work
  int progress_fd = -1;  // libfabric's: readable when reading the queue may make progress (tcp)
};

// What the operations to one peer go through. On tcp that is a whole libfabric domain with its own
// queue, so that nothing that goes wrong on one connection reaches another; on verbs it is an
// endpoint on the initiator's queue, and the rest is empty. Members close in reverse.
struct Link {
  UniqueFid<fid_domain> domain;
  UniqueFid<fid_av> address_vector;
  CompletionQueue queue;
  fi_addr_t fi_addr = FI_ADDR_UNSPEC;
  UniqueFid<fid_ep> endpoint;
};

class OfiDomain final : public Domain {
 public:
  static Result<std::unique_ptr<OfiDomain>> open(std::shared_ptr<const Library> library,
                                                 UniqueInfo info, Provider provider,
                                                 const Clock& clock);
  ~OfiDomain() override;

  const DomainInfo& info() const noexcept override { return description_; }
  Result<std::unique_ptr<Registration>> register_memory(const MemoryRef& memory,
                                                        Access access) override;
  Result<std::unique_ptr<TargetEndpoint>> open_target(const TargetOptions& options) override;
  Result<std::unique_ptr<Initiator>> open_initiator(const InitiatorOptions& options) override;
  Status admit_peer(const Address& peer) override;
  void release_peer(const Address& peer) override;

  // For the endpoints of this folder.
  Provider provider() const noexcept { return provider_; }
  const Clock& clock() const noexcept { return clock_; }
  bool endpoint_per_peer() const noexcept { return provider_ != Provider::efa; }
  bool domain_per_peer() const noexcept { return provider_ == Provider::tcp; }
  Result<UniqueInfo> endpoint_info(const TargetOptions& options) const;
  Result<UniqueFid<fid_ep>> open_endpoint(fi_info* info, fid_cq* queue) const {
    return open_endpoint(domain_.get(), address_vector_.get(), info, queue);
  }
  Result<CompletionQueue> open_queue(std::size_t entries) const {
    return open_queue(domain_.get(), entries);
  }
  // A domain of its own, with `peer` in its address vector; the endpoint listens, see
  // listener_guard.h.
  Result<std::unique_ptr<Link>> open_link(const Address& peer, std::size_t entries) const;
  Result<Address> canonical(const Address& peer) const;  // what admit_peer() checks
  struct Admitted {
    Address address;
    fi_addr_t fi_addr = FI_ADDR_UNSPEC;
  };
  Result<Admitted> admit(const Address& peer);
  // Runs what adds or removes a registration. libfabric's tcp takes another lock there than where
  // it looks a key up for a peer (1.17 to 1.18, issue 9148 of libfabric): the tree of keys may be
  // walked while it changes. So no queue of ours is read meanwhile.
  void change_registrations(const std::function<void()>& work) const;
  void release(const Address& canonical_address);

 private:
  struct Peer {
    fi_addr_t fi_addr = FI_ADDR_UNSPEC;
    std::uint32_t references = 0;
  };

  OfiDomain(std::shared_ptr<const Library> library, UniqueInfo info, Provider provider,
            const Clock& clock)
      : library_(std::move(library)), provider_(provider), clock_(clock), info_(std::move(info)) {}
  Status open_objects();
  Status open_domain(UniqueFid<fid_domain>& domain, UniqueFid<fid_av>& address_vector) const;
  Result<CompletionQueue> open_queue(fid_domain* domain, std::size_t entries) const;
  Result<UniqueFid<fid_ep>> open_endpoint(fid_domain* domain, fid_av* address_vector, fi_info* info,
                                          fid_cq* queue) const;
  void describe();
  Result<fid_mr*> register_under_random_key(const MemoryRef& memory, std::uint64_t access) const;
  Result<TargetProgress*> target_progress();

  const std::shared_ptr<const Library> library_;
  const Provider provider_;
  const Clock& clock_;
  UniqueInfo info_;
  DomainInfo description_;
  UniqueFid<fid_fabric> fabric_;
  UniqueFid<fid_domain> domain_;
  UniqueFid<fid_av> address_vector_;
  mutable Mutex mutex_;
  std::map<std::string, Peer> peers_ GUARDED_BY(mutex_);
  std::unique_ptr<TargetProgress> progress_ GUARDED_BY(mutex_);
};

Result<Address> endpoint_name(fid_ep* endpoint);

}  // namespace farlift::fabric::ofi
