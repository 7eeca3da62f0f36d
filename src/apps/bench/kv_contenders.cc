// The one-sided cache through the public client, and the bare read of its provider.
#include "apps/bench/contender.h"
#include "apps/bench/peer.h"
#include "apps/bench/socket.h"
#include "apps/kv.h"
#include "core/base/clock.h"
#include "core/fabric/soft/soft.h"
#include "core/memory/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <thread>

namespace farlift::apps {

namespace {

constexpr std::uint64_t kBatchBytesMax = 256u << 20;  // of one mget

enum class Lookup { cached, resolve };

// One client for all workers: what a serving process has.
class KvContender : public Contender {
 public:
  KvContender(const std::string& what, const std::string& lane, const KvAccess& access,
              const std::string& tenant)
      : Contender({what, lane, "soft", true}, access.node),
        tenant_(tenant),
        key_file_(access.key_file) {}
  KvContender(const std::string& what, const std::string& lane, const KvAccess& access)
      : KvContender(what, lane, access, access.tenant) {}

  void release() override {
    memories_.clear();
    if (client_) client_->close();
    client_.reset();
  }

 protected:
  Outcome<void> connect(const Scene& scene, std::size_t cache_entries) {
    scene_ = scene;
    KvOptions options;
    options.valkey = {{"127.0.0.1", scene.server_port}};
    options.tenant = tenant_;
    options.key_file = key_file_;
    options.host_lane = label().lane != "remote";
    options.cache_entries_max = cache_entries;
    options.register_on_demand = false;
    Expected<KvClient> client = KvClient::create(std::move(options));
    if (!client) return fail(kExitFailed, label().what + ": " + client.error().text);
    client_.emplace(std::move(*client));
    return {};
  }
  Outcome<void> land_in(std::span<std::byte> bytes) {
    Expected<KvMemory> memory = client_->register_memory(bytes);
    if (!memory) return fail(kExitFailed, label().what + ": " + memory.error().text);
    memories_.push_back(std::move(*memory));
    return {};
  }
  // Stores the scene's value under `count` keys.
  Outcome<void> store(const std::vector<std::string>& keys) {
    const std::span<const std::byte> value = scene_.values[0].first(scene_.size);
    if (Outcome<void> lent = land_in(scene_.values[0].first(scene_.size)); !lent) return lent;
    for (const std::string& key : keys) {
      const KvResult put = client_->put(key, value, KvPutMode::if_absent);
      if (!put.ok() && put.status != KvStatus::exists) return fail(explain(put, label().what));
    }
    memories_.clear();
    return {};
  }
  std::string key(std::size_t number) const {
    return fmt::format("bench/{}/{}", scene_.size, number);
  }

  Scene scene_;
  std::optional<KvClient> client_;

 private:
  const std::string tenant_;
  const std::string key_file_;
  std::vector<KvMemory> memories_;
};

class KvGetContender final : public KvContender {
 public:
  KvGetContender(const std::string& lane, KvReadMode mode, Lookup lookup, const KvAccess& access)
      : KvContender(name_of(mode, lookup), lane, access), mode_(mode), lookup_(lookup) {}

  Outcome<void> prepare(const Scene& scene) override {
    // Two keys a worker in turn and room for one descriptor: every read asks the directory.
    if (auto up = connect(scene, lookup_ == Lookup::cached ? 65536 : 1); !up) return up;
    std::vector<std::string> keys;
    for (std::size_t i = 0; i < std::size_t{2} * scene.in_flight; ++i) keys.push_back(key(i));
    if (auto stored = store(keys); !stored) return stored;
    for (const auto& value : scene.values) {
      if (auto lent = land_in(value.first(scene.size)); !lent) return lent;
    }
    turns_.assign(scene.in_flight, 0);
    return {};
  }

  Outcome<void> op(unsigned worker) override {
    const std::size_t which = lookup_ == Lookup::cached ? 0 : ++turns_[worker] % 2;
    const KvResult got = client_->get(key(2 * std::size_t{worker} + which),
                                      scene_.values[worker].first(scene_.size), mode_);
    if (!got.ok()) return fail(explain(got, label().what));
    if (got.length != scene_.size) return fail(kExitCorrupt, label().what + ": wrong length");
    return {};
  }

