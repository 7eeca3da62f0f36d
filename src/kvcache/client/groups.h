// Groups: manifests that resolve a chain of keys with one request (spec kv 4.4).
//
// Invariants: nothing of a manifest is used unless its own tag holds, and no entry unless the
//             entry's tag holds for its key; what is believed is cached as of just before the
//             request, so that no read path escapes L.
// Threads:    the loop's. Errors: outcomes: MISS, REJECT_SIG, REJECT_FORMAT, CONTROL_DOWN, BAD_ARG.
#pragma once

#include "kvcache/client/core.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace farlift::kv::client {

class Groups {
 public:
  explicit Groups(Core& core) : core_(core) {}
  using OnGroup = std::function<void(Client::Group)>;
  void write(std::string group, std::uint64_t version, std::vector<Bytes> keys, OnGroup done);
  void read(const std::string& group, OnGroup done);
  void end_all();  // what is left ends as timeout

 private:
  struct Writing;
  void resolved(const std::shared_ptr<Writing>& writing, std::size_t index, const Resolved& answer);
  void store(const std::shared_ptr<Writing>& writing);
  Client::Group opened(const std::string& group, const Result<std::optional<Bytes>>& found,
                       Stamp stamp, Instant asked);
  Result<Manifest> open_manifest(const std::string& group, const Bytes& bytes) const;
  std::uint64_t begin(OnGroup done);
  void finish(std::uint64_t id, Client::Group result);

  Core& core_;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, OnGroup> pending_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace farlift::kv::client
