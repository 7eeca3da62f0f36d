// The client against a real cluster: primaries, redirections, routing.
#include "blob/client/server_test_base.h"
#include "core/base/clock.h"
#include "core/net/resp/connection.h"
#include "core/net/resp/slot.h"

namespace farlift {
namespace {

using testing::ClusterProcess;
using testing::connect;
using testing::eventually;
using testing::expect_round_trip;
using testing::failed_as;
using testing::kSize;
using testing::module_arguments;
using testing::options_for;
using testing::start_server;
using testing::succeeded;

class Cluster : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::ServerOptions options;
    options.arguments = module_arguments();
    std::string reason;
    cluster_ = ClusterProcess::start(3, options, &reason);
    ASSERT_NE(cluster_, nullptr) << reason;
  }
  ClientOptions options() {
    ClientOptions options = options_for(cluster_->server(0));
    options.cluster = true;
    return options;
  }
  // A key that lives on the given server at the start.
  std::string key_on(std::size_t index) {
    for (int i = 0;; ++i) {
      std::string key = "key" + std::to_string(i);
      if (cluster_->owner_of(resp::key_slot(key)) == index) return key;
    }
  }
  std::unique_ptr<ClusterProcess> cluster_;
};

TEST_F(Cluster, B110_transfers_go_to_the_primary_whatever_the_read_strategy) {
  testing::ServerOptions replica_options;
  replica_options.cluster = true;
  auto replica = start_server(replica_options);
  ASSERT_NE(replica, nullptr);
  SystemClock clock;
  auto to_replica = resp::Connection::connect(replica->connection_options(), clock);
  auto to_primary = resp::Connection::connect(cluster_->server(1).connection_options(), clock);
  ASSERT_TRUE(to_replica.ok() && to_primary.ok());
  const auto ask = [](resp::Connection& connection, std::initializer_list<std::string_view> words) {
    auto reply = connection.request(words);
    return reply.ok() && reply->is_text() && !reply->is_error() ? std::string(reply->text())
                                                                : std::string();
  };
  const std::string port = std::to_string(cluster_->server(1).port());
  const std::string bus = std::to_string(cluster_->server(1).cluster_port());
  const std::string id = ask(**to_primary, {"CLUSTER", "MYID"});
  ASSERT_EQ(ask(**to_replica, {"CLUSTER", "MEET", "127.0.0.1", port, bus}), "OK");
  ASSERT_TRUE(eventually([&] { return ask(**to_replica, {"CLUSTER", "REPLICATE", id}) == "OK"; }));
  ASSERT_TRUE(eventually([&] {
    return ask(**to_replica, {"INFO", "replication"}).find("master_link_status:up") !=
           std::string::npos;
  }));

  ClientOptions replicas = options();
  replicas.read_from = ReadFrom::prefer_replica;
  Client client = connect(replicas);
  for (std::size_t i = 0; i < 3; ++i) {
    expect_round_trip(client, key_on(i), kSize, static_cast<unsigned>(i));
  }
  EXPECT_EQ(client.statistics().handshakes, 3u);
  ASSERT_TRUE(succeeded(client.command({"SET", key_on(1), "x"})));
  EXPECT_EQ(ask(**to_replica, {"INFO", "commandstats"}).find("RDMA"), std::string::npos);
  EXPECT_NE(ask(**to_primary, {"INFO", "commandstats"}).find("cmdstat_BLOB.RDMA_GET"),
            std::string::npos);
}

TEST_F(Cluster, B111_moved_is_followed_with_a_handshake_on_the_new_node) {
  Client client = connect(options());
  const std::string key = key_on(0);
  expect_round_trip(client, key_on(2), kSize, 8);  // topology is known now
  const std::string slot = std::to_string(resp::key_slot(key));
  SystemClock clock;
  std::vector<std::unique_ptr<resp::Connection>> nodes;
  for (std::size_t i = 0; i < 3; ++i) {
    auto made = resp::Connection::connect(cluster_->server(i).connection_options(), clock);
    ASSERT_TRUE(made.ok());
    nodes.push_back(std::move(made).value());
  }
  const auto told = nodes[1]->request({"CLUSTER", "MYID"});
  ASSERT_TRUE(told.ok());
  const std::string id(told->text());
  for (auto& node : nodes) {
    const auto reply = node->request({"CLUSTER", "SETSLOT", slot, "NODE", id});
    ASSERT_TRUE(reply.ok() && !reply->is_error());
  }
  expect_round_trip(client, key, 100'000, 9);
  EXPECT_EQ(client.statistics().handshakes, 3u);  // node 2, node 0 (said MOVED), node 1
}

TEST_F(Cluster, B111_ask_is_followed_with_a_handshake_on_the_importing_node) {
  Client client = connect(options());
  const std::string key = key_on(0);
  const std::string slot = std::to_string(resp::key_slot(key));
  SystemClock clock;
  auto from = resp::Connection::connect(cluster_->server(0).connection_options(), clock);
  auto to = resp::Connection::connect(cluster_->server(1).connection_options(), clock);
  ASSERT_TRUE(from.ok() && to.ok());
  const auto from_id = (*from)->request({"CLUSTER", "MYID"});
  const auto to_id = (*to)->request({"CLUSTER", "MYID"});
  ASSERT_TRUE(from_id.ok() && to_id.ok());
  const auto importing = (*to)->request({"CLUSTER", "SETSLOT", slot, "IMPORTING", from_id->text()});
  const auto migrating = (*from)->request({"CLUSTER", "SETSLOT", slot, "MIGRATING", to_id->text()});
  ASSERT_TRUE(importing.ok() && !importing->is_error());
  ASSERT_TRUE(migrating.ok() && !migrating->is_error());
  expect_round_trip(client, key, kSize, 10);  // the key is not here yet: ASK, at every command
  EXPECT_EQ(client.statistics().handshakes, 2u);
}

TEST_F(Cluster, CommandsPipelinesAndTransactionsAreRouted) {
  Client client = connect(options());
  const std::string a = key_on(0);
  const std::string b = key_on(1);
  auto replies = client.pipeline({{"SET", a, "1"}, {"SET", b, "2"}, {"GET", a}, {"GET", b}});
  ASSERT_TRUE(succeeded(replies));
  EXPECT_EQ((*replies)[2].text, "1");
  EXPECT_EQ((*replies)[3].text, "2");
  auto results = client.transaction({{"INCR", b}, {"GET", b}});
  ASSERT_TRUE(succeeded(results));
  EXPECT_EQ((**results)[1].text, "3");
  EXPECT_TRUE(failed_as(client.transaction({{"GET", a}, {"GET", b}}), ErrorKind::request));
  EXPECT_TRUE(failed_as(client.command({"MULTI"}), ErrorKind::request, "transaction()"));
  ASSERT_TRUE(succeeded(client.tcp_set(a + "blob", "value")));
  ASSERT_TRUE(succeeded(client.command({"PING"})));
}

}  // namespace
}  // namespace farlift
