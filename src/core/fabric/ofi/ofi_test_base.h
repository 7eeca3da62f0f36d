// The tcp provider (libfabric's own wire) on loopback, for the tests of what is particular to
// libfabric: a domain, memory to lend, operations and their completions.
//
// Threads: as used by one test. Errors: gtest failures; without a usable libfabric the tests skip.
#pragma once

#include "core/base/prng.h"
#include "core/fabric/ofi/ofi.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace farlift::fabric::ofi {

inline const SystemClock kClock;

inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  Prng prng(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(prng.below(256));
  return bytes;
}

class OfiTcp : public ::testing::Test {
 protected:
  void SetUp() override {
    const LibraryStatus status = library_status(kVersionAny);
    if (!status.usable) GTEST_SKIP() << status.reason;
    std::string why;
    auto opened = open_domain(options(), kClock, &why);
    ASSERT_TRUE(opened.ok()) << why;
    domain_ = std::move(opened).value();
  }

  static OfiOptions options() {
    OfiOptions o;
    o.listen_ip = "127.0.0.1";
    return o;
  }

  std::unique_ptr<TargetEndpoint> target() {
    auto opened = domain_->open_target(TargetOptions{});
    EXPECT_TRUE(opened.ok()) << opened.error().describe();
    return std::move(opened).value();
  }

  std::unique_ptr<Initiator> initiator(const InitiatorOptions& o = {}) {
    auto opened = domain_->open_initiator(o);
    EXPECT_TRUE(opened.ok()) << opened.error().describe();
    return std::move(opened).value();
  }

  std::unique_ptr<Registration> lend(std::span<std::byte> bytes, Access access) {
    auto made = domain_->register_memory(MemoryRef{bytes, -1, 0}, access);
    EXPECT_TRUE(made.ok()) << made.error().describe();
    return std::move(made).value();
  }

  static Operation operation(OpKind kind, PeerId peer, RKey key, RemoteAddr addr,
                             std::span<std::byte> local, std::uint64_t context) {
    Operation op;
    op.kind = kind;
    op.peer = peer;
    op.key = key;
    op.addr = addr;
    op.local = local;
    op.context = context;
    return op;
  }

  // Waits for `count` completions, by context.
  static std::map<std::uint64_t, Status> collect(Initiator& initiator, std::size_t count) {
    std::map<std::uint64_t, Status> got;
    const Instant end = kClock.now() + std::chrono::seconds(20);
    while (got.size() < count && kClock.now() < end) {
      Completion out[16];
      const std::size_t n =
          initiator.poll(std::span(out).first(std::min<std::size_t>(16, count - got.size())));
      for (std::size_t i = 0; i < n; ++i)
        EXPECT_TRUE(got.emplace(out[i].context, out[i].status).second);
      if (n == 0) initiator.wait(50);
    }
    EXPECT_EQ(got.size(), count);
    return got;
  }

  std::unique_ptr<Domain> domain_;
};

}  // namespace farlift::fabric::ofi
