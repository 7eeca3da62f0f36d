// Registration::close() and the piece in progress: a peer that stalls inside a piece holds nobody,
// and a copy that the kernel is in the middle of is waited for, whatever it waits for.
#include "core/fabric/soft/soft_peer_test_base.h"

#include <algorithm>
#include <atomic>
#include <fcntl.h>
#include <future>
#include <linux/userfaultfd.h>
#include <optional>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

namespace farlift::fabric::soft {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kPage = 4096;
constexpr std::byte kWritten{0x77};
constexpr std::byte kReused{0x32};

template <class Predicate>
bool within(int ms, Predicate done) {
  const auto limit = std::chrono::steady_clock::now() + milliseconds(ms);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

// What a peer by hand is told about its operation.
std::optional<Reply> next_reply(int fd) {
  std::vector<std::byte> bytes(kReplyBytes);
  std::size_t have = 0;
  while (have < bytes.size()) {
    pollfd p{fd, POLLIN, 0};
    if (::poll(&p, 1, kLongMs) != 1) return std::nullopt;
    const ssize_t n = ::recv(fd, bytes.data() + have, bytes.size() - have, 0);
    if (n <= 0) return std::nullopt;
    have += static_cast<std::size_t>(n);
  }
  const auto reply = decode_reply(bytes);
  return reply.ok() ? std::optional(*reply) : std::nullopt;
}

UniqueFd greeted(const Address& address) {
  UniqueFd fd = connect_to(address);
  EXPECT_TRUE(send_all(fd.get(), encoded<kHelloBytes>(Hello{})));
  std::vector<std::byte> answer(kHelloBytes);
  EXPECT_EQ(::recv(fd.get(), answer.data(), answer.size(), MSG_WAITALL),
            static_cast<ssize_t>(kHelloBytes));
  return fd;
}

// A peer that sends a part of a piece and stalls: close() does not wait for the rest, nothing of
// the rest lands when it comes, and the link stays in step behind it.
TEST(SoftFence, AStalledPieceHoldsNoCloseAndLandsNoFurther) {
  const auto domain = open(false);
  const auto target = *domain->open_target({});
  const struct {
    std::size_t length, before;  // of the payload; of it, sent before the close
  } cases[] = {{256u << 10, 128u << 10}, {1u << 20, (512u << 10) + 1}, {100, 99}, {8192, 1}};
  std::uint64_t id = 0;
  for (const auto& c : cases) {
    SCOPED_TRACE(c.length);
    const UniqueFd fd = greeted(target->address());
    std::vector<std::byte> memory(c.length);
    std::vector<std::byte> payload(c.length, kWritten);
    const auto region = *domain->register_memory({memory}, Access::remote_write);
    const std::uint64_t landed = stats(*domain).bytes_landed;
    ASSERT_TRUE(
        send_all(fd.get(), encoded<kRequestBytes>(Request{RequestKind::write, ++id, region->key(),
                                                          region->addr(), Length(c.length), 0})));
    ASSERT_TRUE(send_all(fd.get(), std::span(payload).first(c.before)));
    EXPECT_TRUE(within(kLongMs, [&] { return stats(*domain).bytes_landed == landed + c.before; }));
    auto closing = std::async(std::launch::async, [&] { return region->close().ok(); });
    const bool closed = closing.wait_for(milliseconds(kLongMs / 4)) == std::future_status::ready;
    EXPECT_TRUE(closed) << "close waited for the peer";
    ASSERT_TRUE(send_all(fd.get(), std::span(payload).subspan(c.before)));
    EXPECT_TRUE(closing.get());
    ASSERT_FALSE(HasFailure());
    const auto told = next_reply(fd.get());
    ASSERT_TRUE(told.has_value());
    EXPECT_EQ(told->id, id);
    EXPECT_EQ(told->status, ReplyStatus::access);
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(memory, kWritten)), c.before);
    EXPECT_EQ(memory[c.before], std::byte{0});

    const auto again = *domain->register_memory({memory}, Access::remote_write);
    ASSERT_TRUE(
        send_all(fd.get(), encoded<kRequestBytes>(Request{RequestKind::write, ++id, again->key(),
                                                          again->addr(), Length(c.length), 0})));
    ASSERT_TRUE(send_all(fd.get(), payload));
    const auto after = next_reply(fd.get());
    ASSERT_TRUE(after.has_value());
    EXPECT_EQ(after->status, ReplyStatus::ok);
    EXPECT_EQ(memory, payload);
  }
}

