// The client against a real valkey-server with the module, over the soft provider.
#include "blob/client/client_test_base.h"
#include "blob/client/testing.h"
#include "core/base/clock.h"
#include "core/net/resp/connection.h"
#include "core/net/resp/slot.h"

#include <atomic>
#include <cstdlib>
#include <optional>

#include "tests/support/valkey_server.h"

namespace farlift {
namespace {

using testing::all_are;
using testing::ClusterProcess;
using testing::eventually;
using testing::failed_as;
using testing::kSentinel;
using testing::pattern;
using testing::same;
using testing::ServerProcess;
using testing::succeeded;

constexpr std::size_t kSize = 4096;

std::vector<std::string> module_arguments() {
  const char* path = std::getenv("FARLIFT_MODULE");
  return {"--loadmodule",
          path != nullptr ? path : FARLIFT_MODULE_PATH,
          "--largeobj.segment-size",
          "64mb",
          "--largeobj.max-object-size",
          "48mb",
          "--enable-debug-command",
          "yes"};
}

std::unique_ptr<ServerProcess> start_server(testing::ServerOptions options = {}) {
  std::vector<std::string> arguments = module_arguments();
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  options.arguments = arguments;
  std::string reason;
  auto server = ServerProcess::start(options, &reason);
  EXPECT_NE(server, nullptr) << reason;
  return server;
}

ClientOptions options_for(const ServerProcess& server) {
  ClientOptions options;
  options.addresses = {{"127.0.0.1", server.port()}};
  options.request_timeout = std::chrono::seconds(20);
  options.rdma = RdmaConfiguration{};
  return options;
}

Client connect(ClientOptions options) {
  auto client = Client::create(std::move(options));
  EXPECT_TRUE(succeeded(client));
  return std::move(client).value();
}

RdmaRegion add_region(Client& client, std::span<std::byte> memory) {
  auto region = client.register_rdma_region(memory);
  EXPECT_TRUE(succeeded(region));
  return std::move(region).value();
}

// How often the server ran a command, from INFO commandstats.
int calls(Client& client, const std::string& command) {
  auto info = client.command({"INFO", "commandstats"});
  EXPECT_TRUE(succeeded(info));
  const std::string head = "cmdstat_" + command + ":calls=";
  const std::size_t at = info->text.find(head);
  return at == std::string::npos ? 0 : std::atoi(info->text.c_str() + at + head.size());  // NOLINT
}

void expect_round_trip(Client& client, const std::string& key, std::size_t size, unsigned seed) {
  std::vector<std::byte> memory = pattern(size, seed);
  const std::vector<std::byte> sent = memory;
  RdmaRegion region = add_region(client, memory);
  ASSERT_TRUE(succeeded(client.rdma_set(key, *region.window())));
  std::fill(memory.begin(), memory.end(), kSentinel);
  auto receipt = client.rdma_get(key, *region.window());
  ASSERT_TRUE(succeeded(receipt));
  ASSERT_TRUE(receipt->has_value());
  EXPECT_EQ((*receipt)->bytes_written, size);
  EXPECT_EQ((*receipt)->checksum, rdma_checksum(sent));
  EXPECT_TRUE(same(memory, sent));
}

class Server : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { shared_ = start_server().release(); }
  static void TearDownTestSuite() {
    delete shared_;
    shared_ = nullptr;
  }
  void SetUp() override {
    ASSERT_NE(shared_, nullptr);
    client_.emplace(connect(options_for(*shared_)));
    ASSERT_TRUE(succeeded(client_->command({"FLUSHALL"})));
    ASSERT_TRUE(succeeded(client_->command({"CONFIG", "RESETSTAT"})));
  }

  static ServerProcess* shared_;
  std::optional<Client> client_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSize, kSentinel);
};
ServerProcess* Server::shared_ = nullptr;

TEST_F(Server, B088_one_handshake_per_connection) {
  RdmaRegion region = add_region(*client_, memory_);
  ASSERT_TRUE(succeeded(client_->rdma_set("key", *region.window())));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(succeeded(client_->rdma_get("key", *region.window())));
  EXPECT_EQ(calls(*client_, "BLOB.RDMA_HELLO"), 1);

  auto id = client_->command({"CLIENT", "ID"});
  ASSERT_TRUE(succeeded(id));
  Client other = connect(options_for(*shared_));
  ASSERT_TRUE(succeeded(other.command({"CLIENT", "KILL", "ID", std::to_string(id->integer)})));
  ASSERT_TRUE(succeeded(client_->rdma_get("key", *region.window())));
  EXPECT_EQ(calls(other, "BLOB.RDMA_HELLO"), 2);
  EXPECT_FALSE(region.closed());
}

