#include "kvcache/control/sim/sim_links.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace farlift::kv::sim {
namespace {

using namespace std::chrono_literals;

Frame frame_of(std::uint64_t number, std::size_t body = 3) {
  return {FrameType::stat, false, number, Bytes(body, std::byte{7})};
}

class SimLinksTest : public ::testing::Test {
 protected:
  void SetUp() override { reset(1); }

  void reset(std::uint64_t seed, SimLinkFaults faults = {}) {
    accepted_.reset();
    link_.reset();
    listener_.reset();
    client_.reset();
    node_.reset();
    links_ = std::make_unique<SimLinks>(clock_, SimLinksOptions{.seed = seed, .faults = faults});
    node_ = links_->open_transport("n1");
    client_ = links_->open_transport("c1");
    auto listener = node_->listen("127.0.0.1", 0);
    ASSERT_TRUE(listener.ok());
    listener_ = std::move(listener).value();
  }
  void connect() {
    auto link = client_->connect("127.0.0.1", listener_->port());
    ASSERT_TRUE(link.ok());
    link_ = std::move(link).value();
    EXPECT_EQ(listener_->accept(), nullptr) << "no connection is instant";
    pass(1ms);
    EXPECT_TRUE(node_->step());
    accepted_ = listener_->accept();
    ASSERT_NE(accepted_, nullptr);
    EXPECT_FALSE(node_->step());
  }
  void pass(Duration time) { clock_.advance(time); }

  // Moves time from event to event until nothing is under way; what the link received.
  std::vector<std::uint64_t> drain(Link& link) {
    std::vector<std::uint64_t> got;
    for (;;) {
      for (;;) {
        const auto frame = link.receive();
        if (!frame.ok()) break;
        got.push_back(frame->req_id);
      }
      const Instant next = links_->next_due();
      if (next == Instant::max()) return got;
      pass(next - clock_.now());
    }
  }

  ManualClock clock_;
  std::unique_ptr<SimLinks> links_;
  std::unique_ptr<Transport> node_, client_;
  std::unique_ptr<LinkListener> listener_;
  std::unique_ptr<Link> link_, accepted_;
};

TEST_F(SimLinksTest, FramesArriveInOrderAndNotBeforeTheirTime) {
  connect();
  for (std::uint64_t i = 0; i < 100; ++i) ASSERT_TRUE(link_->send(frame_of(i)).ok());
  EXPECT_EQ(accepted_->receive().code(), Errc::again);
  std::vector<std::uint64_t> want;
  for (std::uint64_t i = 0; i < 100; ++i) want.push_back(i);
  EXPECT_EQ(drain(*accepted_), want);
  ASSERT_TRUE(accepted_->send(frame_of(7)).ok());
  EXPECT_EQ(drain(*link_), (std::vector<std::uint64_t>{7}));
}

TEST_F(SimLinksTest, FramesSentBeforeTheConnectionIsUpArrive) {
  auto link = client_->connect("127.0.0.1", listener_->port());
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE((*link)->send(frame_of(5)).ok());
  pass(10ms);
  const auto accepted = listener_->accept();
  ASSERT_NE(accepted, nullptr);
  const auto frame = accepted->receive();
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame->req_id, 5U);
}

TEST_F(SimLinksTest, NobodyListeningIsALostLink) {
  auto link = client_->connect("127.0.0.1", 1);
  ASSERT_TRUE(link.ok());
  EXPECT_EQ((*link)->receive().code(), Errc::again);
  pass(10ms);
  EXPECT_TRUE(client_->step());
  EXPECT_EQ((*link)->receive().code(), Errc::connection_lost);
  EXPECT_TRUE((*link)->lost());
  EXPECT_FALSE(client_->step()) << "a reported loss is no news";
}

