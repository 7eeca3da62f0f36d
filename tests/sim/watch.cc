#include "tests/sim/watch.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::simulation {
namespace {

class WatchedRegistration final : public fabric::Registration {
 public:
  WatchedRegistration(std::unique_ptr<fabric::Registration> inner, Registry& registry, Held held,
                      bool may_fail)
      : inner_(std::move(inner)),
        registry_(registry),
        at_(registry.open.insert(registry.open.end(), std::move(held))),
        may_fail_(may_fail) {}
  ~WatchedRegistration() override { end(); }
  RKey key() const noexcept override { return inner_->key(); }
  RemoteAddr addr() const noexcept override { return inner_->addr(); }
  Length length() const noexcept override { return inner_->length(); }
  fabric::Access access() const noexcept override { return inner_->access(); }
  Status close() override {
    if (ended_) return {};
    if (may_fail_ && registry_.prng.chance(registry_.close_fails, 1000)) {
      at_->close_failed = true;
      return Error::make(Errc::io, "close of a registration");
    }
    const Status closed = inner_->close();
    if (closed.ok()) end();
    return closed;
  }

 private:
  void end() {
    if (!std::exchange(ended_, true)) registry_.open.erase(at_);
  }
  std::unique_ptr<fabric::Registration> inner_;
  Registry& registry_;
  std::list<Held>::iterator at_;
  const bool may_fail_;
  bool ended_ = false;
};

class WatchedTarget final : public fabric::TargetEndpoint {
 public:
  WatchedTarget(std::unique_ptr<fabric::TargetEndpoint> inner, Registry::Owner& owner)
      : inner_(std::move(inner)), owner_(owner) {}
  ~WatchedTarget() override { owner_.open = false; }
  const fabric::Address& address() const noexcept override { return inner_->address(); }
  Result<bool> progress(int timeout_ms, int fd) override {
    return inner_->progress(timeout_ms, fd);
  }
  Status add_peer(const fabric::Address& peer) override { return inner_->add_peer(peer); }
  Status close() override {
    owner_.open = false;
    return inner_->close();
  }

 private:
  std::unique_ptr<fabric::TargetEndpoint> inner_;
  Registry::Owner& owner_;  // entries of the map stay
};

class WatchedDomain final : public fabric::Domain {
 public:
  WatchedDomain(std::unique_ptr<fabric::Domain> inner, Registry& registry, Wearer wearer)
      : inner_(std::move(inner)),
        registry_(registry),
        wearer_(std::move(wearer)),
        number_(registry.next_domain++) {}
  const fabric::DomainInfo& info() const noexcept override { return inner_->info(); }
  Result<std::unique_ptr<fabric::Registration>> register_memory(const fabric::MemoryRef& memory,
                                                                fabric::Access access) override {
    TRY_ASSIGN(auto made, inner_->register_memory(memory, access));
    Held held{wearer_.party, wearer_.life, number_,    wearer_.rail,
              memory.bytes,  access,       made->key()};
    const bool may_fail = wearer_.may_fail && access == fabric::Access::remote_read;
    return std::unique_ptr<fabric::Registration>(std::make_unique<WatchedRegistration>(
        std::move(made), registry_, std::move(held), may_fail));
  }
  Result<std::unique_ptr<fabric::TargetEndpoint>> open_target(
      const fabric::TargetOptions& options) override {
    TRY_ASSIGN(auto made, inner_->open_target(options));
    Registry::Owner& owner = registry_.endpoints[bytes_of(made->address())];
    owner = {wearer_.party, wearer_.life, made->address(), true};
    return std::unique_ptr<fabric::TargetEndpoint>(
        std::make_unique<WatchedTarget>(std::move(made), owner));
  }
  Result<std::unique_ptr<fabric::Initiator>> open_initiator(
      const fabric::InitiatorOptions& options) override {
    return inner_->open_initiator(options);
  }
  Status admit_peer(const fabric::Address& peer) override { return inner_->admit_peer(peer); }
  void release_peer(const fabric::Address& peer) override { inner_->release_peer(peer); }

