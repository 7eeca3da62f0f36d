#include "core/memory/budget.h"
#include "core/memory/mapping.h"
#include "core/memory/segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace farlift::memory {
namespace {

TEST(Mapping, zero_filled_writable_and_rounded_up) {
  auto mapping = Mapping::create(Length(5000), {}).value();
  EXPECT_EQ(mapping.bytes().size(), 8192u);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(mapping.bytes().data()) % 4096, 0u);
  EXPECT_TRUE(std::all_of(mapping.bytes().begin(), mapping.bytes().end(),
                          [](std::byte b) { return b == std::byte{}; }));
  std::fill(mapping.bytes().begin(), mapping.bytes().end(), std::byte{7});
  EXPECT_FALSE(mapping.huge_pages());  // shorter than one
}

TEST(Mapping, the_descriptor_maps_the_same_frames) {
  const auto mapping = Mapping::create(Length(4096), {}).value();
  void* again = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, mapping.memfd(), 0);
  ASSERT_NE(again, MAP_FAILED);
  mapping.bytes()[100] = std::byte{42};
  EXPECT_EQ(static_cast<const std::byte*>(again)[100], std::byte{42});
  munmap(again, 4096);
}

TEST(Mapping, cannot_be_resized_by_its_descriptor) {
  const auto mapping = Mapping::create(Length(8192), {}).value();
  EXPECT_NE(ftruncate(mapping.memfd(), 0), 0);
  EXPECT_NE(ftruncate(mapping.memfd(), 16384), 0);
  EXPECT_NE(fcntl(mapping.memfd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Mapping, a_forked_child_sees_what_is_there_and_what_comes) {
  const auto mapping = Mapping::create(Length(4096), {}).value();
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  mapping.bytes()[0] = std::byte{1};
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char c = 0;
    if (read(go[0], &c, 1) != 1) _exit(2);
    _exit(mapping.bytes()[0] == std::byte{2} ? 0 : 1);
  }
  mapping.bytes()[0] = std::byte{2};
  ASSERT_EQ(write(go[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  close(go[0]);
  close(go[1]);
}

TEST(Mapping, large_ones_appear_without_touching_pages) {
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_SELF, &before);
  {
    const auto mapping = Mapping::create(Length(std::uint64_t{1} << 30), {}).value();
    EXPECT_EQ(mapping.bytes().size(), std::uint64_t{1} << 30);
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_minflt - before.ru_minflt, 1000);  // 262144 pages
}

TEST(Mapping, refusals) {
  EXPECT_EQ(Mapping::create(Length(0), {}).code(), Errc::invalid_argument);
  EXPECT_EQ(Mapping::create(Length(UINT64_MAX), {}).code(), Errc::no_memory);
  EXPECT_EQ(Mapping::create(Length(std::uint64_t{1} << 60), {}).code(), Errc::no_memory);
}

TEST(Mapping, a_numa_node_that_does_not_exist_is_no_failure) {
  for (const int node : {0, 999, 5000}) {
    EXPECT_TRUE(
        Mapping::create(Length(4096), {.huge_pages = false, .numa_node = node, .name = "t"}).ok())
        << node;
  }
}

TEST(Mapping, moves) {
  auto a = Mapping::create(Length(4096), {}).value();
  const auto* at = a.bytes().data();
  Mapping b = std::move(a);
  EXPECT_EQ(b.bytes().data(), at);
  auto c = Mapping::create(Length(8192), {}).value();
  c = std::move(b);
  EXPECT_EQ(c.bytes().data(), at);
  c.bytes()[0] = std::byte{1};
}

TEST(Budget, is_never_passed_and_comes_back) {
  PinnedBudget budget(Length(100));
  {
    auto a = budget.reserve(Length(60)).value();
    EXPECT_EQ(budget.reserve(Length(41)).code(), Errc::exhausted);
    EXPECT_EQ(budget.reserve(Length(UINT64_MAX)).code(), Errc::exhausted);
    auto b = budget.reserve(Length(40)).value();
    EXPECT_EQ(budget.used(), Length(100));
    a = std::move(b);  // the 60 live on in b until the end of the scope
    EXPECT_EQ(budget.used(), Length(100));
  }
  EXPECT_EQ(budget.used(), Length(0));
  PinnedBudget unlimited(PinnedBudget::kUnlimited);
  auto most = unlimited.reserve(Length(UINT64_MAX));
  EXPECT_TRUE(most.ok());
  EXPECT_FALSE(unlimited.reserve(Length(1)).ok());
}

TEST(Budget, follows_the_limit_of_the_process) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  const Length expected =
      limit.rlim_cur == RLIM_INFINITY ? PinnedBudget::kUnlimited : Length(limit.rlim_cur / 8 * 7);
  EXPECT_EQ(PinnedBudget::from_rlimit(), expected);
}

TEST(Budget, many_threads) {
  PinnedBudget budget(Length(8));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget] {
      for (int i = 0; i < 5000; ++i) {
        auto r = budget.reserve(Length(3));
        EXPECT_LE(budget.used(), Length(8));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget.used(), Length(0));
}

// A rail that registers `room` memories and counts the living ones.
class FakeRail final : public fabric::Domain {
 public:
  explicit FakeRail(int room) : room_(room) {}
  const fabric::DomainInfo& info() const noexcept override { return info_; }
  Result<std::unique_ptr<fabric::Registration>> register_memory(const fabric::MemoryRef& memory,
                                                                fabric::Access access) override {
    if (living == room_) return Error::make(Errc::no_memory, "fake rail");
    return std::unique_ptr<fabric::Registration>(std::make_unique<Fake>(*this, memory, access));
  }
  Result<std::unique_ptr<fabric::TargetEndpoint>> open_target(
      const fabric::TargetOptions&) override {
    return Error::make(Errc::unsupported, "fake");
  }
  Result<std::unique_ptr<fabric::Initiator>> open_initiator(
      const fabric::InitiatorOptions&) override {
    return Error::make(Errc::unsupported, "fake");
  }
  Status admit_peer(const fabric::Address&) override { return {}; }
  void release_peer(const fabric::Address&) override {}

  int living = 0;

 private:
  class Fake final : public fabric::Registration {
   public:
    Fake(FakeRail& rail, const fabric::MemoryRef& memory, fabric::Access access)
        : rail_(rail), memory_(memory), access_(access) {
      ++rail_.living;
    }
    ~Fake() override {
      memory_.bytes[0] = std::byte{1};  // crashes if the memory was unmapped first
      --rail_.living;
    }
    RKey key() const noexcept override { return RKey(1); }
    RemoteAddr addr() const noexcept override { return RemoteAddr(0); }
    Length length() const noexcept override { return Length(memory_.bytes.size()); }
    fabric::Access access() const noexcept override { return access_; }
    Status close() override { return {}; }

   private:
    FakeRail& rail_;
    fabric::MemoryRef memory_;
    fabric::Access access_;
  };
  const int room_;
  fabric::DomainInfo info_;
};

TEST(Segment, registered_on_all_rails_and_charged_for_each) {
  FakeRail a(9);
  FakeRail b(9);
  PinnedBudget budget(Length(3 * 8192));
  fabric::Domain* const rails[] = {&a, &b};
  {
    auto segment = Segment::create(rails, Length(8000), fabric::Access::local, budget, {}).value();
    EXPECT_EQ(segment->rails(), 2u);
    EXPECT_EQ(segment->registration(1)->length(), Length(8192));
    EXPECT_EQ(segment->registration(0)->access(), fabric::Access::local);
    EXPECT_EQ(a.living + b.living, 2);
    EXPECT_EQ(budget.used(), Length(2 * 8192));
    EXPECT_EQ(Segment::create(rails, Length(8000), fabric::Access::local, budget, {}).code(),
              Errc::exhausted);
    EXPECT_EQ(a.living + b.living, 2);
  }
  EXPECT_EQ(a.living + b.living, 0);
  EXPECT_EQ(budget.used(), Length(0));
}

TEST(Segment, a_rail_that_refuses_leaves_nothing_behind) {
  FakeRail a(9);
  FakeRail full(0);
  PinnedBudget budget(PinnedBudget::kUnlimited);
  fabric::Domain* const rails[] = {&a, &full};
  EXPECT_EQ(Segment::create(rails, Length(4096), fabric::Access::local, budget, {}).code(),
            Errc::no_memory);
  EXPECT_EQ(a.living, 0);
  EXPECT_EQ(budget.used(), Length(0));
}

TEST(Segment, no_rails_at_all) {
  PinnedBudget nothing(Length(0));
  auto segment = Segment::create({}, Length(4096), fabric::Access::local, nothing, {}).value();
  EXPECT_EQ(segment->rails(), 0u);
  EXPECT_EQ(segment->bytes().size(), 4096u);
}

}  // namespace
}  // namespace farlift::memory
