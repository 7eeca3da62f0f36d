// The client against a scripted server: odd replies, lost connections, faults on purpose.
#include "blob/client/client_test_base.h"
#include "blob/client/fake_server.h"
#include "blob/client/testing.h"
#include "core/net/resp/connection.h"

#include <atomic>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>

namespace farlift {
namespace {

using client::Hooks;
using testing::all_are;
using testing::eventually;
using testing::failed_as;
using testing::FakeServer;
using testing::get_reply;
using testing::kSentinel;
using testing::pattern;
using testing::same;
using testing::Signal;
using testing::succeeded;

constexpr std::size_t kSize = 4096;

class Scripted : public ::testing::Test {
 protected:
  void SetUp() override {
    server_.put("key", value_);
    connect(options());
  }

  ClientOptions options() const {
    ClientOptions options;
    options.addresses = {{"127.0.0.1", server_.port()}};
    options.rdma = RdmaConfiguration{};
    return options;
  }
  void connect(ClientOptions options) {
    auto made = Client::create(std::move(options));
    ASSERT_TRUE(succeeded(made));
    client_.emplace(std::move(made).value());
    region_.emplace(add_region(memory_));
  }
  RdmaRegion add_region(std::span<std::byte> memory) {
    auto region = client_->register_rdma_region(memory);
    EXPECT_TRUE(succeeded(region));
    return std::move(region).value();
  }
  RdmaWindow whole() { return *region_->window(); }
  Expected<std::optional<RdmaReadReceipt>> get() { return client_->rdma_get("key", whole()); }
  void expect_good_get() {
    auto receipt = get();
    ASSERT_TRUE(succeeded(receipt));
    ASSERT_TRUE(receipt->has_value());
    EXPECT_EQ((*receipt)->bytes_written, value_.size());
    EXPECT_EQ((*receipt)->checksum, rdma_checksum(value_));
    EXPECT_TRUE(same(std::span(memory_).first(value_.size()), value_));
  }

  const std::vector<std::byte> value_ = pattern(kSize);
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSize, kSentinel);
  FakeServer server_;
  std::optional<Client> client_;
  std::optional<RdmaRegion> region_;
};

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

TEST_F(Scripted, B092_B093_busy_region_refuses_a_second_transfer_and_close) {
  Signal started;
  Signal go_on;
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    started.raise();
    EXPECT_TRUE(go_on.wait());
    call.as_usual();
  });
  auto first = std::async(std::launch::async, [&] {
    return client_->rdma_get("key", *region_->window(0, kSize - 1 + 1));
  });
  ASSERT_TRUE(started.wait());
  EXPECT_TRUE(failed_as(client_->rdma_get("key", *region_->window(1, 1)), ErrorKind::rdma, "busy"));
  EXPECT_TRUE(failed_as(region_->close(), ErrorKind::rdma, "busy"));
  EXPECT_EQ(server_.count("BLOB.RDMA_GET"), 1);
  go_on.raise();
  EXPECT_TRUE(succeeded(first.get()));
  EXPECT_TRUE(same(memory_, value_));
  server_.on("BLOB.RDMA_GET", nullptr);
  expect_good_get();
  EXPECT_TRUE(succeeded(region_->close()));
  EXPECT_TRUE(region_->closed());
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

TEST_F(Scripted, B096_client_closed_while_the_server_is_stalled) {
  Signal landed_half;
  Signal go_on;
  Signal done;
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    EXPECT_TRUE(call.write({value_.begin(), value_.begin() + kSize / 2}).ok());
    landed_half.raise();
    EXPECT_TRUE(go_on.wait());
    EXPECT_FALSE(call.write(value_).ok());  // cut off
    done.raise();
  });
  std::vector<std::byte> idle_memory(kSize, kSentinel);
  RdmaRegion idle = add_region(idle_memory);
  auto waiter = std::async(std::launch::async, [&] { return get(); });
  ASSERT_TRUE(landed_half.wait());
  client_->close();
  EXPECT_TRUE(region_->closed());
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(failed_as(waiter.get(), ErrorKind::closing));
  const std::vector<std::byte> at_raise = memory_;
  EXPECT_TRUE(same(std::span(memory_).first(kSize / 2), std::span(value_).first(kSize / 2)));
  go_on.raise();
  ASSERT_TRUE(done.wait());
  EXPECT_TRUE(same(memory_, at_raise));
  EXPECT_TRUE(all_are(idle_memory, kSentinel));
}

