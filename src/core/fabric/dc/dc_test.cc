// What the DC transport asks of the libraries, and what it makes of their answers, on a card that
// exists only in this process.
#include "core/fabric/dc/dc_test_base.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <thread>

namespace farlift::fabric::dc {
namespace {

TEST(DcAddress, has_one_form_of_24_bytes) {
  DcAddress address;
  address.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 15, 15, 15, 223};
  address.dctn = 0x7a03;
  address.lid = 0x1234;
  const auto bytes = address.to_address();
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->hex(), "00000000000000000000ffff0f0f0fdf00007a0312340000");
  const auto back = DcAddress::from_address(*bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, address);
}

TEST(DcAddress, refuses_what_no_target_can_have) {
  DcAddress good;
  good.gid[15] = 1;
  good.dctn = kDctnMax;
  EXPECT_TRUE(good.check().ok());
  DcAddress bad = good;
  bad.dctn = 0;
  EXPECT_EQ(bad.check().code(), Errc::invalid_argument);
  bad.dctn = kDctnMax + 1;
  EXPECT_EQ(bad.check().code(), Errc::invalid_argument);
  bad = good;
  bad.gid[15] = 0;
  EXPECT_EQ(bad.check().code(), Errc::invalid_argument);
  bad = good;
  bad.gid[0] = 0xff;
  EXPECT_EQ(bad.check().code(), Errc::permission);

  const auto wire = *good.to_address();
  for (std::size_t length = 1; length <= Address::kBytesMax; ++length) {
    std::vector<std::byte> cut(wire.bytes().begin(), wire.bytes().end());
    cut.resize(length);
    const auto parsed = DcAddress::from_address(*Address::from_bytes(cut));
    EXPECT_EQ(parsed.ok(), length == DcAddress::kBytes) << length;
  }
  std::vector<std::byte> padded(wire.bytes().begin(), wire.bytes().end());
  padded[23] = std::byte{1};
  EXPECT_EQ(DcAddress::from_address(*Address::from_bytes(padded)).code(), Errc::unsupported);
}

class DcOpen : public DcTest {
 protected:
  Errc refused(const DcOptions& options, std::string* why) {
    const auto opened = open_domain(verbs_, options, why);
    EXPECT_FALSE(opened.ok());
    EXPECT_FALSE(why->empty());
    return opened.ok() ? Errc::internal : opened.code();
  }
};

TEST_F(DcOpen, says_what_is_missing) {
  std::string why;
  verbs_->name = "";
  EXPECT_EQ(refused({}, &why), Errc::not_found);
  verbs_->name = "mlx5_0";
  DcOptions other;
  other.device = "mlx5_7";
  EXPECT_EQ(refused(other, &why), Errc::not_found);
  EXPECT_NE(why.find("mlx5_7"), std::string::npos) << why;
  DcOptions port;
  port.port = 2;
  EXPECT_EQ(refused(port, &why), Errc::not_found);
  DcOptions none;
  none.port = 0;
  EXPECT_EQ(refused(none, &why), Errc::invalid_argument);
  for (const std::uint32_t queues : {0U, kQueuesMax + 1}) {
    DcOptions many;
    many.queues = queues;
    EXPECT_EQ(refused(many, &why), Errc::invalid_argument);
  }
  DcOptions gid;
  gid.gid_index = 9;
  EXPECT_EQ(refused(gid, &why), Errc::not_found);
  EXPECT_NE(why.find('9'), std::string::npos) << why;
}

TEST_F(DcOpen, refuses_a_card_that_cannot_serve) {
  std::string why;
  verbs_->active = false;
  EXPECT_EQ(refused({}, &why), Errc::not_found);
  verbs_->active = true;
  verbs_->knows_dc = false;
  EXPECT_EQ(refused({}, &why), Errc::unsupported);
  verbs_->knows_dc = true;
  verbs_->mlx5 = false;
  EXPECT_EQ(refused({}, &why), Errc::not_found);
  DcOptions named;
  named.device = "mlx5_0";
  EXPECT_EQ(refused(named, &why), Errc::unsupported);
  verbs_->mlx5 = true;
  verbs_->gids.resize(2);  // link-local, and RoCE v1: neither can be routed
  EXPECT_EQ(refused({}, &why), Errc::not_found);
  EXPECT_NE(why.find("RoCE v2"), std::string::npos) << why;
}

TEST_F(DcOpen, this_machine_has_a_reason_or_a_card) {
  std::string why;
  const auto opened = open_domain(DcOptions{}, &why);
  EXPECT_TRUE(opened.ok() || !why.empty());
}

class Dc : public DcTest {};