TEST_F(Server, B088_concurrent_first_transfers_make_one_handshake) {
  std::vector<std::vector<std::byte>> memories(6, pattern(kSize));
  std::vector<std::future<bool>> done;
  for (std::size_t i = 0; i < memories.size(); ++i) {
    done.push_back(std::async(std::launch::async, [&, i] {
      RdmaRegion region = add_region(*client_, memories[i]);
      return client_->rdma_set("key" + std::to_string(i), *region.window()).ok();
    }));
  }
  for (auto& one : done) EXPECT_TRUE(one.get());
  EXPECT_EQ(calls(*client_, "BLOB.RDMA_HELLO"), 1);
}

TEST_F(Server, B089_sizes_around_every_border_round_trip) {
  for (const std::size_t size :
       {std::size_t{1}, std::size_t{4095}, std::size_t{65536}, (std::size_t{1} << 20) + 1,
        std::size_t{8} << 20, (std::size_t{20} << 20) + 7}) {
    expect_round_trip(*client_, "key" + std::to_string(size), size, static_cast<unsigned>(size));
  }
  EXPECT_EQ(client_->statistics().verified_on_landing + client_->statistics().verified_afterwards,
            6u);
}

TEST_F(Server, B089_buffers_of_the_library_and_the_remote_lane) {
  for (const bool host_lane : {true, false}) {
    ClientOptions options = options_for(*shared_);
    options.rdma->host_lane = host_lane;
    Client client = connect(options);
    auto buffer = RdmaBuffer::allocate((std::size_t{5} << 20) + 1);
    ASSERT_TRUE(succeeded(buffer));
    const std::vector<std::byte> sent = pattern(buffer->bytes().size(), 3);
    std::copy(sent.begin(), sent.end(), buffer->bytes().begin());
    auto region = client.register_rdma_region(*buffer);
    ASSERT_TRUE(succeeded(region));
    EXPECT_EQ(region->capacity(), sent.size());
    ASSERT_TRUE(succeeded(client.rdma_set("buffer", *region->window())));
    std::fill(buffer->bytes().begin(), buffer->bytes().end(), kSentinel);
    auto receipt = client.rdma_get("buffer", *region->window());
    ASSERT_TRUE(succeeded(receipt));
    EXPECT_TRUE(same(buffer->bytes(), sent));
  }
}

TEST_F(Server, B090_missing_key_is_empty_in_both_protocols) {
  for (const int version : {2, 3}) {
    ClientOptions options = options_for(*shared_);
    options.resp_version = version;
    Client client = connect(options);
    RdmaRegion region = add_region(client, memory_);
    auto receipt = client.rdma_get("missing", *region.window());
    ASSERT_TRUE(succeeded(receipt));
    EXPECT_FALSE(receipt->has_value());
    EXPECT_TRUE(all_are(memory_, kSentinel));
    EXPECT_FALSE(region.closed());
  }
}

TEST_F(Server, B091_value_larger_than_window_is_refused_with_nothing_written) {
  std::vector<std::byte> source = pattern(kSize);
  RdmaRegion from = add_region(*client_, source);
  ASSERT_TRUE(succeeded(client_->rdma_set("key", *from.window())));
  std::vector<std::byte> target(2 * kSize, kSentinel);
  RdmaRegion region = add_region(*client_, target);
  EXPECT_TRUE(failed_as(client_->rdma_get("key", *region.window(100, kSize - 1)), ErrorKind::rdma,
                        "smaller than object length"));
  EXPECT_FALSE(region.closed());
  EXPECT_TRUE(all_are(target, kSentinel));
  auto receipt = client_->rdma_get("key", *region.window(100, kSize));
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_TRUE(same(std::span(target).subspan(100, kSize), source));
}

TEST_F(Server, B094_slices_of_one_buffer_in_parallel_threads) {
  ClientOptions options = options_for(*shared_);
  options.rdma->connections = 4;
  Client client = connect(options);
  std::vector<std::byte> buffer = pattern(8 * kSize * 16);
  const std::vector<std::byte> sent = buffer;
  constexpr std::size_t kSlice = 2 * kSize * 16;
  std::vector<std::future<int>> done;
  for (std::size_t i = 0; i < 4; ++i) {
    done.push_back(std::async(std::launch::async, [&, i] {
      const std::span<std::byte> slice = std::span(buffer).subspan(i * kSlice, kSlice);
      const std::span<const std::byte> expected = std::span(sent).subspan(i * kSlice, kSlice);
      RdmaRegion region = add_region(client, slice);
      const std::string key = "slice" + std::to_string(i);
      int wrong = 0;
      for (int round = 0; round < 25; ++round) {
        wrong += client.rdma_set(key, *region.window()).ok() ? 0 : 1;
        std::fill(slice.begin(), slice.end(), kSentinel);
        auto receipt = client.rdma_get(key, *region.window());
        wrong += receipt.ok() && receipt->has_value() && same(slice, expected) ? 0 : 1;
      }
      return wrong;
    }));
  }
  for (auto& one : done) EXPECT_EQ(one.get(), 0);
  EXPECT_LE(client.statistics().handshakes, 4u);
}

