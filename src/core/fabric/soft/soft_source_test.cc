// Pulls out of announced files: the right bytes whatever the file is, and no memory held for good.
#include "core/base/unique_fd.h"
#include "core/fabric/soft/address.h"
#include "core/fabric/soft/soft.h"
#include "core/fabric/soft/soft_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace farlift::fabric::soft {
namespace {

constexpr std::size_t kBytes = 1u << 20;
constexpr int kLongMs = 40000;

// A mapped memfd of `size` bytes, each `fill`; at `at` when given.
class File {
 public:
  File(std::size_t size, std::byte fill, bool sealed = true, void* at = nullptr)
      : fd_(::memfd_create("soft-source-test", MFD_CLOEXEC | MFD_ALLOW_SEALING)), size_(size) {
    EXPECT_EQ(::ftruncate(fd_.get(), static_cast<off_t>(size)), 0);
    const int seals = sealed ? F_SEAL_SHRINK | F_SEAL_GROW : 0;
    EXPECT_EQ(::fcntl(fd_.get(), F_ADD_SEALS, seals), 0);
    void* got = ::mmap(at, size, PROT_READ | PROT_WRITE,
                       MAP_SHARED | (at != nullptr ? MAP_FIXED : 0), fd_.get(), 0);
    EXPECT_NE(got, MAP_FAILED);
    bytes_ = {static_cast<std::byte*>(got), size};
    std::fill(bytes_.begin(), bytes_.end(), fill);
  }
  ~File() {
    if (!left_) ::munmap(bytes_.data(), size_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }
  MemoryRef memory() const { return {bytes_, fd_.get(), 0}; }
  int fd() const { return fd_.get(); }
  std::uint64_t inode() const {
    struct stat file {};
    EXPECT_EQ(::fstat(fd_.get(), &file), 0);
    return file.st_ino;
  }
  // Gives the address away: somebody maps over it.
  void leave() { left_ = true; }

 private:
  UniqueFd fd_;
  std::size_t size_;
  std::span<std::byte> bytes_;
  bool left_ = false;
};

// How many mappings of a file this process has.
int views_of(std::uint64_t inode) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("soft-source-test") != std::string::npos &&
        line.find(" " + std::to_string(inode) + " ") != std::string::npos) {
      ++count;
    }
  }
  return count;
}

class SoftSources : public ::testing::Test {
 protected:
  void SetUp() override {
    domain_ = *open_domain({}, clock_);
    target_ = *domain_->open_target({});
    landing_.assign(4 * kBytes, std::byte{0});
    region_ = *domain_->register_memory({landing_}, Access::remote_read_write);
    initiator_ = *domain_->open_initiator({});
    peer_ = *initiator_->add_peer(target_->address());
  }

  // Writes `local` and says whether what landed is what it held; false as well when it failed.
  ::testing::AssertionResult lands(std::span<std::byte> local, Registration* registration) {
    std::fill(landing_.begin(), landing_.end(), std::byte{0});
    const Status posted = initiator_->post(
        {OpKind::write, peer_, region_->key(), region_->addr(), local, registration, 1});
    if (!posted.ok()) return ::testing::AssertionFailure() << posted.error().describe();
    Completion done;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(kLongMs);
    while (initiator_->poll({&done, 1}) == 0) {
      if (std::chrono::steady_clock::now() > limit) return ::testing::AssertionFailure() << "late";
      initiator_->wait(1000);
    }
    if (!done.status.ok()) return ::testing::AssertionFailure() << done.status.error().describe();
    if (std::memcmp(landing_.data(), local.data(), local.size()) != 0)
      return ::testing::AssertionFailure() << "wrong bytes";
    return ::testing::AssertionSuccess();
  }
  std::uint64_t mapped() const { return stats(*domain_).bytes_mapped; }
  bool host_lane() const { return stats(*domain_).host_links > 0; }

