#include "kvcache/node/testing/stub_domain.h"

#include <utility>
#include <vector>

namespace farlift::kv::node::testing {
namespace {

class StubRegistration final : public fabric::Registration {
 public:
  StubRegistration(StubControl& stub, std::unique_ptr<fabric::Registration> inner, RKey key,
                   std::size_t rail, std::vector<std::unique_ptr<fabric::Registration>>& cached)
      : stub_(stub), inner_(std::move(inner)), key_(key), rail_(rail), cached_(cached) {}
  ~StubRegistration() override { (void)end(); }
  RKey key() const noexcept override { return key_; }
  RemoteAddr addr() const noexcept override { return addr_; }
  Length length() const noexcept override { return length_; }
  fabric::Access access() const noexcept override { return access_; }
  Status close() override {
    if (stub_.fail_close_on_rail == rail_) return Error::make(Errc::io, "stub close");
    return end();
  }

 private:
  Status end() {
    if (inner_ == nullptr) return {};
    stub_.registered -= length_;
    if (stub_.cache) {
      cached_.push_back(std::move(inner_));
      return {};
    }
    const Status closed = inner_->close();
    inner_.reset();
    return closed;
  }
  StubControl& stub_;
  std::unique_ptr<fabric::Registration> inner_;
  const RKey key_;
  const std::size_t rail_;
  std::vector<std::unique_ptr<fabric::Registration>>& cached_;
  const RemoteAddr addr_ = inner_->addr();
  const Length length_ = inner_->length();
  const fabric::Access access_ = inner_->access();
};

class StubTarget final : public fabric::TargetEndpoint {
 public:
  StubTarget(StubControl& stub, std::unique_ptr<fabric::TargetEndpoint> inner, std::size_t rail)
      : stub_(stub), inner_(std::move(inner)), rail_(rail) {}
  const fabric::Address& address() const noexcept override { return inner_->address(); }
  Result<bool> progress(int timeout_ms, int fd) override {
    return inner_->progress(timeout_ms, fd);
  }
  Status add_peer(const fabric::Address& peer) override {
    stub_.introduced.push_back(peer);
    return inner_->add_peer(peer);
  }
  Status close() override {
    if (stub_.fail_target_close_on_rail == rail_) return Error::make(Errc::io, "stub close");
    return inner_->close();
  }

 private:
  StubControl& stub_;
  std::unique_ptr<fabric::TargetEndpoint> inner_;
  const std::size_t rail_;
};

class StubDomain final : public fabric::Domain {
 public:
  StubDomain(StubControl& stub, std::unique_ptr<fabric::Domain> inner, std::size_t rail)
      : inner_(std::move(inner)), stub_(stub), rail_(rail) {}
  const fabric::DomainInfo& info() const noexcept override { return inner_->info(); }
  Result<std::unique_ptr<fabric::Registration>> register_memory(const fabric::MemoryRef& memory,
                                                                fabric::Access access) override {
    const Length length(memory.bytes.size());
    if (length > stub_.registration_max) return Error::make(Errc::no_memory, "stub: too long");
    if (length > stub_.room - stub_.registered) return Error::make(Errc::no_memory, "stub: room");
    if (stub_.cache) access = fabric::Access::remote_read_write;
    TRY_ASSIGN(auto made, inner_->register_memory(memory, access));
    RKey key = made->key();
    if (stub_.constant_key) {
      key = *stub_.constant_key;
    } else if (!stub_.next_keys.empty()) {
      key = stub_.next_keys.front();
      stub_.next_keys.pop_front();
    }
    stub_.registered += length;
    return std::unique_ptr<fabric::Registration>(
        std::make_unique<StubRegistration>(stub_, std::move(made), key, rail_, cached_));
  }
  Result<std::unique_ptr<fabric::TargetEndpoint>> open_target(
      const fabric::TargetOptions& options) override {
    if (stub_.fail_target_open_on_rail == rail_) return Error::make(Errc::busy, "stub open");
    TRY_ASSIGN(auto made, inner_->open_target(options));
    return std::unique_ptr<fabric::TargetEndpoint>(
        std::make_unique<StubTarget>(stub_, std::move(made), rail_));
  }
  Result<std::unique_ptr<fabric::Initiator>> open_initiator(
      const fabric::InitiatorOptions& options) override {
    return inner_->open_initiator(options);
  }
  Status admit_peer(const fabric::Address& peer) override { return inner_->admit_peer(peer); }
  void release_peer(const fabric::Address& peer) override { inner_->release_peer(peer); }

 private:
  std::unique_ptr<fabric::Domain> inner_;
  std::vector<std::unique_ptr<fabric::Registration>> cached_;  // before inner_
  StubControl& stub_;
  const std::size_t rail_;
};

}  // namespace

WrapDomain StubControl::wrap() {
  return [this](std::unique_ptr<fabric::Domain> domain, std::size_t rail) {
    return std::unique_ptr<fabric::Domain>(
        std::make_unique<StubDomain>(*this, std::move(domain), rail));
  };
}

}  // namespace farlift::kv::node::testing
