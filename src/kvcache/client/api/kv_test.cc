// KvClient as an application uses it: a real Valkey, a real node in a thread of its own, real
// sockets.
#include <farlift/kv.h>

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "tests/support/kv_ready.h"
#include "tests/support/node_thread.h"
#include "tests/support/valkey_server.h"

namespace farlift {
namespace {

using namespace std::chrono_literals;
using kv::testing::key_line;
using kv::testing::NodeThread;
using kv::testing::NodeThreadOptions;
using kv::testing::value_of;

class KvClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    server_ = testing::ServerProcess::start({}, &reason);
    ASSERT_NE(server_, nullptr) << reason;
    std::ofstream(files_.file("keys")) << key_line(1, 'a');
    NodeThreadOptions node;
    node.valkey.connection.port = server_->port();
    node_ = std::make_unique<NodeThread>(std::move(node));
    options_.valkey = {{"127.0.0.1", server_->port()}};
    options_.tenant = "t1";
    options_.key_file = files_.file("keys");
    client_.emplace(KvClient::create(options_).value());
    ASSERT_TRUE(kv::testing::takes_puts(*client_)) << "the node did not come up";
  }

  testing::TempDir files_;
  std::unique_ptr<testing::ServerProcess> server_;
  std::unique_ptr<NodeThread> node_;
  KvOptions options_;
  std::optional<KvClient> client_;
};

TEST_F(KvClientTest, values_go_in_and_come_out) {
  std::vector<std::byte> arena(8u << 20);
  auto memory = client_->register_memory(arena);
  ASSERT_TRUE(memory.ok()) << memory.error().text;
  const auto value = value_of(3u << 20, 2);
  std::copy(value.begin(), value.end(), arena.begin());
  const KvResult put = client_->put("a", std::span(arena).first(value.size()));
  ASSERT_TRUE(put.ok()) << to_string(put.status) << put.text;
  const auto dest = std::span(arena).last(value.size());
  for (const KvReadMode mode : {KvReadMode::framed, KvReadMode::payload_only}) {
    std::fill(dest.begin(), dest.end(), std::byte{0});
    const KvResult got = client_->get("a", dest, mode);
    ASSERT_TRUE(got.ok()) << to_string(got.status);
    EXPECT_EQ(got.length, value.size());
    EXPECT_EQ(got.version, put.version);
    EXPECT_TRUE(std::equal(value.begin(), value.end(), dest.begin()));
  }
  EXPECT_EQ(client_->put("a", dest).status, KvStatus::exists);
  EXPECT_EQ(client_->get("a", dest.first(10)).status, KvStatus::too_small);
  EXPECT_EQ(client_->stat("a").length, value.size());
  EXPECT_TRUE(client_->exists("a"));
  EXPECT_FALSE(client_->exists("b"));
  EXPECT_TRUE(client_->remove("a").status == KvStatus::ok);
  EXPECT_EQ(client_->get("a", dest).status, KvStatus::miss);
  EXPECT_EQ(client_->get("", dest).status, KvStatus::bad_arg);
}

TEST_F(KvClientTest, memory_that_is_not_registered_is_for_the_call) {
  const auto value = value_of(5000, 3);
  ASSERT_TRUE(client_->put("a", value).ok());
  std::vector<std::byte> dest(5000);
  ASSERT_TRUE(client_->get("a", dest).ok());
  EXPECT_EQ(dest, value);
  options_.register_on_demand = false;
  auto strict = KvClient::create(options_).value();
  EXPECT_EQ(strict.get("a", dest).status, KvStatus::bad_arg);
}

