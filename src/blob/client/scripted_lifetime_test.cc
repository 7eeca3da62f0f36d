// The client against a scripted server: closing, dropping, forking while something is under way.
#include "blob/client/scripted_test_base.h"
#include "blob/client/testing.h"

#include <atomic>
#include <memory>
#include <sys/wait.h>
#include <unistd.h>

namespace farlift {
namespace {

using client::Hooks;
using testing::all_are;
using testing::eventually;
using testing::failed_as;
using testing::FakeServer;
using testing::kSentinel;
using testing::kSize;
using testing::same;
using testing::Scripted;
using testing::Signal;
using testing::succeeded;

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

TEST_F(Scripted, B097_closed_between_the_look_at_the_client_and_at_the_region) {
  expect_good_get();
  RdmaWindow window = whole();
  Hooks::install(*client_, {.before_send = nullptr,
                            .before_verify = nullptr,
                            .before_regions = [&] { client_->close(); }});
  EXPECT_TRUE(failed_as(client_->rdma_get("key", window), ErrorKind::closing));
  EXPECT_TRUE(region_->closed());
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

}  // namespace
}  // namespace farlift
