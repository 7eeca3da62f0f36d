// Faults of a DC queue: who is told what, and that the next operation works.
#include "core/fabric/dc/dc_test_base.h"

#include <algorithm>

namespace farlift::fabric::dc {
namespace {

class DcFault : public DcTest {
 protected:
  // Another target of the same card, bound to a DCI of its own or, with one queue, to the same.
  PeerId neighbour() {
    neighbour_ = take(domain_->open_target({}));
    return add(neighbour_->address());
  }
  void TearDown() override {
    neighbour_.reset();
    DcTest::TearDown();
  }
  static Errc code_of(const std::vector<Completion>& done, std::uint64_t context) {
    const auto found = std::find_if(done.begin(), done.end(),
                                    [&](const Completion& c) { return c.context == context; });
    if (found == done.end()) return Errc::not_found;
    return found->status.ok() ? Errc{} : found->status.code();
  }

  std::unique_ptr<TargetEndpoint> neighbour_;
};
constexpr Errc kDone{};

TEST_F(DcFault, a_wrong_key_is_refused_and_the_next_operation_works) {
  open();
  Operation operation = write(1, 0, 8);
  operation.key = RKey(0xdead);
  ASSERT_TRUE(initiator_->post(operation).ok());
  EXPECT_EQ(only_error(), Errc::access);
  EXPECT_TRUE(untouched());
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  EXPECT_TRUE(poll().at(0).status.ok());
}

TEST_F(DcFault, a_range_past_the_registration_is_refused) {
  open();
  Operation operation = write(1, kBytes - 8, 8);
  operation.addr = remote_->addr() + Offset(kBytes - 4);
  ASSERT_TRUE(initiator_->post(operation).ok());
  EXPECT_EQ(only_error(), Errc::access);
  operation.addr = RemoteAddr(UINT64_MAX - 4);
  ASSERT_TRUE(initiator_->post(operation).ok());
  EXPECT_EQ(only_error(), Errc::access);
  EXPECT_TRUE(untouched());
}

TEST_F(DcFault, a_closed_key_delivers_nothing) {
  open();
  verbs_->hold = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  EXPECT_TRUE(remote_->close().ok());
  verbs_->run();
  EXPECT_EQ(only_error(), Errc::access);
  EXPECT_TRUE(untouched());
  EXPECT_TRUE(remote_->close().ok());
}

TEST_F(DcFault, a_target_with_another_dc_key_is_not_reached) {
  open();
  DcOptions other;
  other.dc_key = 0x12345678;
  auto domain = open_domain(verbs_, other);
  ASSERT_TRUE(domain.ok());
  {
    const auto target = take((*domain)->open_target({}));
    peer_ = add(target->address());
    ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
    EXPECT_EQ(only_error(), Errc::unreachable);
    EXPECT_TRUE(untouched());
  }
}

TEST_F(DcFault, a_target_that_is_gone_is_unreachable) {
  open();
  EXPECT_TRUE(target_->close().ok());
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  EXPECT_EQ(only_error(), Errc::unreachable);
  EXPECT_TRUE(untouched());
}

TEST_F(DcFault, no_way_to_the_peer_is_a_completion_and_asked_again) {
  open();
  verbs_->routes_fail = 1;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  EXPECT_EQ(only_error(), Errc::unreachable);
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  EXPECT_TRUE(poll().at(0).status.ok());
}

TEST_F(DcFault, those_behind_a_refusal_are_flushed_and_those_waiting_go_out_after_it) {
  DcOptions one;
  one.queues = 1;
  open(one);
  verbs_->hold = true;
  Operation bad = write(1, 0, 8);
  bad.key = RKey(0xdead);
  ASSERT_TRUE(initiator_->post(write(0, 0, 8)).ok());
  ASSERT_TRUE(initiator_->post(bad).ok());
  ASSERT_TRUE(initiator_->post(write(2, 8, 8)).ok());
  verbs_->run();
  // Taken, but not while the queue stands: it goes out when the queue was restarted.
  const auto done = poll();
  ASSERT_EQ(done.size(), 3U);
  EXPECT_EQ(code_of(done, 0), kDone);
  EXPECT_EQ(code_of(done, 1), Errc::access);
  EXPECT_EQ(code_of(done, 2), Errc::flushed);
  ASSERT_TRUE(initiator_->post(write(3, 8, 8)).ok());
  verbs_->run();
  EXPECT_TRUE(poll().at(0).status.ok());
  EXPECT_EQ(verbs_->queues_made(),
            3);  // the probe's target, ours, and one DCI: reset, not made anew
}

TEST_F(DcFault, a_neighbour_on_another_queue_notices_nothing) {
  open();
  const PeerId other = neighbour();
  verbs_->hold = true;
  Operation bad = write(1, 0, 8);
  bad.key = RKey(0xdead);
  Operation good = write(2, 8, 8);
  good.peer = other;
  ASSERT_TRUE(initiator_->post(bad).ok());
  ASSERT_TRUE(initiator_->post(good).ok());
  verbs_->run();
  const auto done = poll();
  EXPECT_EQ(code_of(done, 1), Errc::access);
  EXPECT_EQ(code_of(done, 2), kDone);
}

TEST_F(DcFault, abort_stops_the_peer_and_flushes_who_shares_its_queue) {
  DcOptions one;
  one.queues = 1;
  open(one);
  const PeerId other = neighbour();
  verbs_->hold = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  Operation shared = write(2, 8, 8);
  shared.peer = other;
  ASSERT_TRUE(initiator_->post(shared).ok());
  initiator_->abort(peer_);
  initiator_->abort(peer_);
  ASSERT_TRUE(initiator_->post(write(3, 16, 8)).ok());  // waits for the restart
  const auto done = poll();
  EXPECT_EQ(code_of(done, 1), Errc::aborted);
  EXPECT_EQ(code_of(done, 2), Errc::flushed);
  EXPECT_TRUE(untouched());
  verbs_->run();
  EXPECT_EQ(code_of(poll(), 3), kDone);
}

TEST_F(DcFault, abort_ends_what_still_waits_and_leaves_the_others) {
  DcOptions one;
  one.queues = 1;
  open(one);
  const PeerId other = neighbour();
  verbs_->hold = true;
  verbs_->posts_without_room = 0;
  Operation first = write(1, 0, 8);
  first.peer = other;
  ASSERT_TRUE(initiator_->post(first).ok());
  verbs_->posts_without_room = 1;
  ASSERT_TRUE(initiator_->post(write(2, 8, 8)).ok());
  Operation third = write(3, 16, 8);
  third.peer = other;
  ASSERT_TRUE(initiator_->post(third).ok());
  initiator_->abort(peer_);  // only waiting: the queue need not stop
  EXPECT_EQ(code_of(poll(), 2), Errc::aborted);
  verbs_->run();
  auto done = poll();
  EXPECT_EQ(code_of(done, 1), kDone);
  verbs_->run();
  if (done.size() < 2) done = poll();
  EXPECT_EQ(code_of(done, 3), kDone);
}

TEST_F(DcFault, a_removed_peer_ends_its_operations_and_its_place_is_free_again) {
  open();
  verbs_->hold = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  initiator_->remove_peer(peer_);
  EXPECT_EQ(code_of(poll(), 1), Errc::aborted);
  EXPECT_EQ(add(target_->address()), peer_);
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  verbs_->run();
  EXPECT_EQ(code_of(poll(), 2), kDone);
}

TEST_F(DcFault, a_queue_that_does_not_stop_is_destroyed_and_made_anew) {
  DcOptions one;
  one.queues = 1;
  open(one);
  verbs_->hold = true;
  verbs_->refuse_error_state = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  initiator_->abort(peer_);
  EXPECT_EQ(code_of(poll(), 1), Errc::aborted);
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  verbs_->run();
  EXPECT_EQ(code_of(poll(), 2), kDone);
}

TEST_F(DcFault, a_queue_that_cannot_be_reset_is_made_anew) {
  DcOptions one;
  one.queues = 1;
  open(one);
  verbs_->refuse_reset = true;
  Operation bad = write(1, 0, 8);
  bad.key = RKey(0xdead);
  ASSERT_TRUE(initiator_->post(bad).ok());
  EXPECT_EQ(only_error(), Errc::access);
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  EXPECT_EQ(code_of(poll(), 2), kDone);
  EXPECT_EQ(verbs_->queues_made(), 4);
}

TEST_F(DcFault, a_card_that_gives_no_new_queue_fails_operations_until_it_does) {
  DcOptions one;
  one.queues = 1;
  open(one);
  verbs_->refuse_reset = true;
  verbs_->refuse_creation = true;
  Operation bad = write(1, 0, 8);
  bad.key = RKey(0xdead);
  ASSERT_TRUE(initiator_->post(bad).ok());
  EXPECT_EQ(only_error(), Errc::access);
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  EXPECT_EQ(only_error(), Errc::invalid_argument);  // what the library said: EINVAL
  EXPECT_EQ(initiator_->in_flight(), 0U);
  verbs_->refuse_creation = false;
  ASSERT_TRUE(initiator_->post(write(3, 0, 8)).ok());
  EXPECT_TRUE(poll().empty());  // makes the queue anew and hands it out
  EXPECT_EQ(code_of(poll(), 3), kDone);
}

TEST_F(DcFault, close_ends_everything) {
  open();
  verbs_->hold = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  initiator_->close();
  initiator_->close();
  verbs_->run();
  EXPECT_TRUE(poll().empty());
  EXPECT_EQ(initiator_->in_flight(), 0U);
  EXPECT_EQ(initiator_->post(write(2, 0, 8)).code(), Errc::closed);
  EXPECT_TRUE(untouched());
}

}  // namespace
}  // namespace farlift::fabric::dc
