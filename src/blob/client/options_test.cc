// Options of the client, and what is loaded for them. A program of its own, since it looks at what
// the process has loaded.
#include "blob/client/client_test_base.h"
#include "blob/client/commands.h"
#include "blob/client/fake_server.h"

#include <fstream>
#include <string>

namespace farlift {
namespace {

using testing::failed_as;
using testing::FakeServer;
using testing::succeeded;

bool libfabric_is_loaded() {
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    if (line.find("libfabric") != std::string::npos) return true;
  }
  return false;
}

ClientOptions options_for(const FakeServer& server) {
  ClientOptions options;
  options.addresses = {{"127.0.0.1", server.port()}};
  return options;
}

// First: the later ones may load it.
TEST(Options, B108_nothing_is_loaded_unless_rdma_asks_for_it) {
  FakeServer server;
  {
    auto plain = Client::create(options_for(server));
    ASSERT_TRUE(succeeded(plain));
    ASSERT_TRUE(succeeded(plain->command({"PING"})));
    std::vector<std::byte> memory(10);
    EXPECT_TRUE(failed_as(plain->register_rdma_region(memory), ErrorKind::rdma, "without 'rdma'"));
  }
  ClientOptions soft = options_for(server);
  soft.rdma = RdmaConfiguration{};
  ASSERT_TRUE(succeeded(Client::create(soft)));
  EXPECT_TRUE(rdma_available());
  EXPECT_TRUE(rdma_usable(RdmaProvider::soft).usable);
  EXPECT_FALSE(libfabric_is_loaded());
}

TEST(Options, B108_incompatible_options_are_refused_by_both_names) {
  struct Row {
    const char* name;
    bool ClientOptions::*option;
  };
  const Row rows[] = {{"compression", &ClientOptions::compression},
                      {"lazy_connect", &ClientOptions::lazy_connect},
                      {"read_only", &ClientOptions::read_only},
                      {"static_discovery", &ClientOptions::static_discovery},
                      {"asynchronous", &ClientOptions::asynchronous},
                      {"client_pool", &ClientOptions::client_pool}};
  FakeServer server;
  for (const Row& row : rows) {
    ClientOptions options = options_for(server);
    options.*row.option = true;
    EXPECT_TRUE(failed_as(Client::create(options), ErrorKind::configuration, row.name));
    options.rdma = RdmaConfiguration{};
    auto refused = Client::create(options);
    EXPECT_TRUE(failed_as(refused, ErrorKind::configuration, row.name));
    EXPECT_TRUE(failed_as(refused, ErrorKind::configuration, "rdma"));
  }
  EXPECT_EQ(server.connections(), 0);
}

TEST(Options, B108_compatible_options_are_accepted) {
  FakeServer server;
  for (const ReadFrom from : {ReadFrom::primary, ReadFrom::prefer_replica, ReadFrom::az_affinity,
                              ReadFrom::az_affinity_replicas_and_primary}) {
    ClientOptions options = options_for(server);
    options.rdma = RdmaConfiguration{};
    options.read_from = from;
    options.request_timeout = std::chrono::milliseconds(1500);
    EXPECT_TRUE(succeeded(Client::create(options)));
  }
}

TEST(Options, ImpossibleValuesAreRefused) {
  FakeServer server;
  const auto refused = [&](const std::function<void(ClientOptions&)>& change, const char* words) {
    ClientOptions options = options_for(server);
    options.rdma = RdmaConfiguration{};
    change(options);
    return failed_as(Client::create(options), ErrorKind::configuration, words);
  };
  EXPECT_TRUE(refused([](auto& o) { o.rdma->connections = 0; }, "connections"));
  EXPECT_TRUE(refused([](auto& o) { o.rdma->connections = 65; }, "connections"));
  EXPECT_TRUE(refused([](auto& o) { o.rdma->interface_name = "nosuch0"; }, "nosuch0"));
  EXPECT_TRUE(refused([](auto& o) { o.resp_version = 4; }, "resp_version"));
  EXPECT_TRUE(refused([](auto& o) { o.addresses.clear(); }, "addresses"));
  EXPECT_TRUE(refused([](auto& o) { o.addresses[0].port = 0; }, "port"));
  EXPECT_TRUE(refused([](auto& o) { o.connect_timeout = std::chrono::milliseconds(0); },
                      "connect_timeout"));
  EXPECT_TRUE(refused([](auto& o) { o.request_timeout = std::chrono::milliseconds(-1); },
                      "request_timeout"));
  EXPECT_TRUE(refused([](auto& o) { o.username = "u"; }, "username"));
  EXPECT_TRUE(refused([](auto& o) { o.tls.ca_file = "ca.pem"; }, "tls"));
  EXPECT_TRUE(refused(
      [](auto& o) {
        o.tls.enabled = true;
        o.tls.key_file = "key.pem";
      },
      "go together"));
  EXPECT_TRUE(refused(
      [](auto& o) {
        o.unix_path = "x.sock";
        o.cluster = true;
      },
      "exclude each other"));
}

TEST(Options, InterfaceByNameOrAddressIsWhereTheServerFindsUs) {
  FakeServer server;
  std::string told;
  server.on("BLOB.RDMA_HELLO", [&](FakeServer::Call& call) {
    told = call.words().at(1);
    call.as_usual();
  });
  for (const char* interface_name : {"lo", "127.0.0.1", ""}) {
    ClientOptions options = options_for(server);
    options.rdma = RdmaConfiguration{};
    options.rdma->interface_name = interface_name;
    auto client = Client::create(options);
    ASSERT_TRUE(succeeded(client));
    std::vector<std::byte> memory(16);
    auto region = client->register_rdma_region(memory);
    ASSERT_TRUE(succeeded(client->rdma_set("k", *region->window())));
    EXPECT_EQ(told.substr(8, 8), "7f000001") << interface_name;  // sockaddr_in of 127.0.0.1
  }
}

TEST(Options, NoServerIsAConnectionError) {
  ClientOptions options;
  {
    FakeServer gone;
    options = options_for(gone);
  }
  EXPECT_TRUE(failed_as(Client::create(options), ErrorKind::connection));
}

TEST(Options, SecondAddressIsTakenWhenTheFirstIsNoPrimary) {
  FakeServer replica;
  replica.on("ROLE", [](FakeServer::Call& call) { call.reply("*2\r\n$5\r\nslave\r\n:0\r\n"); });
  FakeServer primary;
  primary.on("ROLE", [](FakeServer::Call& call) { call.reply("*2\r\n$6\r\nmaster\r\n:0\r\n"); });
  ClientOptions options = options_for(replica);
  options.addresses.push_back({"127.0.0.1", primary.port()});
  auto client = Client::create(options);
  ASSERT_TRUE(succeeded(client));
  ASSERT_TRUE(succeeded(client->command({"PING"})));
  EXPECT_EQ(primary.count("PING"), 1);
  primary.on("ROLE", [](FakeServer::Call& call) { call.reply("*2\r\n$5\r\nslave\r\n:0\r\n"); });
  EXPECT_TRUE(failed_as(Client::create(options), ErrorKind::connection, "not a primary"));
}

// What is installed decides: either answer must be consistent with itself.
TEST(Usability, B114_unusable_libfabric_fails_creation_with_the_reason) {
  FakeServer server;
  for (const RdmaProvider provider : {RdmaProvider::efa_direct, RdmaProvider::tcp}) {
    const RdmaUsability usable = rdma_usable(provider);
    EXPECT_NE(usable.usable, !usable.reason.empty());
    ClientOptions options = options_for(server);
    options.rdma = RdmaConfiguration{};
    options.rdma->provider = provider;
    auto client = Client::create(options);
    if (!usable.usable) {
      EXPECT_TRUE(failed_as(client, ErrorKind::configuration, usable.reason));
    } else if (provider == RdmaProvider::tcp) {
      EXPECT_TRUE(succeeded(client));
    }
  }
  const RdmaUsability general = rdma_usable();
  const bool too_old = general.version.empty() || general.version[0] == '1';
  EXPECT_FALSE(too_old && general.usable);
  EXPECT_TRUE(succeeded(Client::create(options_for(server))));
}

TEST(RoutingKey, FindsTheFirstKeyOfEachForm) {
  const auto key = [](std::vector<std::string_view> words) {
    return std::string(client::routing_key(words));
  };
  EXPECT_EQ(key({"GET", "k"}), "k");
  EXPECT_EQ(key({"ping"}), "");
  EXPECT_EQ(key({"PING", "text"}), "");
  EXPECT_EQ(key({"config", "get", "x"}), "");
  EXPECT_EQ(key({"EVAL", "return 1", "0", "a"}), "");
  EXPECT_EQ(key({"evalsha", "abc", "1", "k", "a"}), "k");
  EXPECT_EQ(key({"OBJECT", "ENCODING", "k"}), "k");
  EXPECT_EQ(key({"memory", "usage", "k"}), "k");
  EXPECT_EQ(key({"BITOP", "AND", "d", "s"}), "d");
  EXPECT_EQ(key({"XREADGROUP", "GROUP", "g", "c", "STREAMS", "k", ">"}), "k");
  EXPECT_EQ(key({"XREAD", "COUNT", "2"}), "");
}

}  // namespace
}  // namespace farlift
