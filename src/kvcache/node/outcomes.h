// Outcomes: what became of puts, by put_id, so that a repeat gets the first answer (spec kv 5).
//
// Invariants: a put that was begun and not finished is joined by its repeats; a finished one is
// kept
//             for kOutcomeKept, at most kKeptMax of them (the oldest go first). A put that was
//             refused before anything was done is not kept: forget() it.
// Threads:    one. Errors: Begun::mismatch: the same put_id for another key.
#pragma once

#include "core/base/clock.h"
#include "kvcache/wire/frames.h"

#include <cstring>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace farlift::kv::node {

class Outcomes {
 public:
  static constexpr std::size_t kKeptMax = std::size_t{1} << 18;

  using Reply = std::function<void(const PutReply&)>;
  enum class Begun : std::uint8_t { first, repeat, mismatch };

  // repeat: `reply` was called, or will be.
  Begun begin(const std::string& tenant, const PutId& id, KeyHash key, Reply reply) {
    const auto [at, fresh] = puts_.try_emplace(name(tenant, id));
    Put& put = at->second;
    if (fresh) {
      put.key = key;
      put.waiting.push_back(std::move(reply));
      return Begun::first;
    }
    if (put.key != key) return Begun::mismatch;
    if (put.finished) {
      reply(put.outcome);
    } else {
      put.waiting.push_back(std::move(reply));
    }
    return Begun::repeat;
  }
  bool knows(const std::string& tenant, const PutId& id) const {
    return puts_.contains(name(tenant, id));
  }
  void finish(const std::string& tenant, const PutId& id, const PutReply& outcome, Instant now) {
    std::string key = name(tenant, id);
    const auto at = puts_.find(key);
    if (at == puts_.end() || at->second.finished) return;
    at->second.finished = true;
    at->second.outcome = outcome;
    const std::vector<Reply> waiting = std::move(at->second.waiting);
    kept_.emplace_back(now + kOutcomeKept, std::move(key));
    expire(now);
    for (const Reply& reply : waiting) reply(outcome);
  }
  void forget(const std::string& tenant, const PutId& id, const PutReply& outcome) {
    const auto at = puts_.find(name(tenant, id));
    if (at == puts_.end() || at->second.finished) return;
    const std::vector<Reply> waiting = std::move(at->second.waiting);
    puts_.erase(at);
    for (const Reply& reply : waiting) reply(outcome);
  }
  void expire(Instant now) {
    while (!kept_.empty() && (kept_.front().first <= now || kept_.size() > kKeptMax)) {
      puts_.erase(kept_.front().second);
      kept_.pop_front();
    }
  }
  std::size_t size() const noexcept { return puts_.size(); }

 private:
  struct Put {
    KeyHash key;
    bool finished = false;
    PutReply outcome;
    std::vector<Reply> waiting;
  };
  static std::string name(const std::string& tenant, const PutId& id) {
    std::string name(id.size(), '\0');
    std::memcpy(name.data(), id.data(), id.size());
    return name + tenant;
  }
  std::unordered_map<std::string, Put> puts_;
  std::deque<std::pair<Instant, std::string>> kept_;
};

}  // namespace farlift::kv::node