// Memory with one page that is not there yet: whoever touches it, the kernel on somebody's behalf
// included, waits until we give it. So a copy stands still in its middle for as long as we like.
class FrozenPage {
 public:
  FrozenPage(std::size_t bytes, std::size_t missing_at, std::byte value)
      : size_(bytes), missing_(missing_at / kPage * kPage) {
    faults_ = UniqueFd(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    if (!faults_) return;
    void* const at =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(at, MAP_FAILED);
    start_ = static_cast<std::byte*>(at);
    ::madvise(start_, size_, MADV_NOHUGEPAGE);
    for (std::size_t i = 0; i < size_; i += kPage) {
      if (i != missing_) std::memset(start_ + i, std::to_integer<int>(value), kPage);
    }
    uffdio_api api{};
    api.api = UFFD_API;
    uffdio_register range{};
    range.range = {reinterpret_cast<std::uint64_t>(start_ + missing_), kPage};
    range.mode = UFFDIO_REGISTER_MODE_MISSING;
    usable_ = ::ioctl(faults_.get(), UFFDIO_API, &api) == 0 &&
              ::ioctl(faults_.get(), UFFDIO_REGISTER, &range) == 0;
  }
  ~FrozenPage() {
    thaw();
    if (start_ != nullptr) ::munmap(start_, size_);
  }
  // False where this kernel lets us not: vm.unprivileged_userfaultfd is 0 and we are not root.
  bool usable() const noexcept { return usable_; }
  std::span<std::byte> bytes() noexcept { return {start_, size_}; }
  std::size_t missing() const noexcept { return missing_; }
  bool touched(int timeout_ms) const {
    pollfd p{faults_.get(), POLLIN, 0};
    return ::poll(&p, 1, timeout_ms) == 1;
  }
  // Gives the page, of zeros, and wakes who waits for it.
  void thaw() {
    if (!usable_ || thawed_) return;
    thawed_ = true;
    uffdio_zeropage page{};
    page.range = {reinterpret_cast<std::uint64_t>(start_ + missing_), kPage};
    EXPECT_EQ(::ioctl(faults_.get(), UFFDIO_ZEROPAGE, &page), 0);
  }

 private:
  const std::size_t size_;
  const std::size_t missing_;
  UniqueFd faults_;
  std::byte* start_ = nullptr;
  bool usable_ = false;
  bool thawed_ = false;
};

class SoftFenceLanes : public ::testing::TestWithParam<bool> {};

// Both directions: the copy into the registration, and the one out of it.
void close_in_the_middle(OpKind kind, bool host_lane) {
  const std::size_t size = 2u << 20;
  FrozenPage page(size, 300u << 10, std::byte{0});
  if (!page.usable()) GTEST_SKIP() << "no userfaultfd for this user";
  const auto domain = open(host_lane);
  const auto target = *domain->open_target({});
  const auto region = *domain->register_memory(
      {page.bytes()}, kind == OpKind::write ? Access::remote_write : Access::remote_read);
  std::vector<std::byte> local(size, kWritten);
  std::atomic<bool> over{false};
  Status status;
  std::thread peer([&] {
    const auto initiator = *domain->open_initiator({});
    const PeerId to = *initiator->add_peer(target->address());
    status = run(*initiator, {kind, to, region->key(), region->addr(), local, nullptr, 1});
    over = true;
  });
  const bool frozen = page.touched(kLongMs);
  EXPECT_TRUE(frozen) << "the copy never came to the missing page";
  auto closing = std::async(std::launch::async, [&] { return region->close().ok(); });
  // The close has begun when the key is refused; from then on it waits for the copy alone.
  const auto neighbour = *domain->open_target({});
  const auto other = *domain->open_initiator({});
  const PeerId beside = *other->add_peer(neighbour->address());
  std::vector<std::byte> word(8);
  EXPECT_TRUE(within(kLongMs / 2, [&] {
    const Status late =
        run(*other, {kind, beside, region->key(), region->addr(), word, nullptr, 2});
    return !late.ok() && late.code() == Errc::access;
  })) << "the key is not refused while the close waits";
  EXPECT_EQ(closing.wait_for(milliseconds(50)), std::future_status::timeout)
      << "close returned while the kernel was copying";
  page.thaw();
  EXPECT_TRUE(closing.get());
  const std::vector<std::byte> snapshot(page.bytes().begin(), page.bytes().end());
  if (kind == OpKind::read) std::ranges::fill(page.bytes(), kReused);
  peer.join();
  EXPECT_TRUE(over.load());
  EXPECT_TRUE(!status.ok() && status.code() == Errc::access)
      << "close was called before the last piece began";
  if (kind == OpKind::write) {
    EXPECT_TRUE(std::ranges::equal(snapshot, page.bytes())) << "bytes landed after the close";
  } else {
    EXPECT_EQ(std::ranges::count(local, kReused), 0) << "bytes were read after the close";
  }
}

TEST_P(SoftFenceLanes, CloseWaitsForTheKernelsCopyIn) {
  close_in_the_middle(OpKind::write, GetParam());
}

// On the host lane the initiator reads by itself, and believes nothing that a close overlapped.
TEST(SoftFence, CloseWaitsForTheKernelsCopyOut) { close_in_the_middle(OpKind::read, false); }

INSTANTIATE_TEST_SUITE_P(Lane, SoftFenceLanes, ::testing::Values(false, true),
                         [](const auto& p) { return p.param ? "host" : "remote"; });

}  // namespace
}  // namespace farlift::fabric::soft
