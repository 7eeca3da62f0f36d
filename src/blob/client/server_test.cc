// The client against a real valkey-server with the module, over the soft provider.
#include "blob/client/server_test_base.h"
#include "blob/client/testing.h"
#include "core/net/resp/connection.h"

#include <optional>

namespace farlift {
namespace {

using testing::add_region;
using testing::all_are;
using testing::calls;
using testing::connect;
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

}  // namespace
}  // namespace farlift
