#include "core/fabric/self_test.h"

#include "core/base/prng.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace farlift::fabric {
namespace {

constexpr std::size_t kBytes = 4096;  // page-sized and page-aligned: cards pin whole pages
constexpr int kRotations = 16;

struct alignas(kBytes) Page {
  std::array<std::byte, kBytes> bytes;
};

struct Rail {
  // Declared so that endpoints close before registrations.
  Page arena;  // the target's
  Page local;  // the initiator's
  std::unique_ptr<Registration> arena_registration;
  std::unique_ptr<Registration> local_registration;
  std::unique_ptr<TargetEndpoint> target;
  std::unique_ptr<Initiator> initiator;
  PeerId peer;
};

class SelfTest {
 public:
  SelfTest(Domain& target_side, Domain& initiator_side, const Clock& clock, Duration step_deadline)
      : target_side_(target_side),
        initiator_side_(initiator_side),
        clock_(clock),
        deadline_(step_deadline),
        rail_(std::make_unique<Rail>()) {}

  SelfTestReport run() {
    const bool all = step("open", open()) &&
                     step("read from a read-only registration", read_serves()) &&
                     step("write to a read-only registration is refused", write_is_refused()) &&
                     step("write to a writable registration", write_lands()) &&
                     step("read from a write-only registration is refused", read_is_refused()) &&
                     step("closed registration is refused", old_key_is_refused()) &&
                     step("keys are not reused", keys_differ());
    report_.passed = all;
    return std::move(report_);
  }

 private:
  using Finding = std::string;  // empty: passed

  bool step(const char* name, Finding finding) {
    report_.steps.push_back({name, finding.empty(), std::move(finding)});
    return report_.steps.back().passed;
  }

  static void fill(Page& page, std::uint64_t seed) {
    Prng prng(seed);
    for (std::byte& b : page.bytes) b = static_cast<std::byte>(prng.below(256));
  }

  Finding arena(Access access) {
    rail_->arena_registration.reset();
    auto made = target_side_.register_memory(MemoryRef{rail_->arena.bytes, -1, 0}, access);
    if (!made.ok()) return made.error().describe();
    rail_->arena_registration = std::move(made).value();
    return {};
  }

  Finding open() {
    auto local =
        initiator_side_.register_memory(MemoryRef{rail_->local.bytes, -1, 0}, Access::local);
    if (!local.ok()) return local.error().describe();
    rail_->local_registration = std::move(local).value();
    auto target = target_side_.open_target(TargetOptions{});
    if (!target.ok()) return target.error().describe();
    rail_->target = std::move(target).value();
    InitiatorOptions options;
    options.connect_deadline = deadline_;
    auto initiator = initiator_side_.open_initiator(options);
    if (!initiator.ok()) return initiator.error().describe();
    rail_->initiator = std::move(initiator).value();
    if (const Status met = rail_->target->add_peer(rail_->initiator->address()); !met.ok()) {
      return met.error().describe();
    }
    auto peer = rail_->initiator->add_peer(rail_->target->address());
    if (!peer.ok()) return peer.error().describe();
    rail_->peer = peer.value();
    return {};
  }

  // One operation over the whole page. Errc::timeout when it did not end within the deadline.
  Status move(OpKind kind, RKey key, RemoteAddr addr) {
    Operation operation;
    operation.kind = kind;
    operation.peer = rail_->peer;
    operation.key = key;
    operation.addr = addr;
    operation.local = rail_->local.bytes;
    operation.local_registration = rail_->local_registration.get();
    TRY(rail_->initiator->post(operation));
    const Instant end = clock_.now() + deadline_;
    for (;;) {
      Completion completion;
      if (rail_->initiator->poll(std::span(&completion, 1)) == 1) return completion.status;
      if (clock_.now() >= end) return Error::make(Errc::timeout, "self-test operation");
      rail_->initiator->wait(10);
    }
  }

  Status move(OpKind kind) {
    return move(kind, rail_->arena_registration->key(), rail_->arena_registration->addr());
  }

  static Finding must_fail(const Status& status, const char* what) {
    if (status.ok()) return std::string(what) + " was reported as a success";
    if (status.code() == Errc::timeout) return std::string(what) + " never ended";
    return {};
  }

  Finding read_serves() {
    fill(rail_->arena, 1);
    fill(rail_->local, 2);
    if (Finding f = arena(Access::remote_read); !f.empty()) return f;
    if (const Status read = move(OpKind::read); !read.ok()) return read.error().describe();
    return rail_->local.bytes == rail_->arena.bytes ? Finding() : Finding("the bytes differ");
  }

  Finding write_is_refused() {
    const Page before = rail_->arena;
    fill(rail_->local, 3);
    if (Finding f = must_fail(move(OpKind::write), "the write"); !f.empty()) return f;
    return rail_->arena.bytes == before.bytes ? Finding() : Finding("the memory changed");
  }

  Finding write_lands() {
    if (Finding f = arena(Access::remote_write); !f.empty()) return f;
    fill(rail_->local, 4);
    if (const Status wrote = move(OpKind::write); !wrote.ok()) return wrote.error().describe();
    return rail_->local.bytes == rail_->arena.bytes ? Finding() : Finding("the bytes differ");
  }

  Finding read_is_refused() {
    fill(rail_->arena, 5);
    fill(rail_->local, 6);
    if (Finding f = must_fail(move(OpKind::read), "the read"); !f.empty()) return f;
    return rail_->local.bytes == rail_->arena.bytes ? Finding("the bytes were delivered")
                                                    : Finding();
  }

  Finding old_key_is_refused() {
    if (Finding f = arena(Access::remote_read); !f.empty()) return f;
    if (const Status read = move(OpKind::read); !read.ok()) return read.error().describe();
    const RKey old_key = rail_->arena_registration->key();
    const RemoteAddr old_addr = rail_->arena_registration->addr();
    if (const Status closed = rail_->arena_registration->close(); !closed.ok())
      return closed.error().describe();
    fill(rail_->arena, 7);
    if (Finding f = must_fail(move(OpKind::read, old_key, old_addr), "the read with a closed key");
        !f.empty()) {
      return f;
    }
    if (Finding f = arena(Access::remote_read); !f.empty()) return f;
    if (Finding f = must_fail(move(OpKind::read, old_key, old_addr), "the read with an old key");
        !f.empty()) {
      return f;
    }
    if (rail_->local.bytes == rail_->arena.bytes) return "bytes were delivered under a closed key";
    if (const Status read = move(OpKind::read); !read.ok()) {
      return "the new key does not work: " + read.error().describe();
    }
    return {};
  }

  Finding keys_differ() {
    std::vector<RKey> seen;
    for (int i = 0; i < kRotations; ++i) {
      if (Finding f = arena(Access::remote_read); !f.empty()) return f;
      const RKey key = rail_->arena_registration->key();
      if (std::find(seen.begin(), seen.end(), key) != seen.end())
        return "a key was given out twice";
      seen.push_back(key);
    }
    return {};
  }

  Domain& target_side_;
  Domain& initiator_side_;
  const Clock& clock_;
  const Duration deadline_;
  std::unique_ptr<Rail> rail_;
  SelfTestReport report_;
};

}  // namespace

SelfTestReport self_test(Domain& target_side, Domain& initiator_side, const Clock& clock,
                         Duration step_deadline) {
  return SelfTest(target_side, initiator_side, clock, step_deadline).run();
}

}  // namespace farlift::fabric
