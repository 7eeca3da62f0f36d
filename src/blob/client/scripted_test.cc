// The client against a scripted server: transfers, windows, transactions, refusals before sending.
#include "blob/client/scripted_test_base.h"
#include "blob/client/testing.h"
#include "core/net/resp/connection.h"

#include <atomic>

namespace farlift {
namespace {

using client::Hooks;
using testing::all_are;
using testing::eventually;
using testing::failed_as;
using testing::FakeServer;
using testing::kSentinel;
using testing::kSize;
using testing::pattern;
using testing::same;
using testing::Scripted;
using testing::Signal;
using testing::succeeded;

TEST_F(Scripted, B089_set_get_round_trip_through_windows_at_offsets) {
  std::vector<std::byte> memory = pattern(kSize, 9);
  const std::vector<std::byte> before = memory;
  RdmaRegion region = add_region(memory);
  const std::vector<std::byte> stored(memory.begin() + 100, memory.begin() + 1100);
  ASSERT_TRUE(succeeded(client_->rdma_set("other", *region.window(100, 1000))));
  EXPECT_TRUE(same(server_.get("other"), stored));
  auto receipt = client_->rdma_get("other", *region.window(2000, 1500));
  ASSERT_TRUE(succeeded(receipt));
  ASSERT_TRUE(receipt->has_value());
  EXPECT_EQ((*receipt)->bytes_written, 1000u);
  EXPECT_EQ((*receipt)->checksum, rdma_checksum(stored));
  EXPECT_TRUE(same(std::span(memory).subspan(2000, 1000), stored));
  EXPECT_TRUE(same(std::span(memory).first(2000), std::span(before).first(2000)));
  EXPECT_TRUE(same(std::span(memory).subspan(3000), std::span(before).subspan(3000)));
}

TEST_F(Scripted, B090_missing_key_is_empty_and_touches_nothing) {
  auto receipt = client_->rdma_get("nothing", whole());
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_FALSE(receipt->has_value());
  EXPECT_TRUE(all_are(memory_, kSentinel));
  EXPECT_FALSE(region_->closed());
}

TEST_F(Scripted, VerifiesOnLandingOrAfterwards) {
  expect_good_get();
  EXPECT_EQ(client_->statistics().verified_on_landing + client_->statistics().verified_afterwards,
            1u);
}

TEST_F(Scripted, ScatterFillsWindowsInOrderAndGatherReadsThem) {
  std::vector<std::byte> second(kSize, kSentinel);
  RdmaRegion other = add_region(second);
  const std::vector<RdmaWindow> windows = {*region_->window(3000, 1000), *other.window(10, 2000),
                                           *region_->window(0, 1500)};
  auto receipt = client_->rdma_get("key", windows);
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_EQ((*receipt)->bytes_written, kSize);
  EXPECT_TRUE(same(std::span(memory_).subspan(3000, 1000), std::span(value_).first(1000)));
  EXPECT_TRUE(same(std::span(second).subspan(10, 2000), std::span(value_).subspan(1000, 2000)));
  EXPECT_TRUE(same(std::span(memory_).first(1096), std::span(value_).subspan(3000)));
  EXPECT_TRUE(all_are(std::span(memory_).subspan(1096, 1904), kSentinel));
  EXPECT_TRUE(all_are(std::span(second).first(10), kSentinel));
  EXPECT_TRUE(all_are(std::span(second).subspan(2010), kSentinel));

  ASSERT_TRUE(succeeded(client_->rdma_set("gathered", std::span(windows).first(2))));
  EXPECT_TRUE(same(server_.get("gathered"), std::span(value_).first(3000)));

  const std::vector<RdmaWindow> overlapping = {*region_->window(0, 100), *region_->window(99, 100)};
  EXPECT_TRUE(failed_as(client_->rdma_get("key", overlapping), ErrorKind::rdma, "overlap"));
  const std::vector<RdmaWindow> many(Client::kWindowsMax + 1, *region_->window(0, 1));
  EXPECT_TRUE(failed_as(client_->rdma_set("key", many), ErrorKind::rdma, "at most 256"));
  EXPECT_TRUE(failed_as(client_->rdma_set("key", std::span<const RdmaWindow>()), ErrorKind::rdma));
  EXPECT_FALSE(region_->closed());
}

TEST_F(Scripted, B094_two_regions_of_one_buffer_transfer_at_the_same_time) {
  ClientOptions two = options();
  two.rdma->connections = 2;
  auto made = Client::create(two);
  ASSERT_TRUE(succeeded(made));
  std::atomic<int> inside{0};
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    ++inside;
    EXPECT_TRUE(eventually([&] { return inside == 2; }));  // both are being served
    call.as_usual();
  });
  std::vector<std::byte> buffer(2 * kSize, kSentinel);
  auto get_half = [&](std::size_t half) {
    auto region = made->register_rdma_region(std::span(buffer).subspan(half * kSize, kSize));
    return succeeded(made->rdma_get("key", *region->window()));
  };
  auto first = std::async(std::launch::async, get_half, std::size_t{0});
  EXPECT_TRUE(get_half(1));
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(same(std::span(buffer).first(kSize), value_));
  EXPECT_TRUE(same(std::span(buffer).subspan(kSize), value_));
}