TEST_F(Dc, describes_itself) {
  open();
  EXPECT_EQ(domain_->info().provider, "dc");
  EXPECT_EQ(domain_->info().interface_name, "mlx5_0");
  EXPECT_EQ(domain_->info().fence_mode, FenceMode::mr);
  EXPECT_TRUE(domain_->info().virtual_addressing);
  EXPECT_TRUE(domain_->info().local_registration_required);
  EXPECT_EQ(domain_->info().operation_length_max, Length(1U << 30));
  const DcAddress address = *DcAddress::from_address(target_->address());
  EXPECT_EQ(address.gid[15], 5);  // the third GID of the table
  EXPECT_EQ(address.lid, 0);      // RoCE
  EXPECT_NE(address.dctn, 0U);
}

TEST_F(Dc, names_its_lid_on_infiniband) {
  verbs_->infiniband = true;
  open();
  const DcAddress address = *DcAddress::from_address(target_->address());
  EXPECT_EQ(address.lid, 0x17);
  EXPECT_EQ(address.gid[0], 0xfe);  // index 0
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  EXPECT_TRUE(poll().at(0).status.ok());
  EXPECT_EQ(verbs_->routes().at(0).dlid, 0x17);
}

TEST_F(Dc, moves_exactly_the_bytes_asked_for) {
  open();
  ASSERT_TRUE(initiator_->post(write(7, 100, 50)).ok());
  auto done = poll();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].context, 7U);
  EXPECT_TRUE(done[0].status.ok());
  for (std::size_t i = 0; i < kBytes; ++i) {
    const bool inside = i >= 100 && i < 150;
    ASSERT_EQ(remote_bytes_[i], inside ? std::byte{0x11} : std::byte{0xee}) << i;
  }
  ASSERT_TRUE(initiator_->post(read(8, 200, 10)).ok());
  ASSERT_TRUE(poll().at(0).status.ok());
  EXPECT_EQ(local_bytes_[200], std::byte{0xee});
  EXPECT_EQ(local_bytes_[199], std::byte{0x11});
  EXPECT_EQ(local_bytes_[210], std::byte{0x11});
  EXPECT_EQ(initiator_->in_flight(), 0U);
}