 private:
  static std::string name_of(KvReadMode mode, Lookup lookup) {
    if (lookup == Lookup::resolve) return "kv.get_resolve";
    return mode == KvReadMode::framed ? "kv.get" : "kv.get_payload";
  }
  const KvReadMode mode_;
  const Lookup lookup_;
  std::vector<std::size_t> turns_;
};

// A batch: `count` values of the scene's size, each to a place of its own.
class KvMget final : public KvContender {
 public:
  KvMget(const std::string& lane, std::size_t count, const KvAccess& access)
      : KvContender(fmt::format("kv.mget_{}", count), lane, access), count_(count) {}

  bool fits(const Scene& scene) const override {
    return scene.in_flight == 1 && scene.size * count_ <= kBatchBytesMax;
  }
  std::uint64_t bytes_per_op(const Scene& scene) const override { return scene.size * count_; }

  Outcome<void> prepare(const Scene& scene) override {
    if (auto up = connect(scene, 65536); !up) return up;
    for (std::size_t i = 0; i < count_; ++i) keys_.push_back(key(i));
    if (auto stored = store(keys_); !stored) return stored;
    auto made = memory::Mapping::create(Length(scene.size * count_), {});
    if (!made) return fail(kExitFailed, label().what + ": no memory");
    landing_.emplace(std::move(*made));
    std::fill(landing_->bytes().begin(), landing_->bytes().end(), std::byte{1});
    if (auto lent = land_in(landing_->bytes()); !lent) return lent;
    for (std::size_t i = 0; i < count_; ++i) {
      requests_.push_back(
          {keys_[i], landing_->bytes().subspan(i * scene.size, scene.size), KvReadMode::framed, 0});
    }
    return {};
  }
  Outcome<void> op(unsigned) override {
    for (const KvResult& got : client_->mget(requests_)) {
      if (!got.ok()) return fail(explain(got, label().what));
    }
    return {};
  }
  void release() override {
    KvContender::release();
    requests_.clear();
    keys_.clear();
    landing_.reset();
  }

 private:
  const std::size_t count_;
  std::vector<std::string> keys_;
  std::vector<KvGet> requests_;
  std::optional<memory::Mapping> landing_;
};

// Each worker overwrites a key of its own. The slots of what was are given back by rotations, which
// the node makes as it goes; where it has to be waited for, that is part of the time.
class KvPutContender final : public KvContender {
 public:
  KvPutContender(const std::string& lane, const KvAccess& access)
      : KvContender("kv.put", lane, access, access.put_tenant), quota_(access.put_quota) {}

  Outcome<void> prepare(const Scene& scene) override {
    if (auto up = connect(scene, 1); !up) return up;
    for (const auto& value : scene.values) {
      if (auto lent = land_in(value.first(scene.size)); !lent) return lent;
    }
    // Once through all arenas, so that no put pays for the first touch of a page.
    while (warmed_ < 3 * quota_ / 2) {
      if (auto put = op(0); !put) return put;
      warmed_ += scene.size;
    }
    return {};
  }

  Outcome<void> op(unsigned worker) override {
    const Instant limit = clock_.now() + kFullLimit;
    for (;;) {
      const KvResult put =
          client_->put(key(worker), scene_.values[worker].first(scene_.size), KvPutMode::replace);
      if (put.ok()) return {};
      if (put.status != KvStatus::full || clock_.now() >= limit)
        return fail(explain(put, label().what));
      std::this_thread::yield();
    }
  }

 private:
  static constexpr Duration kFullLimit = std::chrono::seconds(10);
  const std::uint64_t quota_;
  const SystemClock clock_;
  std::uint64_t warmed_ = 0;
};

// What the provider does without us: one Initiator reads registered memory of the other process,
// `count` values of it, each to a place of its own.
class FabricRead final : public Contender {
 public:
  FabricRead(const std::string& lane, std::size_t count, std::uint16_t port, pid_t peer)
      : Contender({count == 1 ? "fabric.read" : fmt::format("fabric.read_{}", count), lane, "soft",
                   false},
                  peer),
        count_(count),
        port_(port) {}

  bool fits(const Scene& scene) const override {
    return scene.in_flight == 1 && (count_ == 1 || scene.size * count_ <= kBatchBytesMax);
  }
  std::uint64_t bytes_per_op(const Scene& scene) const override { return scene.size * count_; }