TEST_F(KvClientTest, batches_and_threads_side_by_side) {
  constexpr std::size_t kThreads = 4;
  constexpr std::size_t kKeys = 100;
  std::vector<std::byte> arena(kThreads * kKeys * 2048);
  auto memory = client_->register_memory(arena).value();
  std::atomic<std::size_t> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const auto own = std::span(arena).subspan(t * kKeys * 2048, kKeys * 2048);
      std::vector<std::string> keys;
      std::vector<KvPut> puts;
      std::vector<KvGet> gets;
      for (std::size_t i = 0; i < kKeys; ++i) {
        keys.push_back("k" + std::to_string(t) + "-" + std::to_string(i));
        const auto value = value_of(1000 + i, t * 1000 + i);
        std::copy(value.begin(), value.end(), own.begin() + static_cast<std::ptrdiff_t>(i * 2048));
      }
      for (std::size_t i = 0; i < kKeys; ++i) {
        puts.push_back({keys[i], own.subspan(i * 2048, 1000 + i)});
        gets.push_back({keys[i], own.subspan(i * 2048, 1000 + i)});
      }
      std::size_t told = 0;
      for (const KvResult& put :
           client_->mput(puts, [&](std::size_t done, std::size_t) { told = done; })) {
        wrong += put.ok() ? 0 : 1;
      }
      wrong += told == kKeys ? 0 : 1;
      std::fill(own.begin(), own.end(), std::byte{0});
      for (const KvResult& got : client_->mget(gets)) wrong += got.ok() ? 0 : 1;
      for (std::size_t i = 0; i < kKeys; ++i) {
        const auto value = value_of(1000 + i, t * 1000 + i);
        wrong += std::equal(value.begin(), value.end(), gets[i].dest.begin()) ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0u);
}

TEST_F(KvClientTest, reads_into_the_same_memory_are_refused) {
  const auto value = value_of(5000, 5);
  ASSERT_TRUE(client_->put("a", value).ok());
  ASSERT_TRUE(client_->put("b", value_of(5000, 6)).ok());
  std::vector<std::byte> dest(10000);
  for (const bool registered : {false, true}) {
    std::optional<KvMemory> held;
    if (registered) held.emplace(client_->register_memory(dest).value());
    const std::vector<KvGet> gets = {{"a", std::span(dest).first(5000)},
                                     {"b", std::span(dest).first(5000)},
                                     {"b", std::span(dest).subspan(4000)},
                                     {"b", std::span(dest).last(5000)}};
    const auto got = client_->mget(gets);
    EXPECT_TRUE(got[0].ok());
    EXPECT_TRUE(std::equal(value.begin(), value.end(), dest.begin()));
    for (const std::size_t bad : {1u, 2u}) {
      EXPECT_EQ(got[bad].status, KvStatus::bad_arg);
      EXPECT_EQ(got[bad].text, "the destination overlaps that of another read");
    }
    EXPECT_TRUE(got[3].ok());
  }
}

// Nothing is registered: each call borrows what others borrow, too.
TEST_F(KvClientTest, puts_may_share_their_sources) {
  const auto value = value_of(8000, 8);
  const std::span<const std::byte> all(value);
  const std::vector<KvPut> puts = {{"s0", all.first(5000)},
                                   {"s1", all.subspan(2000, 5000)},
                                   {"s2", all},
                                   {"s3", all.subspan(7999)},
                                   {"s4", all.first(5000)}};
  for (const KvResult& put : client_->mput(puts)) EXPECT_TRUE(put.ok()) << put.text;
  std::atomic<int> bad{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 60; ++i) {
        const auto part = all.subspan(static_cast<std::size_t>(i % 3) * 100, 2000);
        const KvResult put = client_->put("t" + std::to_string(t), part, KvPutMode::replace);
        if (put.status == KvStatus::bad_arg) ++bad;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(bad, 0);
  std::vector<std::byte> dest(8000);
  ASSERT_TRUE(client_->get("s1", dest).ok());
  EXPECT_TRUE(std::equal(dest.begin(), dest.begin() + 5000, value.begin() + 2000));
}

TEST_F(KvClientTest, what_a_progress_callback_throws_comes_when_the_batch_is_over) {
  const auto value = value_of(100, 1);
  const std::vector<KvPut> puts = {{"p0", value}, {"p1", value}};
  int told = 0;
  EXPECT_THROW((void)client_->mput(puts,
                                   [&](std::size_t, std::size_t) {
                                     ++told;
                                     throw std::runtime_error("said so");
                                   }),
               std::runtime_error);
  EXPECT_EQ(told, 1);
  EXPECT_TRUE(client_->exists("p0"));
  EXPECT_TRUE(client_->exists("p1"));
}

// The parent's threads are not there, and a lock may be held for ever: another thread leads.
TEST_F(KvClientTest, a_forked_child_may_drop_everything) {
  std::vector<std::byte> arena(4096);
  std::optional<KvMemory> memory(client_->register_memory(arena).value());
  server_.reset();
  std::atomic<bool> over{false};
  std::thread waits([&] {
    std::vector<std::byte> dest(10);
    while (!over) (void)client_->get("nobody", dest);
  });
  for (int round = 0; round < 5; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      int wrong = 0;
      wrong += client_->reload_keys().ok() ? 1 : 0;
      wrong += client_->statistics().empty() ? 0 : 2;
      wrong += client_->register_memory(arena).ok() ? 4 : 0;
      wrong += client_->remove("a").status == KvStatus::bad_arg ? 0 : 8;
      memory.reset();
      client_.reset();
      ::_exit(wrong);
    }
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; i < 2000 && ended == 0; ++i) {
      ended = ::waitpid(child, &status, WNOHANG);
      if (ended == 0) std::this_thread::sleep_for(10ms);
    }
    if (ended == 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      ADD_FAILURE() << "the child hangs";
    } else {
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
  }
  over = true;
  waits.join();
}