TEST_F(Scripted, B097_close_racing_the_reply_never_hangs_and_never_lies) {
  for (int round = 0; round < 60; ++round) {
    auto made = Client::create(options());
    ASSERT_TRUE(succeeded(made));
    std::vector<std::byte> memory(kSize, kSentinel);
    auto region = made->register_rdma_region(memory);
    ASSERT_TRUE(succeeded(made->rdma_get("key", *region->window())));
    std::fill(memory.begin(), memory.end(), kSentinel);
    std::atomic<bool> replied{false};
    server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
      call.as_usual();
      replied = true;
    });
    const RdmaWindow window = *region->window();
    auto waiter = std::async(std::launch::async, [&] { return made->rdma_get("key", window); });
    if (round % 3 != 0) {
      EXPECT_TRUE(eventually(
          [&] { return round % 3 == 1 ? made->statistics().transfers == 2 : replied.load(); }));
    }
    made->close();
    auto receipt = waiter.get();
    EXPECT_TRUE(region->closed());
    if (receipt.ok()) {
      ASSERT_TRUE(receipt->has_value());
      EXPECT_TRUE(same(memory, value_));
    } else {
      EXPECT_TRUE(failed_as(receipt, ErrorKind::closing));
    }
    // The script refers to this round's variables.
    EXPECT_TRUE(eventually([&] { return replied || made->statistics().transfers == 1; }));
    server_.on("BLOB.RDMA_GET", nullptr);
  }
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

class OddReply : public Scripted, public ::testing::WithParamInterface<const char*> {};

TEST_P(OddReply, B101_get_closes_the_region_and_drops_the_connection) {
  server_.on("BLOB.RDMA_GET", [](FakeServer::Call& call) { call.reply(GetParam()); });
  const int connections = server_.connections();
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma));
  EXPECT_TRUE(region_->closed());
  server_.on("BLOB.RDMA_GET", nullptr);
  region_.emplace(add_region(memory_));
  expect_good_get();
  EXPECT_EQ(server_.connections(), connections + 1);
  EXPECT_EQ(server_.count("BLOB.RDMA_HELLO"), 2);
}

TEST_P(OddReply, B101_set_closes_the_region_and_drops_the_connection) {
  server_.on("BLOB.RDMA_SET", [](FakeServer::Call& call) { call.reply(GetParam()); });
  EXPECT_TRUE(failed_as(client_->rdma_set("key", whole()), ErrorKind::rdma));
  EXPECT_TRUE(region_->closed());
  EXPECT_TRUE(succeeded(client_->command({"PING"})));
  EXPECT_EQ(server_.connections(), 2);
}

INSTANTIATE_TEST_SUITE_P(Replies, OddReply,
                         ::testing::Values(":4096\r\n", "%1\r\n+a\r\n:1\r\n",
                                           "*1\r\n*2\r\n:1\r\n:2\r\n", "*3\r\n:1\r\n:2\r\n:3\r\n",
                                           "*2\r\n:-1\r\n:2\r\n", "*2\r\n:1\r\n:4294967296\r\n",
                                           "*2\r\n:1\r\n$1\r\n2\r\n", "*2\r\n:0\r\n:0\r\n",
                                           "+QUEUED\r\n", "$2\r\nOK\r\n", "#t\r\n", "*0\r\n"));

TEST_F(Scripted, ReportedLengthAboveTheWindowClosesTheRegion) {
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    EXPECT_TRUE(call.write(value_).ok());
    call.reply(get_reply(kSize + 1, 7));
  });
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma, "4097"));
  EXPECT_TRUE(region_->closed());
}

TEST_F(Scripted, WritingBesideTheWindowClosesTheRegion) {
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    // The window is the first half; the whole registration can be reached with its key.
    std::vector<std::string> words = call.words();
    FakeServer::Bytes bytes = value_;
    EXPECT_TRUE(call.write_at(words[2], 0, bytes).ok());
    call.reply(get_reply(kSize / 2, rdma_checksum(std::span(value_).first(kSize / 2))));
  });
  EXPECT_TRUE(failed_as(client_->rdma_get("key", *region_->window(0, kSize / 2)), ErrorKind::rdma,
                        "outside the window"));
  EXPECT_TRUE(region_->closed());
}

TEST_F(Scripted, B102_handshake_refused_leaves_connection_and_region) {
  server_.on("BLOB.RDMA_HELLO", [](FakeServer::Call& call) {
    call.reply("-ERR unknown command 'BLOB.RDMA_HELLO'\r\n");
  });
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma, "unknown command"));
  EXPECT_FALSE(region_->closed());
  EXPECT_TRUE(succeeded(client_->command({"PING"})));
  EXPECT_EQ(server_.connections(), 1);
  EXPECT_EQ(server_.count("BLOB.RDMA_GET"), 0);
  server_.on("BLOB.RDMA_HELLO", nullptr);
  expect_good_get();
}

