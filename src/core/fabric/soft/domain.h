// The soft provider's Domain: options, registry, counters and identity, shared by its endpoints.
//
// Threads: any; everything here is immutable or locks itself. Errors: as core/fabric/fabric.h.
#pragma once

#include "core/fabric/fabric.h"
#include "core/fabric/soft/address.h"
#include "core/fabric/soft/registry.h"
#include "core/fabric/soft/soft.h"
#include "core/fabric/soft/soft_wire.h"

#include <atomic>
#include <memory>

namespace farlift::fabric::soft {

class Counter {
 public:
  void add(std::uint64_t n = 1) noexcept { value_.fetch_add(n, std::memory_order_relaxed); }
  std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

// The live form of SoftStats, same names.
struct Counters {
  Counter links_accepted, links_refused, links_foreign, links_silent, links_broken,
      operations_served, operations_refused, bytes_landed, bytes_sent, pulls_failed,
      links_connected, links_lost, connect_failures, abort_limits, host_links, host_lane_refusals,
      writes_remote, writes_host, reads_remote, reads_host, posts_deferred, bytes_mapped;
};

class SoftDomain final : public Domain {
 public:
  SoftDomain(const SoftOptions& options, const Clock& clock, const SocketAddress& listen,
             std::unique_ptr<Registry> registry);

  const DomainInfo& info() const noexcept override { return info_; }
  Result<std::unique_ptr<Registration>> register_memory(const MemoryRef& memory,
                                                        Access access) override;
  Result<std::unique_ptr<TargetEndpoint>> open_target(const TargetOptions& options) override;
  Result<std::unique_ptr<Initiator>> open_initiator(const InitiatorOptions& options) override;
  Status admit_peer(const Address& peer) override;
  void release_peer(const Address&) override {}

  // What add_peer and admit_peer share: decodes and applies the address rules.
  Result<SocketAddress> peer_address(const Address& peer, bool target_rules) const;

  const SoftOptions& options() const noexcept { return options_; }
  const Clock& clock() const noexcept { return clock_; }
  const SocketAddress& listen_address() const noexcept { return listen_; }
  Registry& registry() noexcept { return *registry_; }
  const Registry& registry() const noexcept { return *registry_; }
  Counters& counters() noexcept { return counters_; }
  const Counters& counters() const noexcept { return counters_; }
  const Token16& boot() const noexcept { return boot_id_; }
  bool same_host(const Token16& boot) const noexcept {
    return boot == boot_id_ && boot_id_ != Token16{};
  }
  bool host_lane_possible() const noexcept { return options_.host_lane && boot_id_ != Token16{}; }

 private:
  const SoftOptions options_;
  const Clock& clock_;
  const SocketAddress listen_;
  const Token16 boot_id_;
  const std::unique_ptr<Registry> registry_;
  DomainInfo info_;
  Counters counters_;
};

}  // namespace farlift::fabric::soft