  Outcome<void> prepare(const Scene& scene) override {
    total_ = scene.size * count_;
    piece_ = std::min(kPushPiece, scene.size);
    landing_ = scene.scratch[0].first(scene.size);
    if (count_ > 1) {
      auto made = memory::Mapping::create(Length(total_), {});
      if (!made) return fail(kExitFailed, label().what + ": no memory");
      own_.emplace(std::move(*made));
      landing_ = own_->bytes().first(total_);
      std::fill(landing_.begin(), landing_.end(), std::byte{1});
    }
    Outcome<Socket> socket = Socket::connect(port_);
    if (!socket) return fail(socket.error());
    PeerRequest request;
    request.kind = PeerKind::read;
    request.size = total_;
    if (auto sent = socket->send_all(std::as_bytes(std::span(&request, 1))); !sent) return sent;
    if (auto got = socket->receive_all(std::as_writable_bytes(std::span(&offer_, 1))); !got)
      return got;
    socket_.emplace(std::move(*socket));
    fabric::soft::SoftOptions options;
    options.host_lane = label().lane == "host";
    auto domain = fabric::soft::open_domain(options, clock_);
    if (!domain.ok() || offer_.ok != 1) return fail(kExitFailed, "fabric.read: no domain");
    domain_ = std::move(domain).value();
    auto registration = domain_->register_memory({landing_, -1, 0}, fabric::Access::local);
    auto initiator = domain_->open_initiator({});
    const auto address =
        fabric::Address::from_bytes(std::span(offer_.endpoint).first(offer_.endpoint_size));
    if (!registration.ok() || !initiator.ok() || !address.ok())
      return fail(kExitFailed, "fabric.read: no endpoint");
    registration_ = std::move(registration).value();
    initiator_ = std::move(initiator).value();
    auto peer = initiator_->add_peer(*address);
    if (!peer.ok()) return fail(kExitFailed, "fabric.read: " + peer.error().describe());
    peer_ = *peer;
    return {};
  }

  Outcome<void> op(unsigned) override {
    std::uint64_t posted = 0;
    std::uint64_t done = 0;
    while (done < total_) {
      while (posted < total_) {
        fabric::Operation operation;
        operation.kind = fabric::OpKind::read;
        operation.peer = peer_;
        operation.key = RKey(offer_.rkey);
        operation.addr = RemoteAddr(offer_.remote_addr + posted);
        operation.local = landing_.subspan(posted, std::min(piece_, total_ - posted));
        operation.local_registration = registration_.get();
        operation.context = operation.local.size();
        const Status status = initiator_->post(operation);
        if (!status.ok() && status.code() != Errc::again)
          return fail(kExitFailed, "fabric.read: " + status.error().describe());
        if (!status.ok()) break;
        posted += operation.local.size();
      }
      fabric::Completion completions[64];
      const std::size_t got = initiator_->poll(completions);
      if (got == 0) initiator_->wait(1000);
      for (std::size_t i = 0; i < got; ++i) {
        if (!completions[i].status.ok())
          return fail(kExitFailed, "fabric.read: " + completions[i].status.error().describe());
        done += completions[i].context;
      }
    }
    return {};
  }

  void release() override {
    initiator_.reset();
    registration_.reset();
    domain_.reset();
    socket_.reset();
    own_.reset();
  }

 private:
  const std::size_t count_;
  const std::uint16_t port_;
  const SystemClock clock_;
  std::uint64_t total_ = 0;
  std::uint64_t piece_ = 0;
  std::span<std::byte> landing_;
  std::optional<memory::Mapping> own_;
  PeerOffer offer_;
  std::optional<Socket> socket_;
  std::unique_ptr<fabric::Domain> domain_;
  std::unique_ptr<fabric::Registration> registration_;
  std::unique_ptr<fabric::Initiator> initiator_;
  fabric::PeerId peer_;
};

}  // namespace

void add_kv_contenders(Contenders& out, const std::vector<std::string>& lanes,
                       const KvAccess& access, std::uint16_t peer_port, pid_t peer) {
  for (const std::string& lane : lanes) {
    if (lane != "remote" && lane != "host") continue;
    out.push_back(
        std::make_unique<KvGetContender>(lane, KvReadMode::framed, Lookup::cached, access));
    out.push_back(
        std::make_unique<KvGetContender>(lane, KvReadMode::payload_only, Lookup::cached, access));
    out.push_back(
        std::make_unique<KvGetContender>(lane, KvReadMode::framed, Lookup::resolve, access));
    out.push_back(std::make_unique<FabricRead>(lane, 1, peer_port, peer));
    for (const std::size_t count : {std::size_t{16}, std::size_t{256}}) {
      out.push_back(std::make_unique<KvMget>(lane, count, access));
      out.push_back(std::make_unique<FabricRead>(lane, count, peer_port, peer));
    }
    out.push_back(std::make_unique<KvPutContender>(lane, access));
  }
}

}  // namespace farlift::apps
