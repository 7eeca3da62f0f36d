// Pushes and windows over the soft fabric within one process: the client has a domain of its own.
#include "s3/volume/mover.h"

#include "core/fabric/soft/soft.h"
#include "s3/volume/uploads.h"
#include "s3/volume/volume_test_base.h"

#include <future>
#include <thread>

namespace farlift::s3::volume {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
constexpr std::uint32_t kDcKey = 0xffeeddcc;

std::unique_ptr<fabric::Domain> soft_domain(const Clock& clock) {
  fabric::soft::SoftOptions options;
  options.dc_key = kDcKey;
  return fabric::soft::open_domain(options, clock).value();
}

// A client with a window of 0xEE.
struct Client {
  Client(const Clock& clock, std::size_t size)
      : memory(size, std::byte{0xEE}), domain(soft_domain(clock)) {
    endpoint = domain->open_target({}).value();
    registration = domain->register_memory({memory}, fabric::Access::remote_read_write).value();
  }
  RemoteTarget at(std::uint64_t offset = 0) const {
    return {endpoint->address(), registration->key(), registration->addr() + Offset(offset)};
  }
  bool untouched() const {
    return std::all_of(memory.begin(), memory.end(),
                       [](std::byte b) { return b == std::byte{0xEE}; });
  }
  std::vector<std::byte> memory;
  std::unique_ptr<fabric::Domain> domain;
  std::unique_ptr<fabric::Registration> registration;
  std::unique_ptr<fabric::TargetEndpoint> endpoint;
};

class MoverTest : public ::testing::Test {
 protected:
  void start(Length budget = Length(8 * kMiB)) {
    MoverOptions options;
    options.budget = budget;
    mover_ = Mover::create(*domain_, clock_, options).value();
    volume_ = bench_.open();
  }
  PushOutcome push(const NeedleKey& key, std::uint64_t offset, std::uint64_t length,
                   const RemoteTarget& target, Duration time = std::chrono::seconds(30)) {
    std::promise<PushOutcome> told;
    mover_->push(
        {volume_->find(key).value(), Offset(offset), Length(length), target, clock_.now() + time},
        [&](const PushOutcome& outcome) { told.set_value(outcome); });
    return told.get_future().get();
  }
  SystemClock clock_;
  Bench bench_;
  std::unique_ptr<fabric::Domain> domain_ = soft_domain(clock_);
  std::unique_ptr<Mover> mover_;
  std::shared_ptr<Volume> volume_;
};

TEST_F(MoverTest, pushes_a_needle_and_a_part_of_it_to_their_places) {
  start();
  const auto data = made_up(4 * kMiB + 5, 1);
  ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
  Client client(clock_, 5 * kMiB);
  PushOutcome outcome = push(key_of(1), 0, data.size(), client.at(100));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().describe();
  EXPECT_EQ(outcome.written, Length(data.size()));
  EXPECT_EQ(outcome.crc, digest::crc32c(data));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), client.memory.begin() + 100));
  EXPECT_EQ(client.memory[99], std::byte{0xEE});
  EXPECT_EQ(client.memory[100 + data.size()], std::byte{0xEE});
  Client other(clock_, 1000);
  outcome = push(key_of(1), 70'000, 500, other.at(7));
  ASSERT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.crc, digest::crc32c(std::span(data).subspan(70'000, 500)));
  EXPECT_TRUE(std::equal(data.begin() + 70'000, data.begin() + 70'500, other.memory.begin() + 7));
  EXPECT_EQ(other.memory[6], std::byte{0xEE});
  EXPECT_EQ(other.memory[507], std::byte{0xEE});
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
}

TEST_F(MoverTest, a_tiny_budget_slices_and_a_saturated_one_says_so) {
  start(Length(kMiB));
  const auto data = made_up(20 * kMiB, 2);
  ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
  Client client(clock_, data.size());
  const PushOutcome outcome = push(key_of(1), 0, data.size(), client.at());
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().describe();
  EXPECT_EQ(outcome.crc, digest::crc32c(data));
  EXPECT_EQ(client.memory, data);
  EXPECT_LE(mover_->budget().counters().pinned_peak, kMiB);
  auto hog = mover_->budget().enter(Length(kMiB), PinUse::push, clock_.now()).value();
  Client second(clock_, data.size());
  const PushOutcome late =
      push(key_of(1), 0, data.size(), second.at(), std::chrono::milliseconds(50));
  EXPECT_EQ(late.stage, PushStage::budget);
  EXPECT_EQ(late.status.error().code, Errc::timeout);
  EXPECT_TRUE(late.untouched);
  EXPECT_TRUE(second.untouched());
}

// Also where the damage lies in the last slice of many.
TEST_F(MoverTest, a_damaged_needle_leaves_the_window_untouched) {
  for (const Length budget : {Length(8 * kMiB), Length(kMiB)}) {
    bench_.disk.directory()->remove("3.dat").ignore();
    start(budget);
    const auto data = made_up(4 * kMiB, 3);
    ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
    ASSERT_TRUE(
        bench_.disk
            .flip("3.dat", Offset(kSuperBytes + kHeaderBytes + kDataSizeBytes + data.size() - 1), 1)
            .ok());
    Client client(clock_, data.size());
    const PushOutcome outcome = push(key_of(1), 0, data.size(), client.at());
    EXPECT_EQ(outcome.status.error().code, Errc::checksum);
    EXPECT_EQ(outcome.stage, PushStage::read);
    EXPECT_TRUE(outcome.untouched);
    EXPECT_TRUE(client.untouched());
    EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
  }
}

TEST_F(MoverTest, a_wrong_key_fails_alone_and_the_next_push_works) {
  start();
  const auto data = made_up(kMiB, 4);
  ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
  Client client(clock_, data.size());
  RemoteTarget wrong = client.at();
  wrong.key = RKey(wrong.key.raw() ^ (std::uint64_t{1} << 40));  // another DC key
  const PushOutcome outcome = push(key_of(1), 0, data.size(), wrong);
  EXPECT_EQ(outcome.status.error().code, Errc::access);
  EXPECT_FALSE(outcome.untouched);  // we cannot know, and do not claim to
  EXPECT_TRUE(client.untouched());
  EXPECT_TRUE(push(key_of(1), 0, data.size(), client.at()).status.ok());
  EXPECT_EQ(client.memory, data);
}

TEST_F(MoverTest, a_client_that_went_away_is_an_error) {
  start();
  const auto data = made_up(kMiB, 5);
  ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
  RemoteTarget gone;
  {
    Client client(clock_, data.size());
    gone = client.at();
  }
  EXPECT_FALSE(push(key_of(1), 0, data.size(), gone).status.ok());
  Client client(clock_, data.size());
  EXPECT_TRUE(push(key_of(1), 0, data.size(), client.at()).status.ok());
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
}

// A client that does not look after its endpoint: the deadline passes, and the answer comes when
// nothing can be written any more; memory and budget are given back.
TEST_F(MoverTest, a_client_that_stopped_polling_holds_no_thread) {
  start();
  const auto data = made_up(kMiB, 6);
  ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
  Client client(clock_, data.size());
  fabric::TargetOptions idle;
  idle.own_thread = false;
  auto silent = client.domain->open_target(idle).value();
  RemoteTarget target = client.at();
  target.peer = silent->address();
  std::promise<PushOutcome> told;
  auto answer = told.get_future();
  mover_->push({volume_->find(key_of(1)).value(), Offset(0), Length(data.size()), target,
                clock_.now() + std::chrono::milliseconds(300)},
               [&](const PushOutcome& outcome) { told.set_value(outcome); });
  silent->close().ignore();
  const PushOutcome outcome = answer.get();
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_TRUE(client.untouched());
  mover_->stop();
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
}

TEST_F(MoverTest, many_pushes_and_windows_leave_nothing_pinned) {
  start();
  const auto data = made_up(100'000, 7);
  ASSERT_TRUE(volume_->append(key_of(1), {}, data, {}).ok());
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Client client(clock_, data.size());
      for (int i = 0; i < 100; ++i) {
        if (push(key_of(1), 0, data.size(), client.at()).status.ok() && client.memory == data)
          right.fetch_add(1);
        auto window = mover_->open_window(Length(50'000), clock_.now() + std::chrono::seconds(30));
        if (window.ok() && (*window)->close().ok()) right.fetch_add(1);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(right.load(), 800);
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
  EXPECT_LE(mover_->budget().counters().pinned_peak, 8 * kMiB);
}

// --- receive windows and what becomes of them ---

class UploadsTest : public MoverTest {
 protected:
  void start_uploads() {
    start();
    uploads_ = std::make_unique<Uploads>(
        time_, [this](const NeedleRef& needle, std::span<const std::byte> bytes, Crc32c expected) {
          ++writes_;
          if (during_write_) during_write_();
          WriteOutcome outcome;
          const auto stored = volume_->append(needle.key, {}, bytes, expected);
          if (stored.ok()) {
            outcome.state = UploadState::committed;
            outcome.length = stored->length;
            outcome.crc = stored->crc;
          } else {
            outcome.status = stored.error();
          }
          return outcome;
        });
    initiator_ = client_domain_->open_initiator({}).value();
  }
  // As the object service does it.
  UploadHandle prepare(std::uint64_t id, std::size_t length, std::uint64_t connection = 1) {
    auto window = mover_->open_window(Length(length), clock_.now() + std::chrono::seconds(10));
    EXPECT_TRUE(window.ok());
    last_ = {(*window)->address(), (*window)->key(), (*window)->addr()};
    return uploads_->add(std::move(window).value(), ref(id), connection).value();
  }
  Status write(std::vector<std::byte> bytes, std::uint64_t offset = 0) {
    const auto peer = initiator_->add_peer(last_.peer);
    if (!peer.ok()) return peer.error();
    TRY(initiator_->post(
        {fabric::OpKind::write, *peer, last_.key, last_.addr + Offset(offset), bytes, nullptr, 1}));
    for (;;) {
      fabric::Completion completion;
      if (initiator_->poll({&completion, 1}) == 1) return completion.status;
      initiator_->wait(1000);
    }
  }
  static NeedleRef ref(std::uint64_t id) { return {VolumeId(3), key_of(id)}; }

  ManualClock time_;
  int writes_ = 0;
  std::function<void()> during_write_;
  std::unique_ptr<Uploads> uploads_;
  std::unique_ptr<fabric::Domain> client_domain_ = soft_domain(clock_);
  std::unique_ptr<fabric::Initiator> initiator_;
  RemoteTarget last_;
};

TEST_F(UploadsTest, what_was_written_is_committed_once) {
  start_uploads();
  const auto data = made_up(100'000, 1);
  const UploadHandle handle = prepare(1, data.size());
  EXPECT_EQ(uploads_->query(handle), UploadState::prepared);
  ASSERT_TRUE(write(data).ok());
  const auto outcome = uploads_->commit(handle, ref(1), Length(data.size()), digest::crc32c(data));
  EXPECT_EQ(outcome.code, CommitCode::ok);
  EXPECT_EQ(outcome.state, UploadState::committed);
  EXPECT_EQ(outcome.write.length, Length(data.size()));
  EXPECT_TRUE(holds(*volume_, key_of(1), data));
  const auto again = uploads_->commit(handle, ref(1), Length(data.size()), digest::crc32c(data));
  EXPECT_EQ(again.state, UploadState::committed);
  EXPECT_EQ(again.write.crc, outcome.write.crc);
  EXPECT_EQ(writes_, 1);
  EXPECT_EQ(uploads_->query(handle), UploadState::committed);
  EXPECT_EQ(uploads_->abort(handle), UploadState::committed);
  // The window is closed: a late write changes nothing.
  EXPECT_EQ(write(made_up(10, 9)).error().code, Errc::access);
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
}

TEST_F(UploadsTest, another_crc_another_needle_and_an_unwritten_window_are_not_committed) {
  start_uploads();
  const auto data = made_up(10'000, 1);
  const UploadHandle first = prepare(1, data.size());
  ASSERT_TRUE(write(data).ok());
  EXPECT_EQ(uploads_->commit(first, ref(2), Length(data.size()), digest::crc32c(data)).code,
            CommitCode::bad_request);
  EXPECT_EQ(uploads_->commit(first, ref(1), Length(5), digest::crc32c(data)).code,
            CommitCode::bad_request);
  EXPECT_EQ(uploads_->query(first), UploadState::prepared);
  const auto wrong = uploads_->commit(first, ref(1), Length(data.size()), Crc32c(1));
  EXPECT_EQ(wrong.code, CommitCode::crc);
  EXPECT_EQ(wrong.state, UploadState::not_committed);
  // A window of the same memory, nothing written to it: what lay there does not count.
  const UploadHandle second = prepare(2, data.size());
  EXPECT_EQ(uploads_->commit(second, ref(2), Length(data.size()), digest::crc32c(data)).code,
            CommitCode::crc);
  EXPECT_EQ(volume_->find(key_of(1)).code(), Errc::not_found);
  EXPECT_EQ(volume_->find(key_of(2)).code(), Errc::not_found);
  EXPECT_EQ(uploads_->commit(UploadHandle{}, ref(1), Length(1), Crc32c()).code,
            CommitCode::unknown_handle);
}

TEST_F(UploadsTest, a_prepared_buffer_expires_and_is_remembered_for_a_while) {
  start_uploads();
  const auto data = made_up(10'000, 1);
  const UploadHandle handle = prepare(1, data.size());
  ASSERT_TRUE(write(data).ok());
  time_.advance(std::chrono::seconds(36));
  // Also before tick() came round.
  EXPECT_EQ(uploads_->commit(handle, ref(1), Length(data.size()), digest::crc32c(data)).code,
            CommitCode::expired);
  EXPECT_EQ(uploads_->query(handle), UploadState::not_committed);
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
  EXPECT_EQ(writes_, 0);
  time_.advance(std::chrono::seconds(121));
  uploads_->tick();
  EXPECT_EQ(uploads_->query(handle), UploadState::unknown);
  EXPECT_EQ(uploads_->commit(handle, ref(1), Length(data.size()), digest::crc32c(data)).code,
            CommitCode::unknown_handle);
}

TEST_F(UploadsTest, the_loss_of_a_connection_shortens_the_life_of_its_buffers) {
  start_uploads();
  const UploadHandle mine = prepare(1, 1000, 7);
  const UploadHandle other = prepare(2, 1000, 8);
  uploads_->connection_lost(7);
  time_.advance(std::chrono::seconds(4));
  uploads_->tick();
  EXPECT_EQ(uploads_->query(mine), UploadState::prepared);
  time_.advance(std::chrono::seconds(2));
  uploads_->tick();
  EXPECT_EQ(uploads_->query(mine), UploadState::not_committed);
  EXPECT_EQ(uploads_->query(other), UploadState::prepared);
  EXPECT_EQ(uploads_->live(), 1u);
}

TEST_F(UploadsTest, a_deletion_is_not_undone_by_a_commit_on_its_way) {
  start_uploads();
  const auto data = made_up(10'000, 1);
  const UploadHandle waiting = prepare(1, data.size());
  ASSERT_TRUE(write(data).ok());
  uploads_->forbid(ref(1));
  EXPECT_EQ(uploads_->commit(waiting, ref(1), Length(data.size()), digest::crc32c(data)).code,
            CommitCode::expired);
  // One in progress is waited for, so that the deletion finds what it wrote.
  const UploadHandle running = prepare(2, data.size());
  ASSERT_TRUE(write(data).ok());
  std::promise<void> inside;
  std::promise<void> go_on;
  during_write_ = [&] {
    inside.set_value();
    go_on.get_future().wait();
  };
  std::thread committer([&] {
    EXPECT_EQ(uploads_->commit(running, ref(2), Length(data.size()), digest::crc32c(data)).state,
              UploadState::committed);
  });
  inside.get_future().wait();
  std::atomic<bool> forbidden{false};
  std::thread deleter([&] {
    uploads_->forbid(ref(2));
    forbidden.store(true);
    EXPECT_TRUE(volume_->remove(key_of(2)).ok());
  });
  EXPECT_FALSE(forbidden.load());
  go_on.set_value();
  committer.join();
  deleter.join();
  EXPECT_EQ(volume_->find(key_of(2)).code(), Errc::not_found);
}

TEST_F(UploadsTest, a_thousand_aborts_leave_nothing_registered) {
  start_uploads();
  for (std::uint64_t i = 1; i <= 1000; ++i)
    EXPECT_EQ(uploads_->abort(prepare(i, 100'000)), UploadState::not_committed);
  EXPECT_EQ(mover_->budget().counters().pinned_bytes, 0u);
  EXPECT_LE(mover_->budget().counters().pinned_peak, 102'400u);
  EXPECT_EQ(uploads_->live(), 0u);
}

}  // namespace
}  // namespace farlift::s3::volume
