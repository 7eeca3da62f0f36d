#include "kvcache/client/api/loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <set>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace farlift::kv::client {
namespace {

using namespace std::chrono_literals;

// A client whose gets are answered by another thread, as a card would: through a descriptor.
class StubClient final : public Client {
 public:
  struct Shared {
    Mutex mutex;
    CondVar changed;
    std::deque<std::function<void(GetResult)>> asked GUARDED_BY(mutex);
    std::size_t answered GUARDED_BY(mutex) = 0;
    const UniqueFd event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    std::atomic<bool> inside{false};
    std::atomic<bool> overlapped{false};

    void answer_one() {
      MutexLock lock(mutex);
      ++answered;
      const std::uint64_t one = 1;
      ASSERT(::write(event.get(), &one, sizeof one) == sizeof one);
    }
    bool wait_for_asked(std::size_t count) {
      MutexLock lock(mutex);
      for (int i = 0; i < 2000 && asked.size() < count; ++i) (void)changed.wait_for(mutex, 10ms);
      return asked.size() >= count;
    }
  };
  explicit StubClient(Shared& shared) : shared_(shared) {}
  ~StubClient() override {
    MutexLock lock(shared_.mutex);
    for (const auto& done : shared_.asked) {
      GetResult result;
      result.outcome = Outcome::timeout;
      done(result);
    }
    shared_.asked.clear();
  }

  void get(GetRequest, std::function<void(GetResult)> done) override {
    Inside inside(shared_);
    MutexLock lock(shared_.mutex);
    shared_.asked.push_back(std::move(done));
    shared_.changed.notify_all();
  }
  bool step() override {
    Inside inside(shared_);
    std::vector<std::function<void(GetResult)>> now;
    {
      MutexLock lock(shared_.mutex);
      while (shared_.answered > 0 && !shared_.asked.empty()) {
        --shared_.answered;
        now.push_back(std::move(shared_.asked.front()));
        shared_.asked.pop_front();
      }
      if (!now.empty()) {
        std::uint64_t count = 0;  // may have been taken with an answer before
        [[maybe_unused]] const auto got = ::read(shared_.event.get(), &count, sizeof count);
      }
    }
    GetResult result;
    result.outcome = Outcome::ok;
    for (const auto& done : now) done(result);
    return !now.empty();
  }
  std::vector<int> wait_fds() const override { return {shared_.event.get()}; }
  Instant next_deadline() const override { return Instant::max(); }

  Result<std::unique_ptr<LandingMemory>> register_memory(std::span<std::byte>) override {
    return Error::make(Errc::unsupported, "stub");
  }
  Result<std::unique_ptr<LandingMemory>> borrow_memory(std::span<std::byte>) override {
    return Error::make(Errc::unsupported, "stub");
  }
  bool registered(std::span<const std::byte>) const override { return true; }
  void mget(std::vector<GetRequest>, std::function<void(std::vector<GetResult>)>) override {}
  void put(PutRequest, std::function<void(PutResult)>) override {}
  void mput(std::vector<PutRequest>, std::function<void(std::vector<PutResult>)>) override {}
  void exists(std::vector<Bytes>, std::function<void(std::vector<bool>)>) override {}
  void remove(Bytes, std::optional<Version>, std::function<void(Removed)>) override {}
  void stat(Bytes, std::function<void(GetResult)>) override {}
  void write_group(std::string, std::uint64_t, std::vector<Bytes>,
                   std::function<void(Group)>) override {}
  void read_group(const std::string&, std::function<void(Group)>) override {}
  void command(NodeId, FrameType, Bytes, std::function<void(Answer)>) override {}
  void list_nodes(std::function<void(Result<std::vector<NodeRecord>>)>) override {}
  Status add_key(KeyId, ByteView) override { return {}; }
  Status drop_key(KeyId) override { return {}; }
  void replace_keys(Keyring) override {}
  std::vector<std::pair<std::string, std::uint64_t>> counters() const override { return {}; }

 private:
  // Two threads inside at once would be the loop's fault.
  struct Inside {
    explicit Inside(Shared& s) : shared(s) {
      if (shared.inside.exchange(true)) shared.overlapped = true;
    }
    ~Inside() { shared.inside = false; }
    Shared& shared;
  };
  Shared& shared_;
};

class KvLoop : public ::testing::Test {
 protected:
  KvLoop() { loop_ = Loop::make(std::make_unique<StubClient>(shared_), clock_, 20us).value(); }
  ~KvLoop() override { EXPECT_FALSE(shared_.overlapped); }