TEST_F(Server, ScatterOverAllWindowsThatATransferMayName) {
  std::vector<std::byte> memory = pattern(Client::kWindowsMax * 64);
  const std::vector<std::byte> sent = memory;
  RdmaRegion region = add_region(*client_, memory);
  std::vector<RdmaWindow> backwards;
  for (std::size_t i = Client::kWindowsMax; i > 0; --i)
    backwards.push_back(*region.window((i - 1) * 64, 64));
  ASSERT_TRUE(succeeded(client_->rdma_set("scattered", backwards)));
  std::fill(memory.begin(), memory.end(), kSentinel);
  auto receipt = client_->rdma_get("scattered", backwards);
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_EQ((*receipt)->bytes_written, sent.size());
  EXPECT_TRUE(same(memory, sent));
}

TEST_F(Server, B099_multi_open_then_discard) {
  RdmaRegion region = add_region(*client_, memory_);
  ASSERT_TRUE(succeeded(client_->command({"MULTI"})));
  EXPECT_TRUE(failed_as(client_->rdma_set("key", *region.window()), ErrorKind::rdma));
  EXPECT_FALSE(region.closed());
  ASSERT_TRUE(succeeded(client_->command({"DISCARD"})));
  ASSERT_TRUE(succeeded(client_->rdma_set("key", *region.window())));
  // EXEC closes it too, also when it reports an aborted transaction.
  ASSERT_TRUE(succeeded(client_->command({"MULTI"})));
  EXPECT_TRUE(failed_as(client_->command({"NOSUCHCOMMAND"}), ErrorKind::request));
  EXPECT_TRUE(client_->multi_open());
  EXPECT_TRUE(failed_as(client_->command({"EXEC"}), ErrorKind::request, "EXECABORT"));
  EXPECT_FALSE(client_->multi_open());
  ASSERT_TRUE(succeeded(client_->rdma_get("key", *region.window())));
}

TEST_F(Server, B100_transfer_queued_by_a_multi_that_came_between) {
  std::vector<std::byte> source = pattern(kSize);
  RdmaRegion from = add_region(*client_, source);
  ASSERT_TRUE(succeeded(client_->rdma_set("key", *from.window())));
  RdmaRegion region = add_region(*client_, memory_);
  client::Hooks::install(*client_, {.before_send =
                                        [](resp::Connection& connection) {
                                          EXPECT_TRUE(connection.request({"MULTI"}).ok());
                                        },
                                    .before_verify = nullptr});
  EXPECT_TRUE(failed_as(client_->rdma_get("key", *region.window()), ErrorKind::rdma));
  client::Hooks::install(*client_, {});
  EXPECT_TRUE(region.closed());
  EXPECT_TRUE(failed_as(client_->command({"EXEC"}), ErrorKind::request));
  EXPECT_TRUE(all_are(memory_, kSentinel));
}

TEST_F(Server, B104_corrupt_byte_after_a_real_transfer) {
  std::vector<std::byte> source = pattern(kSize);
  RdmaRegion region = add_region(*client_, source);
  ASSERT_TRUE(succeeded(client_->rdma_set("key", *region.window())));
  client::Hooks::install(*client_,
                         {.before_send = nullptr, .before_verify = [](std::span<std::byte> landed) {
                            landed[0] ^= std::byte{0x80};
                          }});
  EXPECT_TRUE(failed_as(client_->rdma_get("key", *region.window()), ErrorKind::rdma, "CRC-32C"));
  EXPECT_FALSE(region.closed());
}

TEST_F(Server, B105_wrong_checksum_changes_nothing) {
  std::vector<std::byte> source = pattern(kSize);
  RdmaRegion region = add_region(*client_, source);
  const std::uint32_t crc = rdma_checksum(source);
  ASSERT_TRUE(succeeded(client_->rdma_set("key", *region.window(), crc)));
  source[0] ^= std::byte{1};
  EXPECT_TRUE(failed_as(client_->rdma_set("key", *region.window(), crc), ErrorKind::rdma,
                        "CRC32C mismatch"));
  EXPECT_FALSE(region.closed());
  auto info = client_->blob_info("key");
  ASSERT_TRUE(succeeded(info));
  ASSERT_TRUE(info->has_value());
  EXPECT_EQ((*info)->length, kSize);
  EXPECT_EQ((*info)->checksum, crc);
  EXPECT_EQ((*info)->tier, "dram");
}

