// What one would build without a server: a stream, libfabric's push, and the ways within one host.
#include "apps/bench/contender.h"
#include "apps/bench/peer.h"
#include "apps/bench/socket.h"
#include "core/base/clock.h"
#include "core/fabric/ofi/ofi.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>

namespace farlift::apps {

namespace {

struct Link {
  Socket socket;
  PeerOffer offer;
};

class PeerContender : public Contender {
 public:
  PeerContender(const char* what, PeerKind kind, std::uint16_t port, pid_t peer,
                const char* lane = "")
      : Contender({what, lane, kind == PeerKind::push ? "tcp" : "", false}, peer),
        kind_(kind),
        port_(port) {}

  Outcome<void> prepare(const Scene& scene) override {
    scene_ = scene;
    for (unsigned w = 0; w < scene.in_flight; ++w) {
      PeerRequest request;
      request.kind = kind_;
      request.size = scene.size;
      if (Outcome<void> filled = fill(w, request); !filled) return filled;
      Outcome<Socket> socket = Socket::connect(port_);
      if (!socket) return fail(socket.error());
      PeerOffer offer;
      if (auto sent = socket->send_all(std::as_bytes(std::span(&request, 1))); !sent) return sent;
      if (auto got = socket->receive_all(std::as_writable_bytes(std::span(&offer, 1))); !got)
        return got;
      if (offer.ok != 1) return fail(kExitFailed, label().what + ": the other side is not ready");
      links_.push_back(Link{std::move(*socket), offer});
      if (Outcome<void> opened = open(w); !opened) return opened;
    }
    return {};
  }
  void release() override { links_.clear(); }

 protected:
  virtual Outcome<void> fill(unsigned, PeerRequest&) { return {}; }
  virtual Outcome<void> open(unsigned) { return {}; }
  std::span<std::byte> target(unsigned worker) const {
    return scene_.scratch[worker].first(scene_.size);
  }
  Outcome<void> failed(int error) const {
    return fail(kExitFailed, label().what + ": " + std::generic_category().message(error));
  }
  Scene scene_;
  std::vector<Link> links_;

 private:
  const PeerKind kind_;
  const std::uint16_t port_;
};

class RawTcp final : public PeerContender {
 public:
  RawTcp(std::uint16_t port, pid_t peer) : PeerContender("raw_tcp", PeerKind::stream, port, peer) {}
  Outcome<void> op(unsigned worker) override {
    if (auto sent = links_[worker].socket.send_all("x"); !sent) return sent;
    return links_[worker].socket.receive_all(target(worker));
  }
};

// Both ends held on one core, or on one each: where the scheduler puts them decides what the stream
// above measures.
class PinnedTcp final : public PeerContender {
 public:
  PinnedTcp(const char* lane, std::uint16_t port, pid_t peer, int core_here, int core_there)
      : PeerContender("raw_tcp", PeerKind::stream, port, peer, lane),
        here_(core_here),
        there_(core_there) {}
  Outcome<void> op(unsigned worker) override {
    if (auto sent = links_[worker].socket.send_all("x"); !sent) return sent;
    return links_[worker].socket.receive_all(target(worker));
  }
  void enter(unsigned worker) override {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<std::size_t>(here_), &set);
    sched_getaffinity(0, sizeof set, &before_[worker]);
    sched_setaffinity(0, sizeof set, &set);
  }
  void leave(unsigned worker) override {
    sched_setaffinity(0, sizeof before_[worker], &before_[worker]);
  }

 private:
  Outcome<void> fill(unsigned, PeerRequest& request) override {
    request.core = there_;
    before_.resize(scene_.in_flight);
    return {};
  }
  const int here_;
  const int there_;
  std::vector<cpu_set_t> before_;  // by worker
};

class VmReadv final : public PeerContender {
 public:
  VmReadv(std::uint16_t port, pid_t peer)
      : PeerContender("process_vm_readv", PeerKind::memory, port, peer) {}
  Outcome<void> op(unsigned worker) override {
    const std::span<std::byte> to = target(worker);
    for (std::size_t done = 0; done < to.size();) {
      const std::size_t want = to.size() - done;
      iovec local{to.data() + done, want};
      iovec remote{reinterpret_cast<void*>(links_[worker].offer.address + done),
                   want};  // the peer's
      const ssize_t got = process_vm_readv(other(), &local, 1, &remote, 1, 0);
      if (got <= 0) return failed(errno);
      done += static_cast<std::size_t>(got);
    }
    return {};
  }
};

class SharedMapping final : public PeerContender {
 public:
  SharedMapping(std::uint16_t port, pid_t peer)
      : PeerContender("shared_mapping", PeerKind::mapping, port, peer) {}
  Outcome<void> op(unsigned worker) override {
    std::memcpy(scene_.scratch[worker].data(), maps_[worker], scene_.size);
    return {};
  }
  void release() override {
    for (void* map : maps_) munmap(map, scene_.size);
    maps_.clear();
    PeerContender::release();
  }