TEST_F(Scripted, B098_request_timeout_does_not_apply_to_a_transfer) {
  ClientOptions quick = options();
  quick.request_timeout = std::chrono::milliseconds(30);
  std::atomic<int> waits{0};
  quick.on_wait = [&] { ++waits; };
  connect(quick);
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(350));
    call.as_usual();
  });
  expect_good_get();
  EXPECT_GE(waits.load(), 1);  // the hook ran, and did not end the wait
  server_.on("PING", [](FakeServer::Call&) {});
  EXPECT_TRUE(failed_as(client_->command({"PING"}), ErrorKind::timeout));
}

TEST_F(Scripted, B099_open_multi_refuses_transfers_before_sending) {
  ASSERT_TRUE(succeeded(client_->command({"MULTI"})));
  EXPECT_TRUE(client_->multi_open());
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma, "EXEC or DISCARD"));
  EXPECT_TRUE(failed_as(client_->rdma_set("key", whole()), ErrorKind::rdma));
  EXPECT_EQ(server_.count("BLOB.RDMA_GET") + server_.count("BLOB.RDMA_SET"), 0);
  EXPECT_EQ(server_.count("BLOB.RDMA_HELLO"), 0);
  EXPECT_FALSE(region_->closed());
  ASSERT_TRUE(succeeded(client_->command({"dIsCaRd"})));
  EXPECT_FALSE(client_->multi_open());
  expect_good_get();
}

TEST_F(Scripted, B100_multi_opened_between_check_and_send) {
  expect_good_get();  // the handshake is done
  std::fill(memory_.begin(), memory_.end(), kSentinel);
  Hooks::install(*client_, {.before_send =
                                [](resp::Connection& connection) {
                                  auto reply = connection.request({"MULTI"});
                                  EXPECT_TRUE(reply.ok());
                                },
                            .before_verify = nullptr});
  const int connections = server_.connections();
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma));
  EXPECT_TRUE(region_->closed());
  Hooks::install(*client_, {});
  // A later EXEC is on another connection and changes nothing.
  EXPECT_TRUE(succeeded(client_->command({"EXEC"})));
  EXPECT_EQ(server_.connections(), connections + 1);
  EXPECT_TRUE(all_are(memory_, kSentinel));
  region_.emplace(add_region(memory_));
  expect_good_get();
}

TEST_F(Scripted, B106_windows_and_regions_that_do_not_fit) {
  EXPECT_TRUE(failed_as(region_->window(kSize + 1), ErrorKind::rdma, "outside"));
  EXPECT_TRUE(failed_as(region_->window(0, kSize + 1), ErrorKind::rdma, "outside"));
  EXPECT_TRUE(failed_as(region_->window(kSize, 1), ErrorKind::rdma, "outside"));
  EXPECT_TRUE(
      failed_as(region_->window(1, static_cast<std::size_t>(-1)), ErrorKind::rdma, "outside"));
  auto empty = region_->window(kSize);
  ASSERT_TRUE(succeeded(empty));
  EXPECT_TRUE(failed_as(client_->rdma_get("key", *empty), ErrorKind::rdma, "length 0"));
  EXPECT_TRUE(failed_as(client_->rdma_set("key", *empty), ErrorKind::rdma, "length 0"));
  EXPECT_FALSE(region_->closed());

  auto other = Client::create(options());
  ASSERT_TRUE(succeeded(other));
  EXPECT_TRUE(failed_as(other->rdma_get("key", whole()), ErrorKind::rdma, "another client"));
  expect_good_get();

  RdmaWindow window = whole();
  ASSERT_TRUE(succeeded(region_->close()));
  EXPECT_TRUE(failed_as(region_->window(), ErrorKind::rdma, "closed"));
  EXPECT_TRUE(failed_as(region_->memory(), ErrorKind::rdma, "closed"));
  EXPECT_TRUE(failed_as(window.memory(), ErrorKind::rdma, "closed"));
  EXPECT_TRUE(failed_as(client_->rdma_get("key", window), ErrorKind::rdma, "closed"));
}

