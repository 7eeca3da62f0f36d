// A fabric for the tests of this folder: remote memory is a map of windows, completions come in a
// seeded order, and any operation may be refused, stall, or end not quiet. After the latter it goes
// on writing over its local buffer until the Initiator is closed, as a card would.
//
// It notes violations of the Initiator's contract in World::violations.
#pragma once

#include "core/base/assert.h"
#include "core/base/mutex.h"
#include "core/base/prng.h"
#include "core/base/unique_fd.h"
#include "core/fabric/fabric.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <sys/eventfd.h>
#include <unistd.h>
#include <vector>

namespace farlift::transfer::fake {

inline fabric::Address peer_address(unsigned number) {
  const std::byte bytes[] = {static_cast<std::byte>(number)};
  return fabric::Address::from_bytes(bytes).value();
}
inline unsigned number_of(const fabric::Address& address) {
  return std::to_integer<unsigned>(address.bytes()[0]);
}

class Initiator;

struct World {
  explicit World(std::uint64_t seed) : prng(seed) {}

  Mutex mutex;
  Prng prng GUARDED_BY(mutex);
  std::map<std::uint64_t, std::vector<std::byte>> windows GUARDED_BY(mutex);  // by key
  std::vector<std::string> violations GUARDED_BY(mutex);
  std::set<Initiator*> initiators GUARDED_BY(mutex);

  // Faults, in percent, or by peer number.
  std::uint32_t again GUARDED_BY(mutex) = 0;
  std::uint32_t refuse GUARDED_BY(mutex) = 0;   // completes as access
  std::uint32_t unquiet GUARDED_BY(mutex) = 0;  // completes not quiet
  bool in_order GUARDED_BY(mutex) = false;
  bool fail_open GUARDED_BY(mutex) = false;
  std::set<unsigned> stalled GUARDED_BY(mutex);   // completes nothing but aborts
  std::set<unsigned> stubborn GUARDED_BY(mutex);  // not even those
  std::set<unsigned> unknown GUARDED_BY(mutex);   // add_peer refuses

  std::uint32_t posts GUARDED_BY(mutex) = 0;
  std::uint32_t in_flight_seen GUARDED_BY(mutex) = 0;  // the most at once
  std::uint32_t opens GUARDED_BY(mutex) = 0;
  std::uint32_t closes GUARDED_BY(mutex) = 0;
  std::uint32_t aborts GUARDED_BY(mutex) = 0;
  std::size_t peers GUARDED_BY(mutex) = 0;  // known to living initiators
  Length landed GUARDED_BY(mutex);

  bool lent(std::span<const std::byte> memory) EXCLUDES(mutex);
};

class Initiator final : public fabric::Initiator {
 public:
  Initiator(World& world, std::uint32_t first_peer) REQUIRES(world.mutex)
      : world_(world), next_peer_(first_peer) {
    event_ = UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    world_.initiators.insert(this);
    ++world_.opens;
  }
  ~Initiator() override {
    close();
    MutexLock lock(world_.mutex);
    world_.initiators.erase(this);
  }

  const fabric::Address& address() const noexcept override { return address_; }

  Result<fabric::PeerId> add_peer(const fabric::Address& peer) override {
    MutexLock lock(world_.mutex);
    const unsigned number = number_of(peer);
    if (world_.unknown.contains(number)) return Error::make(Errc::unsupported, "fake peer");
    for (auto& [id, known] : peers_) {
      if (known.number == number) {
        ++known.references;
        return fabric::PeerId(id);
      }
    }
    peers_[next_peer_] = Peer{number, 1};
    ++world_.peers;
    return fabric::PeerId(next_peer_++);
  }

  void remove_peer(fabric::PeerId peer) override {
    MutexLock lock(world_.mutex);
    const auto at = peers_.find(peer.raw());
    if (at == peers_.end()) return violation("remove_peer of an unknown peer");
    if (--at->second.references > 0) return;
    for (const Pending& pending : pending_) {
      if (pending.operation.peer == peer) violation("remove_peer with operations out");
    }
    peers_.erase(at);
    --world_.peers;
  }