  SystemClock clock_;
  std::unique_ptr<Domain> domain_;
  std::unique_ptr<TargetEndpoint> target_;
  std::vector<std::byte> landing_;
  std::unique_ptr<Registration> region_;
  std::unique_ptr<Initiator> initiator_;
  PeerId peer_;
};

TEST_F(SoftSources, ASealedFileIsCopiedFromOurOwnView) {
  File file(kBytes, std::byte{7});
  const auto registration = *domain_->register_memory(file.memory(), Access::local);
  ASSERT_TRUE(lands(file.bytes(), registration.get()));
  if (!host_lane()) GTEST_SKIP() << "the kernel allows no host lane here";
  EXPECT_EQ(mapped(), kBytes);
  // A part of it, not aligned to anything; and after the owner wrote something else there.
  std::fill(file.bytes().begin(), file.bytes().end(), std::byte{9});
  EXPECT_TRUE(lands(file.bytes().subspan(12345, 400001), registration.get()));
  EXPECT_EQ(mapped(), kBytes + 400001);
  EXPECT_EQ(stats(*domain_).bytes_landed, kBytes + 400001);
}

TEST_F(SoftSources, OneViewServesAllLinks) {
  File file(kBytes, std::byte{7});
  const auto registration = *domain_->register_memory(file.memory(), Access::local);
  ASSERT_TRUE(lands(file.bytes(), registration.get()));
  if (!host_lane()) GTEST_SKIP() << "the kernel allows no host lane here";
  const auto first = std::move(initiator_);
  initiator_ = *domain_->open_initiator({});
  peer_ = *initiator_->add_peer(target_->address());
  ASSERT_TRUE(lands(file.bytes(), registration.get()));
  EXPECT_EQ(mapped(), 2 * kBytes);
  EXPECT_EQ(views_of(file.inode()), 2);  // the owner's and the target's
}

TEST_F(SoftSources, WhatMayNotBeMappedIsReadAllTheSame) {
  File cuttable(kBytes, std::byte{5}, false);
  const auto unsealed = *domain_->register_memory(cuttable.memory(), Access::local);
  EXPECT_TRUE(lands(cuttable.bytes(), unsealed.get()));
  std::vector<std::byte> plain(kBytes, std::byte{6});
  const auto memory = *domain_->register_memory({plain}, Access::local);
  EXPECT_TRUE(lands(plain, memory.get()));
  EXPECT_TRUE(lands(plain, nullptr));
  // A registration that does not cover the memory says nothing about it.
  File file(kBytes, std::byte{7});
  const auto other = *domain_->register_memory(file.memory(), Access::local);
  EXPECT_TRUE(lands(plain, other.get()));
  EXPECT_EQ(mapped(), 0u);
}

