// Ledger: what was written, signed and asked of the directory, against which every result is held;
// and the first violation of an invariant of spec kv 12.
//
// Invariants: records are never forgotten. A record is made when a node asks the directory to
//             publish; its payload is what lay in the node's memory then.
// Threads:    one. Errors: fail() keeps the first sentence; the world stops there.
#pragma once

#include "core/base/clock.h"
#include "kvcache/control/directory.h"
#include "kvcache/wire/layout.h"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace farlift::kv::simulation {

using Name = std::pair<std::string, Bytes>;  // tenant and key

struct Record {
  std::string tenant;
  Bytes key;
  Descriptor descriptor;
  Bytes encoded;
  Bytes tag;
  Bytes header;
  Bytes payload;
  bool refused = false;   // for certain: the slot may be used again
  bool answered = false;  // ok or unknown: it may not
  bool unknown = false;
};

class Ledger {
 public:
  void fail(std::string what) {
    if (!failure_) failure_ = std::move(what);
  }
  const std::optional<std::string>& failure() const { return failure_; }

  void wrote(const Name& name, const Bytes& payload) { written_[name].insert(payload); }
  bool was_written(const Name& name, const Bytes& payload) const {
    const auto at = written_.find(name);
    return at != written_.end() && at->second.contains(payload);
  }

  // P4, P15 and that nobody publishes what nobody wrote; null after a violation.
  Record* published(const PublishRequest& request, const std::byte* at);
  // P1: a result that was reported ok.
  void check_result(const Name& name, Version version, const Bytes& payload);

  void unpublished(const Name& name, const Location& location) {
    unpublished_.insert({name, location});
  }
  bool may_vanish(const Name& name, const Location& location) const {
    return unpublished_.contains({name, location});
  }

  // Records of one generation of one arena, by the header's address.
  using Place = std::tuple<Incarnation, ArenaId, ArenaGen>;
  const std::multimap<RemoteAddr, Record*>* at(const Place& place) const {
    const auto found = places_.find(place);
    return found == places_.end() ? nullptr : &found->second;
  }
  const std::vector<Record*>& of(const Name& name) { return names_[name]; }
  const std::deque<Record>& records() const { return records_; }

 private:
  std::optional<std::string> failure_;
  std::map<Name, std::set<Bytes>> written_;
  std::deque<Record> records_;
  std::map<std::pair<Name, std::uint64_t>, Record*> versions_;
  std::map<Name, std::vector<Record*>> names_;
  std::map<Place, std::multimap<RemoteAddr, Record*>> places_;
  std::set<std::pair<Name, Location>> unpublished_;
};

std::string text_of(const Name& name);
std::string text_of(const Location& location);

}  // namespace farlift::kv::simulation