  Status post(const fabric::Operation& operation) override {
    MutexLock lock(world_.mutex);
    if (closed_) violation("post after close");
    if (!peers_.contains(operation.peer.raw())) violation("post to an unknown peer");
    if (operation.local.empty()) violation("empty operation");
    for (const Pending& pending : pending_) {
      if (pending.operation.context == operation.context) violation("context used twice");
    }
    if (world_.prng.chance(world_.again, 100)) return Error::make(Errc::again, "fake");
    ++world_.posts;
    pending_.push_back({operation, false});
    world_.in_flight_seen =
        std::max(world_.in_flight_seen, static_cast<std::uint32_t>(pending_.size()));
    refresh();
    return {};
  }

  void abort(fabric::PeerId peer) override {
    MutexLock lock(world_.mutex);
    if (!peers_.contains(peer.raw())) violation("abort of an unknown peer");
    ++world_.aborts;
    for (Pending& pending : pending_)
      pending.aborted = pending.aborted || pending.operation.peer == peer;
    refresh();
  }

  std::size_t poll(std::span<fabric::Completion> out) override {
    MutexLock lock(world_.mutex);
    if (closed_) violation("poll after close");
    woken_ = false;  // real providers take the wake-up in here as well as in wait()
    std::size_t count = 0;
    const std::size_t at_most = std::min<std::size_t>(out.size(), 1 + world_.prng.below(4));
    while (count < at_most) {
      std::vector<std::size_t> able;
      for (std::size_t i = 0; i < pending_.size(); ++i) {
        if (completable(pending_[i])) able.push_back(i);
      }
      if (able.empty()) break;
      const std::size_t chosen = able[world_.in_order ? 0 : world_.prng.below(able.size())];
      const Pending pending = pending_[chosen];
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(chosen));
      out[count++] = {pending.operation.context, execute(pending)};
    }
    for (const auto& memory : haunted_) std::fill(memory.begin(), memory.end(), std::byte{0xDD});
    refresh();
    return count;
  }

