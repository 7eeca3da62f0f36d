// What the conformance cases share: both ends in one process, lent buffers, operations run to their
// end, and the peer process with its line protocol (conformance_peer.cc).
//
// Threads: the test's. Errors: a helper that cannot go on fails the test by an assertion of
//          GoogleTest.
#pragma once

#include "core/base/unique_fd.h"
#include "core/fabric/conformance.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <sys/types.h>
#include <vector>

namespace farlift::fabric::conformance {

inline constexpr std::chrono::seconds kLong{
    40};  // far beyond anything that happens; only a hang reaches it

// Pages of our own, registered when the provider wants local buffers registered.
class Buffer {
 public:
  Buffer(Domain& domain, std::size_t size);
  std::span<std::byte> bytes() noexcept { return bytes_; }
  std::span<std::byte> part(std::size_t from, std::size_t length) noexcept {
    return std::span(bytes_).subspan(from, length);
  }
  Registration* registration() noexcept { return registration_.get(); }
  void fill(std::uint64_t seed);
  void set(int value);
  bool is(int value) const noexcept;

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<Registration> registration_;
};

// A byte that another thread may be landing on right now.
std::uint8_t peek(const std::byte* at) noexcept;

// Rounds of a repeated case, fewer on slow providers, at least three.
int rounds(const ConformanceProvider& provider, int at_full_speed) noexcept;

// For cases that must catch an operation in the middle: on a busy machine many rounds catch none.
class Patience {
 public:
  bool over() const { return std::chrono::steady_clock::now() - begin_ > std::chrono::seconds(20); }

 private:
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class FabricConformance : public ::testing::TestWithParam<ConformanceProvider> {};
class FabricProcessConformance : public ::testing::TestWithParam<ConformanceProvider> {};

// True when every byte is `value`; fast enough for the whole of a large region.
bool all_are(std::span<const std::byte> bytes, int value) noexcept;

void fill_pattern(std::span<std::byte> out, std::uint64_t seed);

// Both ends in one process, each with a domain of its own.
class Pair {
 public:
  explicit Pair(const ConformanceProvider& provider);

  // Memory to lend, every byte `value`; it lives until the endpoints are closed. Where the fence is
  // the endpoint's close, the provider may look at lent memory after an operation on it completed
  // (a send call returns later than its bytes arrive), so closing the registration is not enough.
  std::vector<std::byte>& memory(std::size_t size, std::byte value = {});
  std::unique_ptr<Registration> lend(std::span<std::byte> memory, Access access);
  std::uint64_t post(OpKind kind, PeerId peer, RKey key, RemoteAddr addr,
                     std::span<std::byte> local, Buffer& of);
  std::uint64_t post(OpKind kind, const Registration& r, std::uint64_t offset,
                     std::span<std::byte> local, Buffer& of) {
    return post(kind, peer, r.key(), r.addr() + Offset(offset), local, of);
  }
  // One round of progress: pumps, polls, sleeps a moment when nothing came.
  void step();
  // Runs until the operation completed, or fails the test.
  Status wait(std::uint64_t context);
  bool completed(std::uint64_t context) const { return results.contains(context); }
  Status run(OpKind kind, const Registration& r, std::uint64_t offset, std::span<std::byte> local,
             Buffer& of) {
    return wait(post(kind, r, offset, local, of));
  }

  const ConformanceProvider& provider;
  std::deque<std::vector<std::byte>> kept;  // memory()
  std::unique_ptr<Domain> target_domain;
  std::unique_ptr<Domain> domain;  // of the initiator
  std::unique_ptr<TargetEndpoint> target;
  std::unique_ptr<Initiator> initiator;
  PeerId peer;
  std::uint64_t next_context = 1;
  std::map<std::uint64_t, Status> results;
};

// Steps `pair` until `done()`; false after kLong.
template <class Predicate>
bool step_until(Pair& pair, Predicate done) {
  const auto limit = std::chrono::steady_clock::now() + kLong;
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    pair.step();
  }
  return true;
}

// This program again, as a peer. Killed and reaped by the destructor.
class PeerProcess {
 public:
  explicit PeerProcess(const std::string& provider);
  ~PeerProcess();
  // Sends a line, returns the words of the answer; fails the test when there is none.
  std::vector<std::string> ask(const std::string& line);
  void kill();
  void stop();  // returns when the process is stopped
  void resume();
  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = -1;
  UniqueFd to_;
  UniqueFd from_;
  std::string pending_;
};

// The other side of PeerProcess.
int peer_main(const ConformanceProvider& provider);

Address address_from_hex(const std::string& hex);

}  // namespace farlift::fabric::conformance