TEST_F(Scripted, B103_handshake_cut_off_is_a_connection_error_standalone) {
  server_.on("BLOB.RDMA_HELLO", [](FakeServer::Call& call) { call.hang_up(); });
  EXPECT_TRUE(failed_as(get(), ErrorKind::connection));
  EXPECT_FALSE(region_->closed());
  EXPECT_EQ(server_.count("BLOB.RDMA_HELLO"), 1);
  server_.on("BLOB.RDMA_HELLO", nullptr);
  expect_good_get();
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(Scripted, HandshakeWithNonsenseIsAConnectionError) {
  for (const char* odd : {"+OK\r\n", "*0\r\n", "*1\r\n:1\r\n", "*1\r\n$2\r\nzz\r\n", "_\r\n"}) {
    server_.on("BLOB.RDMA_HELLO", [odd](FakeServer::Call& call) { call.reply(odd); });
    EXPECT_TRUE(failed_as(get(), ErrorKind::connection)) << odd;
    EXPECT_FALSE(region_->closed());
  }
}

TEST_F(Scripted, B103_cluster_client_repeats_the_transfer_on_a_new_connection) {
  server_.on("CLUSTER", [&](FakeServer::Call& call) {
    call.reply("*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n$9\r\n127.0.0.1\r\n:" +
               std::to_string(server_.port()) + "\r\n$4\r\nnode\r\n");
  });
  std::atomic<int> greetings{0};
  server_.on("BLOB.RDMA_HELLO", [&](FakeServer::Call& call) {
    if (++greetings == 1) return call.hang_up();
    call.as_usual();
  });
  ClientOptions cluster = options();
  cluster.cluster = true;
  connect(cluster);
  expect_good_get();
  EXPECT_FALSE(region_->closed());
  EXPECT_EQ(greetings, 2);
}

TEST_F(Scripted, B104_corrupt_byte_is_found_and_the_region_stays_open) {
  Hooks::install(*client_,
                 {.before_send = nullptr, .before_verify = [](std::span<std::byte> landed) {
                    landed[landed.size() / 2] ^= std::byte{1};
                  }});
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma, "CRC-32C mismatch"));
  EXPECT_FALSE(region_->closed());
  EXPECT_EQ(client_->statistics().verified_afterwards, 1u);
  Hooks::install(*client_, {});
  expect_good_get();
}

TEST_F(Scripted, B104_wrong_byte_from_the_server_is_found_by_the_landing_pass) {
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    FakeServer::Bytes wrong = value_;
    wrong[17] ^= std::byte{0x10};
    EXPECT_TRUE(call.write(wrong).ok());
    call.reply(get_reply(kSize, rdma_checksum(value_)));
  });
  EXPECT_TRUE(failed_as(get(), ErrorKind::rdma, "CRC-32C mismatch"));
  EXPECT_FALSE(region_->closed());
  server_.on("BLOB.RDMA_GET", nullptr);
  expect_good_get();
}

TEST_F(Scripted, BytesThatLandTwiceAreReadAgain) {
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    EXPECT_TRUE(call.write(pattern(kSize, 5)).ok());
    EXPECT_TRUE(call.write(value_).ok());
    call.reply(get_reply(kSize, rdma_checksum(value_)));
  });
  expect_good_get();
  EXPECT_EQ(client_->statistics().verified_afterwards, 1u);
}

TEST_F(Scripted, UnverifiedReceiptsAreNotChecked) {
  ClientOptions unverified = options();
  unverified.rdma->verify = false;
  connect(unverified);
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) { call.reply(get_reply(10, 1)); });
  auto receipt = get();
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_EQ((*receipt)->checksum, 1u);
  EXPECT_EQ(client_->statistics().verified_on_landing + client_->statistics().verified_afterwards,
            0u);
}

TEST_F(Scripted, B095_connection_lost_after_sending_closes_the_region_and_is_not_repeated) {
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    EXPECT_TRUE(call.write({value_.begin(), value_.begin() + 100}).ok());
    call.hang_up();
  });
  EXPECT_TRUE(failed_as(get(), ErrorKind::connection));
  EXPECT_TRUE(region_->closed());
  EXPECT_EQ(server_.count("BLOB.RDMA_GET"), 1);
  EXPECT_TRUE(failed_as(region_->window(), ErrorKind::rdma, "closed"));
  server_.on("BLOB.RDMA_GET", nullptr);
  region_.emplace(add_region(memory_));
  expect_good_get();
}