  void wait(int timeout_ms) override {
    MutexLock lock(world_.mutex);
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::milliseconds(timeout_ms < 0 ? 1000000 : timeout_ms);
    while (!woken_ && !any_completable()) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left.count() <= 0 || !changed_.wait_for(world_.mutex, left)) break;
    }
    woken_ = false;
    refresh();
  }

  void wake() noexcept override {
    MutexLock lock(world_.mutex);
    if (closed_) violation("wake after close");
    woken_ = true;
    refresh();
    changed_.notify_all();
  }

  int wait_fd() const noexcept override { return event_.get(); }

  std::size_t in_flight() const noexcept override {
    MutexLock lock(world_.mutex);
    return pending_.size();
  }

  void close() override {
    MutexLock lock(world_.mutex);
    if (closed_) return;
    closed_ = true;
    ++world_.closes;
    world_.peers -= peers_.size();
    peers_.clear();
    pending_.clear();
    haunted_.clear();
  }

  bool lends(std::span<const std::byte> memory) const {  // the world's mutex is held
    const auto overlaps = [memory](std::span<const std::byte> other) {
      return other.data() < memory.data() + memory.size() &&
             memory.data() < other.data() + other.size();
    };
    return std::any_of(pending_.begin(), pending_.end(),
                       [&](const Pending& p) { return overlaps(p.operation.local); }) ||
           std::any_of(haunted_.begin(), haunted_.end(), overlaps);
  }

 private:
  struct Peer {
    unsigned number = 0;
    int references = 0;
  };
  struct Pending {
    fabric::Operation operation;
    bool aborted = false;
  };

  void violation(std::string what) REQUIRES(world_.mutex) {
    world_.violations.push_back(std::move(what));
  }

  bool completable(const Pending& pending) const REQUIRES(world_.mutex) {
    const unsigned number = peers_.at(pending.operation.peer.raw()).number;
    if (world_.stubborn.contains(number)) return false;
    return pending.aborted || !world_.stalled.contains(number);
  }
  bool any_completable() const REQUIRES(world_.mutex) {
    for (const Pending& pending : pending_) {
      if (completable(pending)) return true;
    }
    return false;
  }

  Status execute(const Pending& pending) REQUIRES(world_.mutex) {
    const fabric::Operation& op = pending.operation;
    if (pending.aborted) return Error::make(Errc::aborted, "fake abort");
    if (world_.prng.chance(world_.refuse, 100)) return Error::make(Errc::access, "fake refusal");
    if (world_.prng.chance(world_.unquiet, 100)) {
      if (op.kind == fabric::OpKind::read) haunted_.push_back(op.local);
      return Error::not_quiet(Errc::connection_lost, "fake loss");
    }
    const auto window = world_.windows.find(op.key.raw());
    if (window == world_.windows.end() ||
        !fits(Offset(op.addr.raw()), Length(op.local.size()), Length(window->second.size()))) {
      return Error::make(Errc::access, "fake window");
    }
    const auto remote = std::span(window->second).subspan(op.addr.raw(), op.local.size());
    if (op.kind == fabric::OpKind::write) {
      std::copy(op.local.begin(), op.local.end(), remote.begin());
    } else {
      std::copy(remote.begin(), remote.end(), op.local.begin());
    }
    world_.landed += Length(op.local.size());
    return {};
  }

  void refresh() noexcept REQUIRES(world_.mutex) {
    std::uint64_t value = 1;
    if (woken_ || (!closed_ && any_completable())) {
      ASSERT(write(event_.get(), &value, sizeof value) == sizeof value);
    } else {
      ASSERT(read(event_.get(), &value, sizeof value) == sizeof value || errno == EAGAIN);
    }
  }

  World& world_;
  fabric::Address address_;
  UniqueFd event_;
  CondVar changed_;
  std::uint32_t next_peer_;
  std::map<std::uint32_t, Peer> peers_;
  std::vector<Pending> pending_;
  std::vector<std::span<std::byte>> haunted_;
  bool woken_ = false;
  bool closed_ = false;
};

// True while an operation may touch some of this memory.
inline bool World::lent(std::span<const std::byte> memory) {
  MutexLock lock(mutex);
  for (const Initiator* initiator : initiators) {
    if (initiator->lends(memory)) return true;
  }
  return false;
}

class Domain final : public fabric::Domain {
 public:
  explicit Domain(World& world, std::uint32_t in_flight_max = 0) : world_(world) {
    info_.in_flight_max = in_flight_max;
  }
  const fabric::DomainInfo& info() const noexcept override { return info_; }
  Result<std::unique_ptr<fabric::Initiator>> open_initiator(
      const fabric::InitiatorOptions&) override {
    MutexLock lock(world_.mutex);
    if (world_.fail_open) return Error::make(Errc::exhausted, "fake open");
    // Peer numbers differ between initiators, so that one carried over would be seen.
    return std::unique_ptr<fabric::Initiator>(
        std::make_unique<Initiator>(world_, 1000 * (world_.opens + 1)));
  }
  Result<std::unique_ptr<fabric::Registration>> register_memory(const fabric::MemoryRef&,
                                                                fabric::Access) override {
    return Error::make(Errc::unsupported, "fake");
  }
  Result<std::unique_ptr<fabric::TargetEndpoint>> open_target(
      const fabric::TargetOptions&) override {
    return Error::make(Errc::unsupported, "fake");
  }
  Status admit_peer(const fabric::Address&) override { return {}; }
  void release_peer(const fabric::Address&) override {}

 private:
  World& world_;
  fabric::DomainInfo info_;
};

}  // namespace farlift::transfer::fake