TEST_F(SimLinksTest, AClosedLinkDeliversWhatWasSentAndThenIsLost) {
  connect();
  ASSERT_TRUE(link_->send(frame_of(1)).ok());
  ASSERT_TRUE(link_->send(frame_of(2)).ok());
  link_->close();
  EXPECT_EQ(link_->send(frame_of(3)).error().code, Errc::closed);
  EXPECT_EQ(drain(*accepted_), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(accepted_->receive().code(), Errc::connection_lost);
  EXPECT_EQ(accepted_->send(frame_of(4)).error().code, Errc::connection_lost);
}

TEST_F(SimLinksTest, APartitionHoldsFramesUntilItHeals) {
  connect();
  links_->partition("n1", "c1");
  ASSERT_TRUE(link_->send(frame_of(1)).ok());
  pass(1min);
  EXPECT_EQ(accepted_->receive().code(), Errc::again);
  links_->heal("c1", "n1");
  EXPECT_EQ(drain(*accepted_), (std::vector<std::uint64_t>{1}));
}

TEST_F(SimLinksTest, ConnectingIntoAPartitionTimesOut) {
  links_->partition("n1", "c1");
  auto link = client_->connect("127.0.0.1", listener_->port());
  ASSERT_TRUE(link.ok());
  pass(1s);
  EXPECT_EQ(listener_->accept(), nullptr);
  EXPECT_EQ((*link)->receive().code(), Errc::again);
  pass(2s);
  EXPECT_EQ((*link)->receive().code(), Errc::connection_lost);
}

TEST_F(SimLinksTest, AFullQueueIsAnError) {
  connect();
  links_->partition("n1", "c1");
  std::size_t taken = 0;
  Status status;
  for (; taken < 100; ++taken) {
    status = link_->send(frame_of(taken, kFrameBodyBytesMax));
    if (!status.ok()) break;
  }
  EXPECT_EQ(status.error().code, Errc::exhausted);
  EXPECT_EQ(taken, 7U);  // eight bodies of 1 MiB and their headers are more than 8 MiB
  EXPECT_EQ(link_->send(frame_of(0, kFrameBodyBytesMax + 1)).error().code, Errc::too_large);
  links_->heal_all();
  EXPECT_EQ(drain(*accepted_).size(), taken);
}

TEST_F(SimLinksTest, APausedPartyReceivesNothing) {
  connect();
  links_->pause("n1", true);
  ASSERT_TRUE(link_->send(frame_of(1)).ok());
  pass(1s);
  EXPECT_FALSE(node_->step());
  EXPECT_EQ(accepted_->receive().code(), Errc::again);
  links_->pause("n1", false);
  EXPECT_TRUE(node_->step());
  EXPECT_EQ(drain(*accepted_), (std::vector<std::uint64_t>{1}));
}

TEST_F(SimLinksTest, ACrashEndsLinksAndListeners) {
  connect();
  const std::uint16_t port = listener_->port();
  links_->crash("n1");
  pass(10ms);
  EXPECT_EQ(link_->receive().code(), Errc::connection_lost);
  auto again = client_->connect("127.0.0.1", port);
  ASSERT_TRUE(again.ok());
  pass(10ms);
  EXPECT_EQ((*again)->receive().code(), Errc::connection_lost);
  auto fresh = links_->open_transport("n1");
  auto listener = fresh->listen("127.0.0.1", 0);
  ASSERT_TRUE(listener.ok());
  EXPECT_NE((*listener)->port(), port);
}

TEST_F(SimLinksTest, ASilentCrashIsNoticedLate) {
  connect();
  links_->crash("n1", true);
  ASSERT_TRUE(link_->send(frame_of(1)).ok());
  pass(20s);
  EXPECT_EQ(link_->receive().code(), Errc::again);
  pass(20s);
  EXPECT_EQ(link_->receive().code(), Errc::connection_lost);
}

TEST_F(SimLinksTest, LostLinksDeliverAPrefix) {
  bool some = false;
  for (std::uint64_t seed = 1; seed < 50; ++seed) {
    reset(seed);
    connect();
    for (std::uint64_t i = 0; i < 10; ++i) ASSERT_TRUE(link_->send(frame_of(i)).ok());
    links_->lose_links("c1", "n1");
    const std::vector<std::uint64_t> got = drain(*accepted_);
    for (std::uint64_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], i);
    some = some || (!got.empty() && got.size() < 10);
    EXPECT_EQ(accepted_->receive().code(), Errc::connection_lost);
    EXPECT_EQ(link_->receive().code(), Errc::connection_lost);
  }
  EXPECT_TRUE(some) << "fifty seeds and none cut in the middle";
}

// The same seed and calls: the same trace; another seed: another.
TEST_F(SimLinksTest, TheSeedDecides) {
  const auto trace_of = [this](std::uint64_t seed) {
    clock_ = ManualClock();
    reset(seed, {.lost_on_send = 20, .slow = 300});
    std::vector<std::int64_t> trace;
    for (int round = 0; round < 20; ++round) {
      auto link = client_->connect("127.0.0.1", listener_->port()).value();
      for (std::uint64_t i = 0; i < 20; ++i) link->send(frame_of(i)).ignore();
      for (auto next = links_->next_due(); next != Instant::max(); next = links_->next_due()) {
        pass(next - clock_.now());
        if (accepted_ == nullptr) accepted_ = listener_->accept();
        while (accepted_ != nullptr && accepted_->receive().ok())
          trace.push_back(clock_.now().time_since_epoch().count());
      }
      trace.push_back(-1);
      link.reset();
      accepted_.reset();
    }
    return trace;
  };
  const auto first = trace_of(5);
  EXPECT_EQ(first, trace_of(5));
  EXPECT_NE(first, trace_of(6));
  EXPECT_GT(links_->counters().links_lost, 0U);
}

}  // namespace
}  // namespace farlift::kv::sim