TEST_F(Scripted, IdleConnectionThatTheServerClosedIsReplacedUnnoticed) {
  expect_good_get();
  Signal hung_up;
  server_.on("PING", [&](FakeServer::Call& call) {
    call.reply("+PONG\r\n");
    call.hang_up();
    hung_up.raise();
  });
  ASSERT_TRUE(succeeded(client_->command({"PING"})));
  ASSERT_TRUE(hung_up.wait());
  expect_good_get();
  EXPECT_FALSE(region_->closed());
  EXPECT_EQ(server_.count("BLOB.RDMA_HELLO"), 2);
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

TEST_F(Scripted, B112_region_dropped_while_busy_keeps_its_memory_until_the_reply) {
  Signal started;
  Signal go_on;
  server_.on("BLOB.RDMA_GET", [&](FakeServer::Call& call) {
    started.raise();
    EXPECT_TRUE(go_on.wait());
    call.as_usual();
  });
  auto memory = std::make_shared<std::vector<std::byte>>(kSize, kSentinel);
  const std::weak_ptr<std::vector<std::byte>> watch = memory;
  auto region = client_->register_rdma_region(*memory, memory);
  ASSERT_TRUE(succeeded(region));
  memory.reset();
  std::optional<RdmaRegion> handle(std::move(region).value());
  std::optional<RdmaWindow> window(*handle->window());
  auto waiter = std::async(std::launch::async,
                           [&, moved = *window] { return client_->rdma_get("key", moved); });
  ASSERT_TRUE(started.wait());
  window.reset();
  handle.reset();
  EXPECT_FALSE(watch.expired());
  go_on.raise();
  auto receipt = waiter.get();
  ASSERT_TRUE(succeeded(receipt));
  EXPECT_EQ((*receipt)->bytes_written, kSize);
  // The window that the thread's function captured was the last handle.
  waiter = {};
  EXPECT_TRUE(eventually([&] { return watch.expired(); }));
}

TEST_F(Scripted, OwnerIsDroppedWhenTheRegionCloses) {
  auto memory = std::make_shared<std::vector<std::byte>>(kSize);
  const std::weak_ptr<std::vector<std::byte>> watch = memory;
  auto region = client_->register_rdma_region(*memory, memory);
  memory.reset();
  EXPECT_FALSE(watch.expired());
  ASSERT_TRUE(succeeded(region->close()));
  EXPECT_TRUE(watch.expired());
}

TEST_F(Scripted, B113_closing_twice_is_harmless) {
  expect_good_get();
  RdmaWindow window = whole();
  EXPECT_TRUE(succeeded(region_->close()));
  EXPECT_TRUE(succeeded(region_->close()));
  client_->close();
  client_->close();
  EXPECT_TRUE(client_->closed());
  EXPECT_TRUE(succeeded(region_->close()));
  EXPECT_TRUE(failed_as(client_->rdma_get("key", window), ErrorKind::closing));
  EXPECT_TRUE(failed_as(client_->command({"PING"}), ErrorKind::closing));
  EXPECT_TRUE(failed_as(client_->pipeline({{"PING"}}), ErrorKind::closing));
  EXPECT_TRUE(failed_as(client_->register_rdma_region(memory_), ErrorKind::closing));
}

TEST_F(Scripted, CloseWakesOrdinaryCommandsToo) {
  Signal started;
  server_.on("PING", [&](FakeServer::Call&) { started.raise(); });
  auto waiter = std::async(std::launch::async, [&] { return client_->command({"PING"}); });
  ASSERT_TRUE(started.wait());
  client_->close();
  EXPECT_TRUE(failed_as(waiter.get(), ErrorKind::closing));
}

TEST_F(Scripted, ForkedChildIsRefused) {
  expect_good_get();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int wrong = 0;
    if (!failed_as(get(), ErrorKind::closing)) wrong |= 1;
    if (!failed_as(client_->command({"PING"}), ErrorKind::closing)) wrong |= 2;
    if (!failed_as(region_->close(), ErrorKind::closing)) wrong |= 4;
    if (!failed_as(client_->register_rdma_region(memory_), ErrorKind::closing)) wrong |= 8;
    client_->close();
    region_.reset();
    client_.reset();  // leaves the parent's connections alone
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_FALSE(region_->closed());
  expect_good_get();
  EXPECT_EQ(server_.connections(), 1);
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