 private:
  std::unique_ptr<fabric::Domain> inner_;
  Registry& registry_;
  const Wearer wearer_;
  const std::uint64_t number_;
};

class Forward : public Directory {
 public:
  explicit Forward(std::unique_ptr<Directory> inner) : inner_(std::move(inner)) {}
  void resolve(std::string_view tenant, std::vector<Bytes> keys, OnPairs done) override {
    inner_->resolve(tenant, std::move(keys), std::move(done));
  }
  void publish(PublishRequest request, OnPublish done) override {
    inner_->publish(std::move(request), std::move(done));
  }
  void unpublish(UnpublishRequest request, OnUnpublish done) override {
    inner_->unpublish(std::move(request), std::move(done));
  }
  void announce(const NodeRecord& record, OnStatus done) override {
    inner_->announce(record, std::move(done));
  }
  void retract(NodeId node, OnStatus done) override { inner_->retract(node, std::move(done)); }
  void list_nodes(OnNodes done) override { inner_->list_nodes(std::move(done)); }
  void find_node(NodeId node, OnNode done) override { inner_->find_node(node, std::move(done)); }
  void take_lease(NodeId node, Incarnation incarnation, ArenaId arena, const ClientId& client,
                  Duration time, OnStatus done) override {
    inner_->take_lease(node, incarnation, arena, client, time, std::move(done));
  }
  void count_leases(NodeId node, Incarnation incarnation, ArenaId arena, OnCount done) override {
    inner_->count_leases(node, incarnation, arena, std::move(done));
  }
  void put_manifest(std::string_view tenant, std::string_view group, Bytes manifest,
                    OnStatus done) override {
    inner_->put_manifest(tenant, group, std::move(manifest), std::move(done));
  }
  void get_manifest(std::string_view tenant, std::string_view group, OnManifest done) override {
    inner_->get_manifest(tenant, group, std::move(done));
  }
  bool step() override { return inner_->step(); }
  int wait_fd() const noexcept override { return inner_->wait_fd(); }
  std::size_t pending() const noexcept override { return inner_->pending(); }

 protected:
  std::unique_ptr<Directory> inner_;
};

class NodeDirectory final : public Forward {
 public:
  NodeDirectory(std::unique_ptr<Directory> inner, Ledger& ledger, NodeSight sight)
      : Forward(std::move(inner)), ledger_(ledger), sight_(std::move(sight)) {}

  void publish(PublishRequest request, OnPublish done) override {
    const auto decoded = decode_descriptor(request.descriptor);
    Record* const record =
        ledger_.published(request, decoded.ok() ? sight_.memory(decoded->location) : nullptr);
    inner_->publish(std::move(request), [record, done = std::move(done)](PublishReply reply) {
      if (record != nullptr) {
        using Kind = PublishReply::Kind;
        record->unknown = reply.kind == Kind::unknown;
        record->answered = reply.kind == Kind::ok || record->unknown;
        record->refused = !record->answered;
      }
      done(std::move(reply));
    });
  }
  void unpublish(UnpublishRequest request, OnUnpublish done) override {
    if (request.how == UnpublishRequest::How::location) {
      ledger_.unpublished({request.tenant, request.key}, request.location);
    }
    inner_->unpublish(std::move(request), std::move(done));
  }

 private:
  Ledger& ledger_;
  NodeSight sight_;
};

class ClientDirectory final : public Forward {
 public:
  ClientDirectory(std::unique_ptr<Directory> inner, Told& told, const Clock& clock)
      : Forward(std::move(inner)), told_(told), clock_(clock) {}
  ~ClientDirectory() override { inner_.reset(); }  // answers what is open, through us

  void resolve(std::string_view tenant, std::vector<Bytes> keys, OnPairs done) override {
    const Instant asked = clock_.now();
    auto wanted = keys;
    inner_->resolve(
        tenant, std::move(keys),
        [this, asked, wanted = std::move(wanted),
         done = std::move(done)](std::vector<Result<Pair>> pairs) {
          for (std::size_t i = 0; i < pairs.size() && i < wanted.size(); ++i) {
            if (!pairs[i].ok() || !pairs[i]->descriptor) continue;
            Instant& at =
                told_.pairs[wanted[i]][{*pairs[i]->descriptor, pairs[i]->tag.value_or(Bytes())}];
            at = std::max(at, asked);
          }
          done(std::move(pairs));
        });
  }
  void get_manifest(std::string_view tenant, std::string_view group, OnManifest done) override {
    inner_->get_manifest(tenant, group,
                         [this, done = std::move(done)](Result<std::optional<Bytes>> manifest) {
                           if (manifest.ok() && *manifest) told_.manifests.push_back(**manifest);
                           done(std::move(manifest));
                         });
  }

 private:
  Told& told_;
  const Clock& clock_;
};

}  // namespace

bool Told::in_a_manifest(const Bytes& descriptor, const Bytes& tag) const {
  const auto has = [](const Bytes& all, const Bytes& part) {
    return std::search(all.begin(), all.end(), part.begin(), part.end()) != all.end();
  };
  return std::any_of(manifests.begin(), manifests.end(), [&](const Bytes& manifest) {
    return has(manifest, descriptor) && has(manifest, tag);
  });
}

std::string bytes_of(const fabric::Address& address) {
  const auto bytes = address.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::unique_ptr<fabric::Domain> watch(std::unique_ptr<fabric::Domain> domain, Registry& registry,
                                      Wearer wearer) {
  return std::make_unique<WatchedDomain>(std::move(domain), registry, std::move(wearer));
}
std::unique_ptr<Directory> watch_node(std::unique_ptr<Directory> inner, Ledger& ledger,
                                      NodeSight sight) {
  return std::make_unique<NodeDirectory>(std::move(inner), ledger, std::move(sight));
}
std::unique_ptr<Directory> watch_client(std::unique_ptr<Directory> inner, Told& told,
                                        const Clock& clock) {
  return std::make_unique<ClientDirectory>(std::move(inner), told, clock);
}

}  // namespace farlift::kv::simulation
