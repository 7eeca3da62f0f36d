// ValkeyState: the part of a Valkey data set that the kvcache uses, with the semantics of its
// commands and scripts (spec kv 6), and with a history, so that a failover can take the last writes
// back and a replica can lag.
//
// Invariants: every function is one atomic command. A key past its expiry does not exist. The
//             history reaches back kHistoryMax.
// Threads:    one. Errors: none.
#pragma once

#include "core/base/clock.h"
#include "kvcache/control/directory.h"

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace farlift::kv::sim {

class ValkeyState {
 public:
  static constexpr Duration kHistoryMax = std::chrono::minutes(10);

  explicit ValkeyState(const Clock& clock) : clock_(clock) {}

  std::optional<Bytes> get(const std::string& name) const;
  // The same without a copy, for checkers that look often; until the next change.
  struct Live {
    const Bytes* value = nullptr;      // null: no such key
    Instant expires = Instant::max();  // on the clock given
  };
  Live look(const std::string& name) const;
  // Another one after anything changed; keys that only expire change nothing.
  std::uint64_t revision() const { return revision_; }
  // As a replica that is `lag` behind would answer.
  std::optional<Bytes> get_as_of(const std::string& name, Duration lag) const;
  void set(const std::string& name, Bytes value, std::optional<Duration> px = std::nullopt);
  bool del(const std::string& name);
  void set_add(const std::string& name, const std::string& member);
  void set_remove(const std::string& name, const std::string& member);
  std::set<std::string> members(const std::string& name) const;
  std::vector<std::string> names() const;  // of live keys, in order
  std::uint64_t count_with_prefix(const std::string& prefix) const;

  struct Published {
    PublishReply::Kind kind;
    std::optional<Bytes> current;
  };
  Published publish(const PublishRequest& request);
  UnpublishReply::Kind unpublish(const UnpublishRequest& request);

  void flush_all();
  // The state of `back` ago, as after a failover to a replica that was that far behind.
  void rewind(Duration back);
  // The server's wall clock jumps; expiries are points on it.
  void shift_clock(Duration by) {
    shift_ += by;
    ++revision_;
  }

 private:
  struct Entry {
    Bytes value;
    std::set<std::string> members;
    std::optional<Instant> expires;  // on the server's clock
  };
  struct Change {
    Instant at;  // on ours
    std::string name;
    std::optional<Entry> before;
  };
  Instant server_now() const { return clock_.now() + shift_; }
  bool live(const Entry& entry) const { return !entry.expires || *entry.expires > server_now(); }
  const Entry* find(const std::string& name) const;
  void replace(const std::string& name, std::optional<Entry> entry);

  const Clock& clock_;
  Duration shift_{};
  std::uint64_t revision_ = 1;
  std::map<std::string, Entry> entries_;
  std::deque<Change> history_;  // oldest first
};

}  // namespace farlift::kv::sim
