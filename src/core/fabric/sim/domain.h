// The fabric interface over SimNetwork::State.
//
// Threads and errors: as core/fabric/sim/sim.h.
#pragma once

#include "core/fabric/sim/network.h"

#include <map>
#include <string>
#include <vector>

namespace farlift::fabric::sim {

class SimRegistration final : public Registration {
 public:
  SimRegistration(SimNetwork::State& state, std::shared_ptr<Region> region)
      : state_(state), region_(std::move(region)) {}
  ~SimRegistration() override { close().ignore(); }

  RKey key() const noexcept override { return region_->key; }
  RemoteAddr addr() const noexcept override { return region_->addr; }
  Length length() const noexcept override { return Length(region_->bytes.size()); }
  Access access() const noexcept override { return region_->access; }
  Status close() override {
    MutexLock lock(state_.mutex);
    state_.close_region(*region_);
    return {};
  }

 private:
  SimNetwork::State& state_;
  const std::shared_ptr<Region> region_;
};

class SimTarget final : public TargetEndpoint {
 public:
  SimTarget(SimNetwork::State& state, std::shared_ptr<Listener> listener)
      : state_(state), listener_(std::move(listener)) {}
  ~SimTarget() override { close().ignore(); }

  const Address& address() const noexcept override { return listener_->address; }
  Result<bool> progress(int timeout_ms, int fd) override;
  Status add_peer(const Address& peer) override;
  Status close() override {
    MutexLock lock(state_.mutex);
    state_.close_listener(*listener_);
    return {};
  }

 private:
  SimNetwork::State& state_;
  const std::shared_ptr<Listener> listener_;
};

class SimInitiator final : public Initiator {
 public:
  SimInitiator(SimNetwork::State& state, const Address& address, const InitiatorOptions& options,
               std::size_t& ready_of_owner);
  ~SimInitiator() override { close(); }

  const Address& address() const noexcept override { return address_; }
  Result<PeerId> add_peer(const Address& peer) override;
  void remove_peer(PeerId peer) override;
  Status post(const Operation& operation) override;
  void abort(PeerId peer) override;
  std::size_t poll(std::span<Completion> out) override;
  void wait(int timeout_ms) override;
  void wake() noexcept override {
    MutexLock lock(state_.mutex);
    mailbox_->woken = true;
  }
  int wait_fd() const noexcept override { return -1; }
  std::size_t in_flight() const noexcept override {
    MutexLock lock(state_.mutex);
    return mailbox_->in_flight;
  }
  void close() override;

 private:
  struct Peer {
    Address address;
    std::uint32_t references = 0;
  };
  Peer* find(PeerId peer) noexcept;

  SimNetwork::State& state_;
  const Address address_;
  const Duration connect_deadline_;
  const std::size_t in_flight_max_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();
  std::vector<Peer> peers_;
};

class SimDomain final : public Domain {
 public:
  SimDomain(SimNetwork::State& state, std::string name);

  const DomainInfo& info() const noexcept override { return info_; }
  Result<std::unique_ptr<Registration>> register_memory(const MemoryRef& memory,
                                                        Access access) override;
  Result<std::unique_ptr<TargetEndpoint>> open_target(const TargetOptions& options) override;
  Result<std::unique_ptr<Initiator>> open_initiator(const InitiatorOptions& options) override;
  Status admit_peer(const Address& peer) override;
  void release_peer(const Address& /*peer*/) override {}

 private:
  static std::uint32_t enter(SimNetwork::State& state);

  SimNetwork::State& state_;
  const std::uint32_t number_;
  DomainInfo info_;
};

}  // namespace farlift::fabric::sim
