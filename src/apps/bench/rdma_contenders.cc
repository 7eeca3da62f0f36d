// The blob door through the public client: RDMA_GET and RDMA_SET on each lane, verified and not.
#include "apps/bench/contender.h"
#include "apps/connect.h"

#include <fmt/format.h>

#include <optional>

namespace farlift::apps {

namespace {

struct Lane {
  std::string name;  // remote, host, or empty for libfabric
  RdmaProvider provider = RdmaProvider::soft;
  bool host_lane = true;
};

class RdmaContender : public Contender {
 public:
  RdmaContender(const char* what, const Lane& lane, bool verified, pid_t server)
      : Contender({what, lane.name, lane.provider == RdmaProvider::soft ? "soft" : "tcp", verified},
                  server),
        lane_(lane) {}

  Outcome<void> prepare(const Scene& scene) override {
    ClientOptions options;
    options.addresses = {{"127.0.0.1", scene.server_port}};
    RdmaConfiguration rdma;
    rdma.provider = lane_.provider;
    rdma.host_lane = lane_.host_lane;
    rdma.connections = scene.in_flight;
    rdma.verify = label().verified;
    options.rdma = rdma;
    Expected<Client> client = Client::create(std::move(options));
    if (!client) return fail(explain(client.error(), label().what));
    client_.emplace(std::move(*client));
    for (const auto& value : scene.values) {
      Expected<RdmaRegion> region = client_->register_rdma_region(value.first(scene.size));
      if (!region) return fail(explain(region.error(), label().what));
      Expected<RdmaWindow> window = region->window();
      if (!window) return fail(explain(window.error(), label().what));
      windows_.push_back(*window);
    }
    scene_ = scene;
    return {};
  }

  void release() override {
    windows_.clear();
    if (client_) client_->close();
    client_.reset();
  }

 protected:
  Client& client() { return *client_; }
  const RdmaWindow& window(unsigned worker) const { return windows_[worker]; }
  const Scene& scene() const { return scene_; }

 private:
  const Lane lane_;
  Scene scene_;
  std::optional<Client> client_;
  std::vector<RdmaWindow> windows_;
};

class RdmaGet final : public RdmaContender {
 public:
  RdmaGet(const Lane& lane, bool verified, pid_t server)
      : RdmaContender("blob.rdma_get", lane, verified, server) {}

  Outcome<void> op(unsigned worker) override {
    Expected<std::optional<RdmaReadReceipt>> receipt =
        client().rdma_get(scene().blob_key, window(worker));
    if (!receipt) return fail(explain(receipt.error(), label().what));
    if (!*receipt || (*receipt)->bytes_written != scene().size)
      return fail(kExitCorrupt, "blob.rdma_get: wrong length");
    return {};
  }
};

// Verified: with the CRC-32C of the source, taken anew each time, which the server compares.
class RdmaSet final : public RdmaContender {
 public:
  RdmaSet(const Lane& lane, bool verified, pid_t server)
      : RdmaContender("blob.rdma_set", lane, verified, server) {}

  Outcome<void> op(unsigned worker) override {
    std::optional<std::uint32_t> checksum;
    if (label().verified) {
      Expected<std::span<std::byte>> bytes = window(worker).memory();
      if (!bytes) return fail(explain(bytes.error(), label().what));
      checksum = rdma_checksum(*bytes);
    }
    Expected<void> done =
        client().rdma_set(fmt::format("bench:set:{}", worker), window(worker), checksum);
    if (!done) return fail(explain(done.error(), label().what));
    return {};
  }
};

}  // namespace

void add_rdma_contenders(Contenders& out, const std::vector<std::string>& lanes, pid_t server) {
  for (const std::string& name : lanes) {
    const bool libfabric = name == "libfabric";
    const Lane lane{libfabric ? "" : name, libfabric ? RdmaProvider::tcp : RdmaProvider::soft,
                    name == "host"};
    for (const bool verified : {false, true}) {
      out.push_back(std::make_unique<RdmaGet>(lane, verified, server));
      out.push_back(std::make_unique<RdmaSet>(lane, verified, server));
    }
  }
}

}  // namespace farlift::apps