TEST_F(Scripted, B107_empty_memory_is_refused) {
  EXPECT_TRUE(
      failed_as(client_->register_rdma_region(std::span<std::byte>()), ErrorKind::rdma, "empty"));
  EXPECT_TRUE(failed_as(RdmaBuffer::allocate(0), ErrorKind::rdma, "empty"));
}

TEST_F(Scripted, B109_rdma_commands_by_hand_are_refused) {
  const int before = server_.count("BLOB.RDMA_GET") + server_.count("BLOB.RDMA_HELLO");
  for (const char* name : {"blob.rdma_get", "BLOB.RDMA_GET", "bLoB.rDmA_sEt", "Blob.Rdma_Hello"}) {
    EXPECT_TRUE(failed_as(client_->command({name, "key", "1", "0", "8"}), ErrorKind::request));
    EXPECT_TRUE(failed_as(client_->pipeline({{"PING"}, {name, "key"}}), ErrorKind::request));
    EXPECT_TRUE(failed_as(client_->transaction({{"PING"}, {name, "key"}}), ErrorKind::request));
  }
  EXPECT_EQ(server_.count("BLOB.RDMA_GET") + server_.count("BLOB.RDMA_HELLO"), before);
  EXPECT_EQ(server_.count("PING"), 0);
  EXPECT_EQ(server_.count("MULTI"), 0);
  EXPECT_TRUE(failed_as(client_->command({"SELECT", "1"}), ErrorKind::request, "database"));
  EXPECT_TRUE(failed_as(client_->command({"subscribe", "x"}), ErrorKind::request));
  EXPECT_TRUE(failed_as(client_->command({"client", "Reply", "off"}), ErrorKind::request));
  EXPECT_TRUE(failed_as(client_->command({}), ErrorKind::request));
}

TEST_F(Scripted, OrdinaryCommandsDoNotWaitBehindTransfersWithConnectionsOfTheirOwn) {
  ClientOptions two = options();
  two.rdma->connections = 2;
  connect(two);
  Signal started;
  Signal go_on;
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    started.raise();
    EXPECT_TRUE(go_on.wait());
    call.as_usual();
  });
  auto waiter = std::async(std::launch::async, [&] { return get(); });
  ASSERT_TRUE(started.wait());
  EXPECT_TRUE(succeeded(client_->command({"PING"})));
  go_on.raise();
  EXPECT_TRUE(succeeded(waiter.get()));
}

TEST_F(Scripted, OrdinaryCommandBehindATransferTimesOutAndTheTransferGoesOn) {
  ClientOptions quick = options();
  quick.request_timeout = std::chrono::milliseconds(50);
  connect(quick);
  Signal started;
  Signal go_on;
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    started.raise();
    EXPECT_TRUE(go_on.wait());
    call.as_usual();
  });
  std::vector<std::byte> second(kSize);
  RdmaRegion other = add_region(second);
  auto first = std::async(std::launch::async, [&] { return get(); });
  ASSERT_TRUE(started.wait());
  EXPECT_TRUE(failed_as(client_->command({"PING"}), ErrorKind::timeout));
  server_.on("BLOB.RDMA_GET", nullptr);
  auto next =
      std::async(std::launch::async, [&] { return client_->rdma_get("key", *other.window()); });
  EXPECT_EQ(next.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
  go_on.raise();
  EXPECT_TRUE(succeeded(first.get()));
  EXPECT_TRUE(succeeded(next.get()));
}

}  // namespace
}  // namespace farlift
