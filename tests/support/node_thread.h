// NodeThread: a real node over sockets and a real Valkey, stepped by a thread of its own until it
// is destroyed; for tests of the client as an application uses it.
//
// Threads: made and destroyed by one. Errors: expectations of GoogleTest.
#pragma once

#include "core/base/prng.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/soft/soft.h"
#include "kvcache/control/socket_transport.h"
#include "kvcache/control/valkey_directory.h"
#include "kvcache/node/node.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <poll.h>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace farlift::kv::testing {

inline std::vector<std::byte> value_of(std::size_t length, std::uint64_t seed) {
  std::vector<std::byte> bytes(length);
  Prng prng(seed);
  for (auto& b : bytes) b = static_cast<std::byte>(prng.next());
  return bytes;
}

inline std::string key_line(std::uint32_t id, char digit) {
  return std::to_string(id) + " " + std::string(64, digit) + "\n";
}

struct NodeThreadOptions {
  ValkeyOptions valkey{};
  SocketTransportOptions links{};
  std::string keys = key_line(1, 'a');  // tenant t1's
  bool libfabric = false;               // its tcp, on loopback; else soft
};

class NodeThread {
 public:
  explicit NodeThread(NodeThreadOptions options) {
    transport_ = SocketTransport::open(clock_, options.links).value();
    directory_ = ValkeyDirectory::open(clock_, options.valkey).value();
    environment_ = std::make_unique<Environment>(
        Environment{clock_,
                    [](std::span<std::byte> out) { secure_random(out); },
                    *directory_,
                    *transport_,
                    {}});
    environment_->rails.push_back(rail(options.libfabric));
    NodeOptions node;
    TenantOptions tenant;
    tenant.name = "t1";
    tenant.keys = Keyring::parse(options.keys).value();
    tenant.quota = Length(64u << 20);
    node.tenants.push_back(std::move(tenant));
    node.arena_size = Length(16u << 20);
    std::string why;
    auto made = Node::create(*environment_, std::move(node), &why);
    EXPECT_TRUE(made.ok()) << why;
    node_ = std::move(made).value();
    thread_ = std::thread([this] { run(); });
  }
  ~NodeThread() {
    stop_ = true;
    thread_.join();
    node_.reset();
  }

 private:
  Rail rail(bool libfabric) {
    Rail made;
    made.provider = libfabric ? "tcp" : "soft";
    made.open_domain = [this, libfabric]() -> Result<std::unique_ptr<fabric::Domain>> {
      if (libfabric) {
        fabric::ofi::OfiOptions ofi;
        ofi.listen_ip = "127.0.0.1";
        return fabric::ofi::open_domain(ofi, clock_);
      }
      fabric::soft::SoftOptions soft;
      soft.host_lane = false;  // both ends are one process: the sockets are the harder lane
      return fabric::soft::open_domain(soft, clock_);
    };
    return made;
  }
  void run() {
    while (!stop_) {
      if (node_->step()) continue;
      std::vector<pollfd> fds;
      for (const int fd : node_->wait_fds()) fds.push_back({fd, POLLIN, 0});
      (void)::poll(fds.data(), fds.size(), 5);
    }
  }

  SystemClock clock_;
  std::unique_ptr<SocketTransport> transport_;
  std::unique_ptr<ValkeyDirectory> directory_;
  std::unique_ptr<Environment> environment_;
  std::unique_ptr<Node> node_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace farlift::kv::testing
