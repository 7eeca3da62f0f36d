// Outcomes: what became of puts, by put_id, so that a repeat gets the first answer (spec kv 5).
//
// Invariants: a put that was begun and not finished is joined by its repeats; a finished one is
//             kept for kOutcomeKept, at most kKeptMax of them (the oldest go first). A put that
//             was refused before anything was done is not kept: forget() it.
// Memory:     some 70 bytes and its descriptor for one that is kept.
// Threads:    one. Errors: Begun::mismatch: the same put_id for another key.
#pragma once

#include "core/base/clock.h"
#include "kvcache/wire/frames.h"

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace farlift::kv::node {

class Outcomes {
 public:
  static constexpr std::size_t kKeptMax = std::size_t{1} << 18;

  using Reply = std::function<void(const PutReply&)>;
  enum class Begun : std::uint8_t { first, repeat, mismatch };

  // repeat: `reply` was called, or will be.
  Begun begin(const std::string& tenant, const PutId& id, KeyHash key, Reply reply) {
    const Name name = name_of(tenant, id);
    if (const Kept* const kept = find(name)) {
      if (kept->key != key) return Begun::mismatch;
      reply(reply_of(*kept));
      return Begun::repeat;
    }
    const auto [at, fresh] = open_.try_emplace(name);
    Open& put = at->second;
    if (!fresh && put.key != key) return Begun::mismatch;
    put.key = key;
    put.waiting.push_back(std::move(reply));
    return fresh ? Begun::first : Begun::repeat;
  }
  bool knows(const std::string& tenant, const PutId& id) {
    const Name name = name_of(tenant, id);
    return open_.contains(name) || find(name) != nullptr;
  }
  void finish(const std::string& tenant, const PutId& id, const PutReply& outcome, Instant now) {
    const Name name = name_of(tenant, id);
    const auto put = open_.extract(name);
    if (put.empty()) return;
    keep(name, put.mapped().key, outcome, now + kOutcomeKept);
    expire(now);
    for (const Reply& reply : put.mapped().waiting) reply(outcome);
  }
  void forget(const std::string& tenant, const PutId& id, const PutReply& outcome) {
    const auto put = open_.extract(name_of(tenant, id));
    if (put.empty()) return;
    for (const Reply& reply : put.mapped().waiting) reply(outcome);
  }
  void expire(Instant now) {
    while (!kept_.empty() && (kept_.front().until <= now || kept_.size() > kKeptMax)) {
      unindex(first_);
      kept_.pop_front();
      first_ = (first_ + 1) & kSerials;
    }
  }
  std::size_t size() const noexcept { return open_.size() + kept_.size(); }

 private:
  struct Name {
    PutId id{};
    std::uint32_t tenant = 0;
    bool operator==(const Name&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Name& name) const noexcept {
      std::uint64_t words[2];
      std::memcpy(words, name.id.data(), sizeof words);
      std::uint64_t x = (words[0] ^ words[1] * 0x9E3779B97F4A7C15u) + name.tenant;
      x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
      return static_cast<std::size_t>(x ^ (x >> 32));
    }
  };
  static_assert(sizeof(PutId) == 16);
  struct Open {
    KeyHash key;
    std::vector<Reply> waiting;
  };
  struct Kept {
    Instant until;
    Name name;
    Outcome outcome = Outcome::ok;
    std::uint16_t descriptor_bytes = 0;
    std::uint16_t tag_bytes = 0;
    KeyHash key;
    Version version;
    std::unique_ptr<std::byte[]> capability;  // descriptor, then tag
  };

  Name name_of(const std::string& tenant, const PutId& id) {
    const auto [at, fresh] =
        tenants_.try_emplace(tenant, static_cast<std::uint32_t>(tenants_.size()));
    return {id, at->second};
  }
  static PutReply reply_of(const Kept& kept) {
    PutReply reply;
    reply.outcome = kept.outcome;
    reply.version = kept.version;
    const std::byte* const at = kept.capability.get();
    reply.descriptor.assign(at, at + kept.descriptor_bytes);
    reply.tag.assign(at + kept.descriptor_bytes, at + kept.descriptor_bytes + kept.tag_bytes);
    return reply;
  }
  void keep(const Name& name, KeyHash key, const PutReply& outcome, Instant until) {
    Kept& kept = kept_.emplace_back();
    kept.until = until;
    kept.name = name;
    kept.outcome = outcome.outcome;
    kept.key = key;
    kept.version = outcome.version;
    kept.descriptor_bytes = static_cast<std::uint16_t>(outcome.descriptor.size());
    kept.tag_bytes = static_cast<std::uint16_t>(outcome.tag.size());
    if (!outcome.descriptor.empty()) {
      kept.capability =
          std::make_unique<std::byte[]>(outcome.descriptor.size() + outcome.tag.size());
      std::byte* const to = kept.capability.get();
      std::memcpy(to, outcome.descriptor.data(), outcome.descriptor.size());
      if (!outcome.tag.empty())
        std::memcpy(to + outcome.descriptor.size(), outcome.tag.data(), outcome.tag.size());
    }
    index(serial_of(kept_.size() - 1));
  }

  // An open-addressed table of serial numbers; that of kept_[i] is first_ + i, modulo 2^31. kNone
  // is empty.
  static constexpr std::uint32_t kSerials = UINT32_MAX >> 1;
  static constexpr std::uint32_t kNone = UINT32_MAX;
  std::uint32_t serial_of(std::size_t i) const {
    return (first_ + static_cast<std::uint32_t>(i)) & kSerials;
  }
  const Kept& kept(std::uint32_t serial) const { return kept_[(serial - first_) & kSerials]; }
  std::size_t home(std::uint32_t serial) const {
    return Hash()(kept(serial).name) & (table_.size() - 1);
  }
  const Kept* find(const Name& name) const {
    if (table_.empty()) return nullptr;
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = Hash()(name) & mask; table_[at] != kNone; at = (at + 1) & mask) {
      if (kept(table_[at]).name == name) return &kept(table_[at]);
    }
    return nullptr;
  }
  void place(std::uint32_t serial) {
    std::size_t at = home(serial);
    while (table_[at] != kNone) at = (at + 1) & (table_.size() - 1);
    table_[at] = serial;
  }
  void index(std::uint32_t serial) {
    if (kept_.size() * 4 <= table_.size() * 3) return place(serial);
    table_.assign(table_.empty() ? 64 : table_.size() * 2, kNone);
    for (std::size_t i = 0; i < kept_.size(); ++i) place(serial_of(i));
  }
  void unindex(std::uint32_t serial) {
    const std::size_t mask = table_.size() - 1;
    std::size_t hole = home(serial);
    while (table_[hole] != serial) hole = (hole + 1) & mask;
    for (std::size_t at = (hole + 1) & mask; table_[at] != kNone; at = (at + 1) & mask) {
      if (((at - home(table_[at])) & mask) < ((at - hole) & mask)) continue;  // where it may be
      table_[hole] = table_[at];
      hole = at;
    }
    table_[hole] = kNone;
  }

  std::unordered_map<std::string, std::uint32_t> tenants_;
  std::unordered_map<Name, Open, Hash> open_;
  std::deque<Kept> kept_;  // in the order of their ends
  std::uint32_t first_ = 0;
  std::vector<std::uint32_t> table_;  // a power of two
};

}  // namespace farlift::kv::node