TEST_F(Dc, asks_for_the_way_once_for_each_peer) {
  DcOptions options;
  options.hop_limit = 9;
  options.traffic_class = 96;
  options.service_level = 3;
  options.gid_index = 2;
  open(options);
  for (std::uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(initiator_->post(write(i, 0, 8)).ok());
  EXPECT_EQ(poll().size(), 3U);
  ASSERT_EQ(verbs_->routes().size(), 1U);
  const ibv_ah_attr& route = verbs_->routes()[0];
  EXPECT_EQ(route.is_global, 1);
  EXPECT_EQ(route.grh.hop_limit, 9);
  EXPECT_EQ(route.grh.traffic_class, 96);
  EXPECT_EQ(route.grh.sgid_index, 2);
  EXPECT_EQ(route.sl, 3);
  EXPECT_EQ(route.port_num, 1);
  EXPECT_EQ(route.grh.dgid.raw[15], 5);
}

TEST_F(Dc, refuses_bad_operations_at_once) {
  open();
  Operation operation = write(1, 0, 8);
  operation.local_registration = nullptr;
  EXPECT_EQ(initiator_->post(operation).code(), Errc::invalid_argument);
  operation = write(1, 0, 8);
  operation.local_registration = remote_.get();  // does not cover it
  EXPECT_EQ(initiator_->post(operation).code(), Errc::invalid_argument);
  operation = write(1, 0, 0);
  EXPECT_EQ(initiator_->post(operation).code(), Errc::invalid_argument);
  operation = write(1, 0, 8);
  operation.peer = PeerId(9);
  EXPECT_EQ(initiator_->post(operation).code(), Errc::invalid_argument);
  operation = write(1, 0, 8);
  operation.key = RKey(std::uint64_t{1} << 32);
  EXPECT_EQ(initiator_->post(operation).code(), Errc::invalid_argument);
  const auto read_only = take(domain_->register_memory({local_bytes_}, Access::remote_read));
  operation = read(1, 0, 8);
  operation.local_registration = read_only.get();  // the card may not write there
  EXPECT_EQ(initiator_->post(operation).code(), Errc::invalid_argument);
  operation.kind = OpKind::write;
  EXPECT_TRUE(initiator_->post(operation).ok());
  EXPECT_TRUE(poll().at(0).status.ok());
  EXPECT_EQ(domain_->register_memory({}, Access::local).code(), Errc::invalid_argument);
}

TEST_F(Dc, enforces_rights_of_each_registration) {
  open();
  const auto readable = take(domain_->register_memory({remote_bytes_}, Access::remote_read));
  const auto writable = take(domain_->register_memory({remote_bytes_}, Access::remote_write));
  Operation operation = write(1, 0, 8);
  operation.key = readable->key();
  ASSERT_TRUE(initiator_->post(operation).ok());
  EXPECT_EQ(only_error(), Errc::access);
  operation = read(2, 0, 8);
  operation.key = writable->key();
  ASSERT_TRUE(initiator_->post(operation).ok());
  EXPECT_EQ(only_error(), Errc::access);
  EXPECT_TRUE(untouched());
}

TEST_F(Dc, counts_references_of_a_peer) {
  open();
  const PeerId again = add(target_->address());
  EXPECT_EQ(again, peer_);
  initiator_->remove_peer(again);
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  EXPECT_TRUE(poll().at(0).status.ok());
  initiator_->remove_peer(peer_);
  EXPECT_EQ(initiator_->post(write(2, 0, 8)).code(), Errc::invalid_argument);
  peer_ = add(target_->address());
  ASSERT_TRUE(initiator_->post(write(3, 0, 8)).ok());
  EXPECT_TRUE(poll().at(0).status.ok());
  EXPECT_EQ(initiator_->add_peer(*Address::from_bytes(std::vector<std::byte>(16))).code(),
            Errc::unsupported);
}

TEST_F(Dc, says_again_when_all_places_are_taken) {
  InitiatorOptions few;
  few.in_flight_max = 4;
  open({}, few);
  verbs_->hold = true;
  for (std::uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(initiator_->post(write(i, 0, 8)).ok());
  EXPECT_EQ(initiator_->post(write(4, 0, 8)).code(), Errc::again);
  EXPECT_EQ(initiator_->in_flight(), 4U);
  EXPECT_TRUE(poll().empty());
  verbs_->run();
  EXPECT_EQ(poll().size(), 4U);
  EXPECT_TRUE(initiator_->post(write(5, 0, 8)).ok());
}

TEST_F(Dc, keeps_what_the_card_has_no_room_for) {
  open();
  verbs_->hold = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  verbs_->posts_without_room = 1;
  ASSERT_TRUE(initiator_->post(write(2, 8, 8)).ok());
  ASSERT_TRUE(initiator_->post(write(3, 16, 8)).ok());
  verbs_->run();
  std::vector<std::uint64_t> order;
  for (int round = 0; round < 3; ++round) {
    for (const Completion& done : poll()) {
      EXPECT_TRUE(done.status.ok());
      order.push_back(done.context);
    }
    verbs_->run();
  }
  EXPECT_EQ(order, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(Dc, wait_ends_with_a_completion_a_wake_or_the_time) {
  open();
  const auto readable = [&] {
    pollfd fd{initiator_->wait_fd(), POLLIN, 0};
    return ::poll(&fd, 1, 0) == 1;
  };
  initiator_->wait(0);
  initiator_->wake();
  initiator_->wait(-1);  // ends at once
  verbs_->hold = true;
  ASSERT_TRUE(initiator_->post(write(1, 0, 8)).ok());
  EXPECT_TRUE(poll().empty());  // asks for an event
  EXPECT_FALSE(readable());
  verbs_->run();
  EXPECT_TRUE(readable());
  initiator_->wait(-1);
  EXPECT_EQ(poll().size(), 1U);
  EXPECT_FALSE(readable());
  // Out already when the event is asked for: no event will come, wait() must see it by itself.
  verbs_->hold = false;
  ASSERT_TRUE(initiator_->post(write(2, 0, 8)).ok());
  initiator_->wait(-1);
  EXPECT_EQ(poll().size(), 1U);
  // Many events: they are acknowledged in batches and when it closes.
  verbs_->hold = true;
  for (std::uint64_t i = 0; i < 200; ++i) {
    ASSERT_TRUE(initiator_->post(write(i, 0, 8)).ok());
    EXPECT_TRUE(poll().empty());
    verbs_->run();
    EXPECT_EQ(poll().size(), 1U);
  }
}

TEST_F(Dc, target_only_waits) {
  open();
  EXPECT_FALSE(target_->progress(0, -1).value_or(true));
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(target_->progress(0, ends[0]).value_or(true));
  ASSERT_EQ(::write(ends[1], "x", 1), 1);
  EXPECT_TRUE(target_->progress(-1, ends[0]).value_or(false));
  ::close(ends[0]);
  ::close(ends[1]);
  std::thread waiting([&] { EXPECT_EQ(target_->progress(-1, -1).code(), Errc::closed); });
  EXPECT_TRUE(target_->close().ok());
  waiting.join();
  EXPECT_TRUE(target_->close().ok());
}

}  // namespace
}  // namespace farlift::fabric::dc
