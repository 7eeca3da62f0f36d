// The client against real servers that die, stall, refuse, or speak another fabric.
#include "blob/client/server_test_base.h"

namespace farlift {
namespace {

using testing::add_region;
using testing::connect;
using testing::eventually;
using testing::expect_round_trip;
using testing::failed_as;
using testing::kSentinel;
using testing::kSize;
using testing::options_for;
using testing::pattern;
using testing::same;
using testing::ServerProcess;
using testing::start_server;
using testing::succeeded;

// The first byte that lands changes the sentinel; read as the other thread and the kernel write it.
// ThreadSanitizer is right that this is a race; a caller must not look, a test may.
__attribute__((no_sanitize("thread"))) bool has_begun(std::span<const std::byte> memory) {
  return *const_cast<const volatile std::byte*>(memory.data()) != kSentinel;
}

TEST(ServerFaults, B095_server_killed_in_the_middle_of_a_get) {
  auto server = start_server();
  ASSERT_NE(server, nullptr);
  Client client = connect(options_for(*server));
  constexpr std::size_t kLarge = std::size_t{40} << 20;
  auto buffer = RdmaBuffer::allocate(kLarge);
  ASSERT_TRUE(succeeded(buffer));
  const std::span<std::byte> memory = buffer->bytes();
  std::vector<std::byte> sent = pattern(kLarge);
  sent[0] = std::byte{1};
  std::string reason;
  bool cut = false;
  for (int attempt = 0; attempt < 20 && !cut; ++attempt) {
    std::copy(sent.begin(), sent.end(), memory.begin());
    auto region = client.register_rdma_region(*buffer);
    ASSERT_TRUE(succeeded(region));
    ASSERT_TRUE(succeeded(client.rdma_set("key", *region->window())));
    std::fill(memory.begin(), memory.end(), kSentinel);
    auto waiter =
        std::async(std::launch::async, [&] { return client.rdma_get("key", *region->window()); });
    while (!has_begun(memory)) std::this_thread::yield();
    server->kill();
    const auto receipt = waiter.get();
    cut = !receipt.ok();
    if (cut) {
      EXPECT_TRUE(failed_as(receipt, ErrorKind::connection));
      EXPECT_TRUE(region->closed());
    } else {
      EXPECT_TRUE(same(memory, sent));  // it was faster than the kill
    }
    const std::vector<std::byte> at_return(memory.begin(), memory.end());
    ASSERT_TRUE(server->restart(&reason)) << reason;
    expect_round_trip(client, "again", kSize, 2);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(cut ? 5 : 0);
    do {
      ASSERT_TRUE(same(memory, at_return)) << "a late byte";
    } while (std::chrono::steady_clock::now() < end);
  }
  EXPECT_TRUE(cut) << "no kill was early enough";
}

TEST(ServerFaults, B096_client_closed_while_the_server_is_stopped) {
  auto server = start_server();
  ASSERT_NE(server, nullptr);
  Client client = connect(options_for(*server));
  std::vector<std::byte> memory = pattern(std::size_t{8} << 20);
  RdmaRegion region = add_region(client, memory);
  ASSERT_TRUE(succeeded(client.rdma_set("key", *region.window())));
  std::fill(memory.begin(), memory.end(), kSentinel);
  server->suspend();
  auto waiter =
      std::async(std::launch::async, [&] { return client.rdma_get("key", *region.window()); });
  ASSERT_TRUE(eventually([&] { return client.statistics().transfers == 2; }));
  client.close();
  EXPECT_TRUE(failed_as(waiter.get(), ErrorKind::closing));
  EXPECT_TRUE(region.closed());
  const std::vector<std::byte> at_raise = memory;
  server->resume();
  Client other = connect(options_for(*server));
  // The server has given the transfer up once its binding is gone; nothing came of it here.
  EXPECT_TRUE(eventually([&] {
    auto list = other.command({"CLIENT", "LIST"});
    return list.ok() && list->text.find("cmd=blob.rdma_get") == std::string::npos;
  }));
  EXPECT_TRUE(same(memory, at_raise));
}

TEST(ServerFaults, B098_transfer_ten_times_slower_than_the_request_timeout) {
  auto server = start_server();
  ASSERT_NE(server, nullptr);
  ClientOptions options = options_for(*server);
  options.request_timeout = std::chrono::milliseconds(60);
  Client client = connect(options);
  std::vector<std::byte> memory = pattern(kSize);
  RdmaRegion region = add_region(client, memory);
  ASSERT_TRUE(succeeded(client.rdma_set("key", *region.window())));
  server->suspend();
  auto waiter =
      std::async(std::launch::async, [&] { return client.rdma_get("key", *region.window()); });
  EXPECT_EQ(waiter.wait_for(std::chrono::milliseconds(700)), std::future_status::timeout);
  server->resume();
  EXPECT_TRUE(succeeded(waiter.get()));
}

TEST(ServerFaults, B102_server_without_the_module) {
  std::string reason;
  auto server = ServerProcess::start({}, &reason);
  ASSERT_NE(server, nullptr) << reason;
  Client client = connect(options_for(*server));
  std::vector<std::byte> memory(kSize, kSentinel);
  RdmaRegion region = add_region(client, memory);
  ASSERT_TRUE(succeeded(client.command({"SET", "a", "1"})));
  EXPECT_TRUE(
      failed_as(client.rdma_get("a", *region.window()), ErrorKind::rdma, "unknown command"));
  EXPECT_FALSE(region.closed());
  ASSERT_TRUE(succeeded(client.command({"GET", "a"})));
  EXPECT_TRUE(failed_as(client.tcp_get("a"), ErrorKind::request, "unknown command"));
  EXPECT_EQ(client.statistics().connections_opened, 1u);
}

TEST(ServerFaults, LibfabricTcpMovesTheSameBytes) {
  const RdmaUsability usable = rdma_usable(RdmaProvider::tcp);
  if (!usable.usable) GTEST_SKIP() << usable.reason;
  auto server = start_server();
  ASSERT_NE(server, nullptr);
  ClientOptions options = options_for(*server);
  options.rdma->provider = RdmaProvider::tcp;
  Client client = connect(options);
  for (const std::size_t size : {std::size_t{1}, std::size_t{100'000}, std::size_t{9} << 20}) {
    expect_round_trip(client, "key" + std::to_string(size), size, 4);
  }
  EXPECT_EQ(client.statistics().verified_afterwards, 3u);
  std::vector<std::byte> memory(kSize);
  RdmaRegion region = add_region(client, memory);
  EXPECT_TRUE(
      failed_as(client.rdma_get("key100000", *region.window()), ErrorKind::rdma, "smaller"));
  EXPECT_FALSE(region.closed());
  EXPECT_TRUE(succeeded(region.close()));
}

TEST(ServerFaults, TlsPasswordAndTransfers) {
  testing::ServerOptions options;
  options.tls = true;
  options.password = "secret";
  auto server = start_server(options);
  ASSERT_NE(server, nullptr);
  ClientOptions client_options = options_for(*server);
  client_options.password = "wrong";
  client_options.tls = {.enabled = true,
                        .ca_file = server->tls_files().ca,
                        .certificate_file = {},
                        .key_file = {},
                        .server_name = {},
                        .verify_peer = true};
  EXPECT_TRUE(failed_as(Client::create(client_options), ErrorKind::connection, "WRONGPASS"));
  client_options.password = "secret";
  Client client = connect(client_options);
  expect_round_trip(client, "key", (std::size_t{2} << 20) + 3, 11);
  client_options.tls.ca_file = server->tls_files().other_ca;
  EXPECT_TRUE(failed_as(Client::create(client_options), ErrorKind::connection));
}

TEST(ServerFaults, DeniedByAclIsAnRdmaErrorAndTheConnectionLives) {
  auto server = start_server();
  ASSERT_NE(server, nullptr);
  Client admin = connect(options_for(*server));
  ASSERT_TRUE(succeeded(
      admin.command({"ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-blob.rdma_hello"})));
  ClientOptions options = options_for(*server);
  options.username = "bob";
  options.password = "pw";
  Client client = connect(options);
  std::vector<std::byte> memory(kSize);
  RdmaRegion region = add_region(client, memory);
  EXPECT_TRUE(failed_as(client.rdma_set("key", *region.window()), ErrorKind::rdma, "NOPERM"));
  EXPECT_FALSE(region.closed());
  EXPECT_TRUE(succeeded(client.command({"PING"})));
}

}  // namespace
}  // namespace farlift