  Outcome get(const Loop::Progress& progress = {}, std::size_t parts = 1) {
    Outcome outcome = Outcome::miss;
    Loop::Call call(parts);
    const bool ran = loop_->run(
        call,
        [&](Client& client) {
          for (std::size_t i = 0; i < parts; ++i) {
            client.get({}, [&](const GetResult& got) {
              outcome = got.outcome;
              call.part_done();
            });
          }
        },
        progress);
    return ran ? outcome : Outcome::bad_arg;
  }

  SystemClock clock_;
  StubClient::Shared shared_;
  std::unique_ptr<Loop> loop_;
};

TEST_F(KvLoop, a_single_caller_drives_itself) {
  shared_.answer_one();
  EXPECT_EQ(get(), Outcome::ok);
}

TEST_F(KvLoop, callers_beside_each_other_all_get_their_answers) {
  constexpr int kThreads = 8;
  constexpr int kEach = 200;
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kEach; ++i) good += get() == Outcome::ok ? 1 : 0;
    });
  }
  for (int i = 0; i < kThreads * kEach; ++i) {
    ASSERT_TRUE(shared_.wait_for_asked(1));
    shared_.answer_one();
    if (i % 16 == 0) std::this_thread::yield();
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, kThreads * kEach);
}

TEST_F(KvLoop, close_ends_everybody_who_waits) {
  constexpr std::size_t kThreads = 6;
  std::atomic<std::size_t> ended{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] { ended += get() == Outcome::timeout ? 1 : 0; });
  }
  ASSERT_TRUE(shared_.wait_for_asked(kThreads));
  loop_->close();
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ended, kThreads);
  EXPECT_TRUE(loop_->closed());
  EXPECT_EQ(get(), Outcome::bad_arg);
  EXPECT_FALSE(loop_->with([](Client&) {}));
  loop_->close();
}

TEST_F(KvLoop, progress_is_told_while_a_batch_runs) {
  std::vector<std::size_t> told;
  std::thread answers([&] {
    ASSERT(shared_.wait_for_asked(3));
    shared_.answer_one();
    for (;;) {
      MutexLock lock(shared_.mutex);
      if (shared_.asked.size() == 2) break;
    }
    std::this_thread::sleep_for(250ms);  // long enough that progress is due
    shared_.answer_one();
    shared_.answer_one();
  });
  EXPECT_EQ(get(
                [&](std::size_t done, std::size_t total) {
                  EXPECT_EQ(total, 3u);
                  told.push_back(done);
                },
                3),
            Outcome::ok);
  answers.join();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back(), 3u);
  EXPECT_NE(std::find(told.begin(), told.end(), 1u), told.end());
}

// Whoever tells progress leads no more: its callback may take its time, or wait for another call.
TEST_F(KvLoop, a_slow_callback_holds_up_nobody) {
  std::atomic<bool> told{false};
  std::atomic<bool> other_done{false};
  std::thread other([&] {
    ASSERT(shared_.wait_for_asked(2));
    for (int i = 0; i < 2000 && !told; ++i) std::this_thread::sleep_for(10ms);
    std::thread answers([&] {
      ASSERT(shared_.wait_for_asked(3));
      for (int i = 0; i < 3; ++i) shared_.answer_one();
    });
    other_done = get() == Outcome::ok;
    answers.join();
  });
  bool waited_in_vain = false;
  EXPECT_EQ(get(
                [&](std::size_t done, std::size_t) {
                  if (done == 2) return;
                  told = true;
                  for (int i = 0; i < 1000 && !other_done; ++i) std::this_thread::sleep_for(10ms);
                  waited_in_vain = !other_done;
                },
                2),
            Outcome::ok);
  other.join();
  EXPECT_TRUE(told);
  EXPECT_FALSE(waited_in_vain);
}

TEST_F(KvLoop, a_callback_may_close) {
  EXPECT_EQ(get([&](std::size_t, std::size_t) { loop_->close(); }), Outcome::timeout);
  EXPECT_TRUE(loop_->closed());
}

}  // namespace
}  // namespace farlift::kv::client