 private:
  Outcome<void> open(unsigned worker) override {
    const std::string path = fmt::format("/proc/{}/fd/{}", other(), links_[worker].offer.fd);
    const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return failed(errno);
    void* map = mmap(nullptr, scene_.size, PROT_READ, MAP_SHARED | MAP_POPULATE, file.get(), 0);
    if (map == MAP_FAILED) return failed(errno);
    maps_.push_back(map);
    return {};
  }
  std::vector<void*> maps_;
};

class LibfabricPush final : public PeerContender {
 public:
  LibfabricPush(std::uint16_t port, pid_t peer)
      : PeerContender("libfabric.push", PeerKind::push, port, peer) {}
  Outcome<void> op(unsigned worker) override {
    std::byte word{};
    if (auto sent = links_[worker].socket.send_all("x"); !sent) return sent;
    return links_[worker].socket.receive_all(std::span(&word, 1));
  }
  void release() override {
    PeerContender::release();
    endpoints_.clear();
    registrations_.clear();
    domain_.reset();
  }

 private:
  Outcome<void> fill(unsigned worker, PeerRequest& request) override {
    if (!domain_) {
      fabric::ofi::OfiOptions options;
      options.interface_name = "lo";
      std::string why;
      auto domain = fabric::ofi::open_domain(options, clock_, &why);
      if (!domain) return fail(kExitFailed, "libfabric.push: " + why);
      domain_ = std::move(*domain);
    }
    auto registration = domain_->register_memory({target(worker)}, fabric::Access::remote_write);
    if (!registration)
      return fail(kExitFailed, "libfabric.push: " + registration.error().describe());
    auto endpoint = domain_->open_target({});
    if (!endpoint) return fail(kExitFailed, "libfabric.push: " + endpoint.error().describe());
    request.rkey = (*registration)->key().raw();
    request.remote_addr = (*registration)->addr().raw();
    const auto address = (*endpoint)->address().bytes();
    request.address_size = static_cast<std::uint8_t>(address.size());
    std::copy(address.begin(), address.end(), request.address.begin());
    registrations_.push_back(std::move(*registration));
    endpoints_.push_back(std::move(*endpoint));
    return {};
  }
  SystemClock clock_;
  std::unique_ptr<fabric::Domain> domain_;
  std::vector<std::unique_ptr<fabric::Registration>> registrations_;
  std::vector<std::unique_ptr<fabric::TargetEndpoint>> endpoints_;
};

class Memcpy final : public Contender {
 public:
  Memcpy() : Contender({"memcpy", "", "", false}, 0) {}
  Outcome<void> prepare(const Scene& scene) override {
    scene_ = scene;
    return {};
  }
  Outcome<void> op(unsigned worker) override {
    std::memcpy(scene_.scratch[worker].data(), scene_.values[worker].data(), scene_.size);
    return {};
  }
  void release() override {}

 private:
  Scene scene_;
};

}  // namespace

void add_raw_contenders(Contenders& out, std::uint16_t peer_port, pid_t peer, bool with_libfabric) {
  out.push_back(std::make_unique<RawTcp>(peer_port, peer));
  cpu_set_t allowed;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(static_cast<std::size_t>(core), &allowed)) cores.push_back(core);
    }
  }
  if (!cores.empty()) {
    out.push_back(
        std::make_unique<PinnedTcp>("one core", peer_port, peer, cores.front(), cores.front()));
  }
  if (cores.size() > 1) {
    out.push_back(
        std::make_unique<PinnedTcp>("two cores", peer_port, peer, cores.front(), cores[1]));
  }
  if (with_libfabric) out.push_back(std::make_unique<LibfabricPush>(peer_port, peer));
  out.push_back(std::make_unique<Memcpy>());
  out.push_back(std::make_unique<VmReadv>(peer_port, peer));
  out.push_back(std::make_unique<SharedMapping>(peer_port, peer));
}

}  // namespace farlift::apps