TEST_F(Server, ServerErrorsCarryTheServersWordsAndLeaveTheRegionOpen) {
  RdmaRegion region = add_region(*client_, memory_);
  ASSERT_TRUE(succeeded(client_->command({"SET", "string", "x"})));
  EXPECT_TRUE(
      failed_as(client_->rdma_get("string", *region.window()), ErrorKind::rdma, "WRONGTYPE"));
  EXPECT_TRUE(
      failed_as(client_->rdma_set("string", *region.window()), ErrorKind::rdma, "WRONGTYPE"));
  ASSERT_TRUE(succeeded(client_->command({"CONFIG", "SET", "largeobj.max-object-size", "1kb"})));
  EXPECT_TRUE(failed_as(client_->rdma_set("large", *region.window()), ErrorKind::rdma,
                        "max object size exceeded"));
  ASSERT_TRUE(succeeded(client_->command({"CONFIG", "SET", "largeobj.max-object-size", "48mb"})));
  EXPECT_FALSE(region.closed());
}

TEST_F(Server, InlineCommandsAndTransfersSeeTheSameBytes) {
  const std::string value("bin\0ary\r\n", 9);
  ASSERT_TRUE(succeeded(client_->tcp_set("inline", value)));
  RdmaRegion region = add_region(*client_, memory_);
  auto receipt = client_->rdma_get("inline", *region.window());
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_TRUE(same(std::span(memory_).first(9), std::as_bytes(std::span(value))));
  auto text = client_->tcp_get("inline");
  ASSERT_TRUE(succeeded(text));
  EXPECT_EQ(**text, value);
  std::vector<std::byte> into(9);
  auto length = client_->tcp_get("inline", into);
  ASSERT_TRUE(succeeded(length));
  EXPECT_EQ(**length, 9u);
  EXPECT_TRUE(same(into, std::as_bytes(std::span(value))));
  EXPECT_TRUE(
      failed_as(client_->tcp_get("inline", std::span(into).first(8)), ErrorKind::request, "fit"));
  auto missing = client_->tcp_get("missing");
  ASSERT_TRUE(succeeded(missing));
  EXPECT_FALSE(missing->has_value());
  auto no_info = client_->blob_info("missing");
  ASSERT_TRUE(succeeded(no_info));
  EXPECT_FALSE(no_info->has_value());
}

TEST_F(Server, PipelinesAndTransactions) {
  auto replies =
      client_->pipeline({{"SET", "a", "1"}, {"INCR", "a"}, {"LPUSH", "a", "x"}, {"GET", "a"}});
  ASSERT_TRUE(succeeded(replies));
  ASSERT_EQ(replies->size(), 4u);
  EXPECT_EQ((*replies)[1].integer, 2);
  EXPECT_TRUE((*replies)[2].is_error());
  EXPECT_EQ((*replies)[3].text, "2");

  auto results = client_->transaction({{"SET", "b", "7"}, {"INCR", "b"}});
  ASSERT_TRUE(succeeded(results));
  ASSERT_TRUE(results->has_value());
  EXPECT_EQ((**results)[1].integer, 8);
  EXPECT_FALSE(client_->multi_open());
  EXPECT_TRUE(
      failed_as(client_->transaction({{"NOSUCHCOMMAND"}}), ErrorKind::request, "unknown command"));
  EXPECT_FALSE(client_->multi_open());

  ASSERT_TRUE(succeeded(client_->command({"WATCH", "b"})));
  Client other = connect(options_for(*shared_));
  ASSERT_TRUE(succeeded(other.command({"SET", "b", "9"})));
  auto aborted = client_->transaction({{"INCR", "b"}});
  ASSERT_TRUE(succeeded(aborted));
  EXPECT_FALSE(aborted->has_value());
  auto map = client_->command({"CONFIG", "GET", "maxmemory"});
  ASSERT_TRUE(succeeded(map));
  EXPECT_EQ(map->kind, ReplyKind::map);
  EXPECT_EQ(map->items.size(), 2u);
}

TEST_F(Server, RespTwoDatabaseNameAndUnixSocket) {
  ClientOptions options = options_for(*shared_);
  options.resp_version = 2;
  options.database = 3;
  options.client_name = "far";
  options.unix_path = shared_->unix_path();
  Client client = connect(options);
  expect_round_trip(client, "elsewhere", 70'000, 5);
  auto name = client.command({"CLIENT", "GETNAME"});
  ASSERT_TRUE(succeeded(name));
  EXPECT_EQ(name->text, "far");
  auto here = client_->command({"EXISTS", "elsewhere"});
  ASSERT_TRUE(succeeded(here));
  EXPECT_EQ(here->integer, 0);
}

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
