// The client against a scripted server: odd and false replies, handshakes, lost connections.
#include "blob/client/scripted_test_base.h"
#include "blob/client/testing.h"

#include <atomic>

namespace farlift {
namespace {

using client::Hooks;
using testing::failed_as;
using testing::FakeServer;
using testing::get_reply;
using testing::kSize;
using testing::pattern;
using testing::Scripted;
using testing::Signal;
using testing::succeeded;

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

}  // namespace
}  // namespace farlift
