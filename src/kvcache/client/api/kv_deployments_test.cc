// KvClient once over each way to deploy: a cluster, sentinels, TLS to Valkey and to nodes,
// libfabric. What is under those is tested beside it; here the options must arrive.
#include "core/net/tls.h"
#include <farlift/kv.h>

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/support/kv_ready.h"
#include "tests/support/node_thread.h"
#include "tests/support/valkey_server.h"

namespace farlift {
namespace {

using kv::testing::key_line;
using kv::testing::NodeThread;
using kv::testing::NodeThreadOptions;
using kv::testing::value_of;

class KvDeployment : public ::testing::Test {
 protected:
  KvDeployment() {
    std::ofstream(files_.file("keys")) << key_line(1, 'a');
    options_.tenant = "t1";
    options_.key_file = files_.file("keys");
    options_.host_lane = false;
  }

  // Puts, gets, removes; several keys, so that a cluster's shards all get some.
  void round_trips() {
    NodeThread node(node_);
    auto made = KvClient::create(options_);
    ASSERT_TRUE(made.ok()) << made.error().text;
    KvClient& client = *made;
    ASSERT_TRUE(kv::testing::takes_puts(client)) << "the node did not come up";
    for (std::uint64_t i = 0; i < 12; ++i) {
      const std::string key = "key-" + std::to_string(i);
      const auto value = value_of(100'000 + i, i);
      const KvResult put = client.put(key, value);
      ASSERT_TRUE(put.ok()) << to_string(put.status) << put.text;
      std::vector<std::byte> dest(value.size());
      const KvResult got = client.get(key, dest);
      ASSERT_TRUE(got.ok()) << to_string(got.status) << got.text;
      EXPECT_EQ(dest, value);
      EXPECT_EQ(client.put(key, value).status, KvStatus::exists);
      ASSERT_TRUE(client.remove(key).ok());
      EXPECT_EQ(client.get(key, dest).status, KvStatus::miss);
    }
  }

  // What a client with these options comes to: no bytes, in bounded time.
  KvStatus refused(const KvOptions& options) {
    auto made = KvClient::create(options);
    EXPECT_TRUE(made.ok());
    std::vector<std::byte> dest(10);
    return made->get("ready", dest).status;
  }

  static std::optional<net::TlsOptions> tls_of(const testing::ServerProcess& server) {
    return server.connection_options().tls;
  }

  testing::TempDir files_;
  std::string reason_;
  NodeThreadOptions node_;
  KvOptions options_;
};

TEST_F(KvDeployment, a_cluster) {
  const auto cluster = testing::ClusterProcess::start(3, {}, &reason_);
  ASSERT_NE(cluster, nullptr) << reason_;
  node_.valkey.mode = kv::ValkeyOptions::Mode::cluster;
  node_.valkey.connection.port = cluster->server(0).port();
  options_.control = KvOptions::Control::cluster;
  options_.valkey = {{"127.0.0.1", cluster->server(1).port()},
                     {"127.0.0.1", cluster->server(2).port()}};
  round_trips();
}

TEST_F(KvDeployment, sentinels) {
  const auto set = testing::SentinelSet::start({}, &reason_);
  ASSERT_NE(set, nullptr) << reason_;
  node_.valkey.mode = kv::ValkeyOptions::Mode::sentinel;
  node_.valkey.sentinels = set->sentinels();
  node_.valkey.primary_name = "main";
  options_.control = KvOptions::Control::sentinel;
  options_.sentinel_primary = "main";
  options_.valkey.clear();
  for (const auto& one : set->sentinels()) options_.valkey.push_back({one.host, one.port});
  round_trips();
}

TEST_F(KvDeployment, tls_with_certificates_to_valkey) {
  testing::ServerOptions server_options;
  server_options.tls = server_options.tls_client_certificates = true;
  const auto server = testing::ServerProcess::start(server_options, &reason_);
  ASSERT_NE(server, nullptr) << reason_;
  node_.valkey.connection = server->connection_options();
  const testing::TlsFiles& files = server->tls_files();
  options_.valkey = {{"127.0.0.1", server->port()}};
  options_.tls.enabled = true;
  options_.tls.ca_file = files.ca;
  options_.tls.certificate_file = files.client_certificate;
  options_.tls.key_file = files.client_key;
  round_trips();
  KvOptions other = options_;
  other.tls.ca_file = files.other_ca;
  EXPECT_EQ(refused(other), KvStatus::control_down) << "the server is not who it says";
  other = options_;
  other.tls.certificate_file.clear();
  other.tls.key_file.clear();
  EXPECT_EQ(refused(other), KvStatus::control_down) << "we are nobody";
  other = options_;
  other.tls.enabled = false;
  EXPECT_EQ(refused(other), KvStatus::control_down) << "plain";
}

TEST_F(KvDeployment, tls_to_nodes) {
  const auto server = testing::ServerProcess::start({}, &reason_);
  ASSERT_NE(server, nullptr) << reason_;
  testing::TlsFiles files;
  ASSERT_TRUE(testing::TlsFiles::make(files_.path(), files, &reason_)) << reason_;
  node_.valkey.connection.port = server->port();
  net::TlsOptions tls;
  tls.certificate_file = files.server_certificate;
  tls.key_file = files.server_key;
  tls.only_tls13 = true;
  node_.links.server_tls = net::TlsContext::make_server(tls).value();
  options_.valkey = {{"127.0.0.1", server->port()}};
  options_.node_tls.enabled = true;
  options_.node_tls.ca_file = files.ca;
  round_trips();
  NodeThread node(node_);
  auto good = KvClient::create(options_).value();
  std::vector<std::byte> dest(10);
  ASSERT_TRUE(kv::testing::takes_puts(good));
  KvOptions other = options_;
  other.node_tls.ca_file = files.other_ca;
  EXPECT_EQ(refused(other), KvStatus::unreachable) << "the node is not who it says";
  other = options_;
  other.node_tls.enabled = false;
  EXPECT_EQ(refused(other), KvStatus::unreachable) << "plain";
  EXPECT_TRUE(good.get("ready", dest).ok());
}

TEST_F(KvDeployment, libfabric_tcp) {
  const auto usable = fabric::ofi::library_status(fabric::ofi::kVersionAny);
  if (!usable.usable) GTEST_SKIP() << usable.reason;
  const auto server = testing::ServerProcess::start({}, &reason_);
  ASSERT_NE(server, nullptr) << reason_;
  node_.valkey.connection.port = server->port();
  node_.libfabric = true;
  options_.valkey = {{"127.0.0.1", server->port()}};
  options_.provider = RdmaProvider::tcp;
  round_trips();
  options_.provider = RdmaProvider::soft;
  NodeThread node(node_);
  auto other = KvClient::create(options_).value();
  EXPECT_FALSE(other.put("k", value_of(1, 1)).ok()) << "no rail in common";
}

}  // namespace
}  // namespace farlift
