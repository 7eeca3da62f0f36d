// Pulls: puts by PUT_PULL (spec kv 7, 2a): the node reads the client's buffer into a slot of its
// own and publishes it. Nobody else ever may write there.
//
// Invariants: the slot stays reserved until every read into it has ended or the engine that made it
//             is closed (quiet rule), even when the client was told TIMEOUT long before. The answer
//             comes within operation_limit of the request. Bytes are published only if their CRC,
//             taken from the slot as they landed, is the one the client gave.
// Threads:    one. Errors: outcomes of spec kv 9 in the reply.
#pragma once

#include "core/fabric/fabric.h"
#include "kvcache/node/outcomes.h"
#include "kvcache/node/publisher.h"

#include <deque>
#include <map>
#include <optional>
#include <vector>

namespace farlift::kv::node {

class Pulls {
 public:
  // How long a read that was told to stop may take to end before its engine is closed over it.
  static constexpr Duration kPatience = std::chrono::seconds(1);

  Pulls(Core& core, Publisher& publisher, Outcomes& outcomes)
      : core_(core), publisher_(publisher), outcomes_(outcomes) {}

  // `sources` are the client's endpoints, a rail each; those it has none on are empty.
  void start(Tenant& tenant, PutPullRequest request,
             const std::vector<std::optional<fabric::Address>>& sources,
             const Outcomes::Reply& reply);
  bool step();
  Instant next_deadline() const noexcept;
  std::size_t live() const noexcept { return pulls_.size(); }

 private:
  struct Part {
    std::size_t rail = 0;
    Offset offset;
    Length length;
    transfer::TransferId transfer;
    bool over = false;
    bool retried = false;
    Crc32c crc;
  };
  struct Pull {
    std::uint64_t id = 0;
    Tenant* tenant = nullptr;
    SlotRef slot;
    PutPullRequest request;
    std::vector<std::optional<fabric::Address>> sources;
    std::vector<Part> parts;
    std::size_t open = 0;
    Instant until;
    bool timed_out = false;
    std::optional<Error> failure;
  };

  Outcome refusal(const Tenant& tenant, const PutPullRequest& request,
                  const std::vector<std::optional<fabric::Address>>& sources) const;
  void cut(Pull& pull);
  void submit(Pull& pull, std::size_t part);
  void part_over(std::uint64_t id, std::size_t part, const transfer::TransferOutcome& outcome);
  void cancel_parts(Pull& pull);
  void close(Pull& pull);
  void time_out(Pull& pull);
  void force(Pull& pull);

  Core& core_;
  Publisher& publisher_;
  Outcomes& outcomes_;
  std::map<std::uint64_t, Pull> pulls_;
  std::deque<std::pair<Instant, std::uint64_t>> deadlines_;  // ascending
  std::deque<std::pair<Instant, std::uint64_t>> patience_;   // of those timed out
  std::uint64_t next_id_ = 1;
  std::uint64_t next_rail_ = 0;
};

}  // namespace farlift::kv::node