TEST_F(KvClientTest, a_group_resolves_a_chain) {
  const auto value = value_of(100, 4);
  const std::vector<std::string_view> keys = {"x", "y"};
  for (const auto key : keys) ASSERT_TRUE(client_->put(key, value).ok());
  ASSERT_EQ(client_->write_group("chain", keys, 7).status, KvStatus::ok);
  auto other = KvClient::create(options_).value();
  const KvGroup group = other.read_group("chain");
  ASSERT_EQ(group.status, KvStatus::ok);
  EXPECT_EQ(group.version, 7u);
  ASSERT_EQ(group.entries.size(), 2u);
  EXPECT_EQ(group.entries[1].key, "y");
  std::vector<std::byte> dest(100);
  EXPECT_TRUE(other.get("x", dest).ok());
  for (const auto& [name, count] : other.statistics()) {
    if (name == "resolve_calls") {
      EXPECT_EQ(count, 0u);
    }
  }
}

TEST_F(KvClientTest, another_secret_is_refused_and_a_reloaded_one_taken) {
  ASSERT_TRUE(client_->put("a", value_of(10, 1)).ok());
  KvOptions other = options_;
  other.key_file = files_.file("other");
  std::ofstream(other.key_file) << key_line(1, 'b');
  auto stranger = KvClient::create(other).value();
  std::vector<std::byte> dest(10);
  EXPECT_EQ(stranger.get("a", dest).status, KvStatus::reject_sig);
  std::ofstream(other.key_file, std::ios::trunc) << key_line(1, 'a');
  ASSERT_TRUE(stranger.reload_keys().ok());
  EXPECT_TRUE(stranger.get("a", dest).ok());
}

TEST_F(KvClientTest, close_from_another_thread_ends_the_wait) {
  server_.reset();  // whoever asks now waits for Valkey
  std::thread closer([&] {
    std::this_thread::sleep_for(50ms);
    client_->close();
  });
  std::vector<std::byte> dest(10);
  const KvStatus status = client_->get("nobody", dest).status;
  EXPECT_TRUE(status == KvStatus::timeout || status == KvStatus::control_down);
  closer.join();
  EXPECT_TRUE(client_->closed());
  EXPECT_EQ(client_->get("a", dest).status, KvStatus::timeout);
  EXPECT_FALSE(client_->register_memory(dest).ok());
}

TEST(KvClientOptions, what_cannot_be_is_said) {
  KvOptions options;
  options.tenant = "t1";
  EXPECT_FALSE(KvClient::create(options).ok()) << "neither keys nor development mode";
  options.development = true;
  EXPECT_TRUE(KvClient::create(options).ok()) << "connects to nothing yet";
  options.key_file = "/nowhere";
  EXPECT_FALSE(KvClient::create(options).ok());
  options.key_file.clear();
  options.tenant = "not a tenant";
  EXPECT_FALSE(KvClient::create(options).ok());
  options.tenant = "t1";
  options.interfaces = {"no-such-card"};
  const auto made = KvClient::create(options);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().text.find("no-such-card"), std::string::npos);
}

}  // namespace
}  // namespace farlift