TEST_F(SoftSources, AnotherFileAtTheSameAddressIsNotTakenForTheFirst) {
  File first(kBytes, std::byte{1});
  auto registration = *domain_->register_memory(first.memory(), Access::local);
  ASSERT_TRUE(lands(first.bytes(), registration.get()));
  if (!host_lane()) GTEST_SKIP() << "the kernel allows no host lane here";
  registration.reset();
  first.leave();
  {
    File second(kBytes, std::byte{2}, true, first.bytes().data());
    const auto again = *domain_->register_memory(second.memory(), Access::local);
    EXPECT_TRUE(lands(second.bytes(), again.get()));
    EXPECT_EQ(mapped(), 2 * kBytes);
    second.leave();
  }
  // And memory without a file: the view of what was there before must not be used.
  void* at = ::mmap(first.bytes().data(), kBytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  std::memset(at, 3, kBytes);
  const std::span<std::byte> anonymous(static_cast<std::byte*>(at), kBytes);
  EXPECT_TRUE(lands(anonymous, nullptr));
  const auto registered = *domain_->register_memory({anonymous}, Access::local);
  EXPECT_TRUE(lands(anonymous, registered.get()));
  EXPECT_EQ(mapped(), 2 * kBytes);
  ::munmap(at, kBytes);
}

TEST_F(SoftSources, WhatIsGoneIsTakenBack) {
  std::uint64_t inode = 0;
  File kept(kBytes, std::byte{1});
  const auto stays = *domain_->register_memory(kept.memory(), Access::local);
  {
    File file(kBytes, std::byte{2});
    const auto registration = *domain_->register_memory(file.memory(), Access::local);
    ASSERT_TRUE(lands(file.bytes(), registration.get()));
    if (!host_lane()) GTEST_SKIP() << "the kernel allows no host lane here";
    inode = file.inode();
    EXPECT_EQ(views_of(inode), 2);
  }
  EXPECT_EQ(views_of(inode), 1);  // the target's
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(lands(kept.bytes(), stays.get()));
  EXPECT_EQ(views_of(inode), 0);
  EXPECT_EQ(views_of(kept.inode()), 2);
  EXPECT_TRUE(target_->close().ok());
  target_.reset();
  EXPECT_EQ(views_of(kept.inode()), 1);
}

// A link spoken by hand, with a proven host lane.
class SpokenLink {
 public:
  SpokenLink(const Address& target, bool announces) {
    const auto to = SocketAddress::decode(target);
    fd_ = UniqueFd(::socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd_.get(), to->get(), to->size()), 0);
    Hello hello;
    hello.host_lane = true;
    hello.pid = static_cast<std::uint32_t>(::getpid());
    hello.boot_id = boot();
    hello.cell_addr = reinterpret_cast<std::uint64_t>(cell_.data());
    hello.registry_slots = announces ? kAnnouncesSources : 0;
    hello.socket_fd = static_cast<std::uint32_t>(fd_.get());
    std::array<std::byte, kHelloBytes> bytes;
    encode(hello, bytes);
    EXPECT_TRUE(send(bytes));
    EXPECT_TRUE(receive(bytes));
    theirs_ = *decode_hello(bytes);
    cell_ = theirs_.challenge;
    request({RequestKind::host_ready, 0, RKey(), RemoteAddr(), Length(1), 0});
    proven_ = reply().status == ReplyStatus::ok;
  }
  bool proven() const { return proven_; }
  const Hello& theirs() const { return theirs_; }
  void request(const Request& what) {
    std::array<std::byte, kRequestBytes> bytes;
    encode(what, bytes);
    EXPECT_TRUE(send(bytes));
  }
  Reply reply() {
    std::array<std::byte, kReplyBytes> bytes{};
    EXPECT_TRUE(receive(bytes));
    const auto decoded = decode_reply(bytes);
    EXPECT_TRUE(decoded.ok());
    return decoded.ok() ? *decoded : Reply{ReplyKind::done, ReplyStatus::io, 0, Length()};
  }
  bool ended() {
    std::byte one{};
    pollfd p{fd_.get(), POLLIN, 0};
    return ::poll(&p, 1, kLongMs) == 1 && ::recv(fd_.get(), &one, 1, 0) <= 0;
  }

 private:
  static Token16 boot() {
    SystemClock clock;
    const auto domain = *open_domain({}, clock);
    const auto target = *domain->open_target({});
    const auto to = SocketAddress::decode(target->address());
    const UniqueFd fd(::socket(to->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(fd.get(), to->get(), to->size()), 0);
    std::array<std::byte, kHelloBytes> bytes;
    encode(Hello{}, bytes);
    EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    EXPECT_EQ(::recv(fd.get(), bytes.data(), bytes.size(), MSG_WAITALL),
              static_cast<ssize_t>(bytes.size()));
    return decode_hello(bytes)->boot_id;
  }
  bool send(std::span<const std::byte> bytes) {
    return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  bool receive(std::span<std::byte> bytes) {
    return ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(bytes.size());
  }
  UniqueFd fd_;
  alignas(16) Token16 cell_{};
  Hello theirs_;
  bool proven_ = false;
};

// A peer that announces what is not there, or not a file to be mapped: its pulls are read from its
// memory, which is what they name.
TEST_F(SoftSources, ALiarGetsNoView) {
  File file(kBytes, std::byte{4});
  File cuttable(kBytes, std::byte{4}, false);
  std::vector<std::byte> memory(kBytes, std::byte{8});
  SpokenLink link(target_->address(), true);
  if (!link.proven()) GTEST_SKIP() << "the kernel allows no host lane here";
  EXPECT_TRUE(link.theirs().takes_sources);
  const auto va = reinterpret_cast<std::uint64_t>(memory.data());
  const auto fd = [](int n) { return RKey(static_cast<std::uint64_t>(n)); };
  const UniqueFd folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Request lies[] = {
      {RequestKind::source, file.inode() + 1, fd(file.fd()), RemoteAddr(), Length(kBytes), va},
      {RequestKind::source, file.inode(), fd(1 << 20), RemoteAddr(), Length(kBytes), va},
      {RequestKind::source, file.inode(), fd(folder.get()), RemoteAddr(), Length(kBytes), va},
      {RequestKind::source, file.inode(), fd(file.fd()), RemoteAddr(), Length(kBytes + 1), va},
      {RequestKind::source, file.inode(), fd(file.fd()), RemoteAddr(512), Length(4096), va},
      {RequestKind::source, file.inode(), fd(file.fd()), RemoteAddr(2 * kBytes), Length(1), va},
      {RequestKind::source, cuttable.inode(), fd(cuttable.fd()), RemoteAddr(), Length(kBytes), va},
  };
  std::uint64_t id = 100;
  for (const Request& lie : lies) {
    std::fill(landing_.begin(), landing_.end(), std::byte{0});
    link.request(lie);
    link.request(
        {RequestKind::pull_source, ++id, region_->key(), region_->addr(), Length(kBytes), va});
    const Reply done = link.reply();
    EXPECT_EQ(done.id, id);
    EXPECT_EQ(done.status, ReplyStatus::ok);
    EXPECT_EQ(std::memcmp(landing_.data(), memory.data(), kBytes), 0) << id;
  }
  EXPECT_EQ(mapped(), 0u);
  // The truth is mapped; what reaches past it is read where it was said to be.
  link.request({RequestKind::source, file.inode(), fd(file.fd()), RemoteAddr(), Length(4096), va});
  link.request({RequestKind::pull_source, 1, region_->key(), region_->addr(), Length(4097), va});
  EXPECT_EQ(link.reply().status, ReplyStatus::ok);
  EXPECT_EQ(landing_[0], std::byte{8});
  link.request({RequestKind::pull_source, 2, region_->key(), region_->addr(), Length(4096), va});
  EXPECT_EQ(link.reply().status, ReplyStatus::ok);
  EXPECT_EQ(landing_[0], std::byte{4});
  EXPECT_EQ(mapped(), 4096u);
  // The file may be emptied meanwhile, not cut: zeros, no fault.
  ASSERT_EQ(::fallocate(file.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kBytes), 0);
  link.request({RequestKind::pull_source, 3, region_->key(), region_->addr(), Length(4096), va});
  EXPECT_EQ(link.reply().status, ReplyStatus::ok);
  EXPECT_EQ(landing_[0], std::byte{0});
}

// Who did not say that it announces is spoken to as before, and may not.
TEST_F(SoftSources, AnOlderInitiatorIsNotBothered) {
  SpokenLink link(target_->address(), false);
  if (!link.proven()) GTEST_SKIP() << "the kernel allows no host lane here";
  EXPECT_FALSE(link.theirs().takes_sources);
  File file(kBytes, std::byte{4});
  link.request({RequestKind::source, file.inode(), RKey(static_cast<std::uint64_t>(file.fd())),
                RemoteAddr(), Length(kBytes), 4096});
  EXPECT_TRUE(link.ended());
  EXPECT_EQ(stats(*domain_).links_broken, 1u);
}

}  // namespace
}  // namespace farlift::fabric::soft
