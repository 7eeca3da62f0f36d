// One RDMA transfer of the client: the checks, the command, the wait, what the reply means for the
// caller and for the regions (spec blob 10.2, rules 5 to 15).
//
// Invariants: once the server may have run the command it is not sent again. Every region named is
//             Busy from before the command is sent until nothing can land any more and what landed
//             was checked.
// Threads:    the calling thread; one object per transfer.
// Errors:     farlift::ClientError.
#pragma once

#include "blob/client/region.h"
#include "blob/client/verify.h"
#include "core/net/resp/router.h"
#include <farlift/client.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace farlift::client {

class ClientCore;
class Link;

struct Target {
  std::shared_ptr<Region> region;  // null: not a window
  std::size_t offset = 0;
  std::size_t length = 0;
};

class Transfer {
 public:
  enum class Kind : std::uint8_t { get, set };

  Transfer(ClientCore& core, Kind kind, std::string_view key, std::vector<Target> targets,
           std::optional<std::uint32_t> checksum);

  // SET: an engaged, empty receipt on success. GET: disengaged when there is no such key.
  Expected<std::optional<RdmaReadReceipt>> run();

 private:
  // A region of this transfer and the parts of it that the command names.
  struct Exposure {
    std::shared_ptr<Region> region;
    std::shared_ptr<void> owner;  // keeps the memory until it was looked at for the last time
    std::vector<Extent> extents;
    std::optional<std::vector<fabric::LandedRun>> landed;
  };

  Expected<void> begin();
  Expected<void> begin_regions();
  void end_regions() noexcept;
  void build_command();

  Result<resp::Value> send(std::string* reason);
  resp::Attempt attempt(resp::Connection& connection);
  std::optional<resp::Attempt> prepare(resp::Connection& connection, Link& link);
  void take_reply(const resp::Value& reply, Link& link, resp::Connection& connection);
  void take_get_reply(const resp::Value& reply, Link& link, resp::Connection& connection);
  void take_landed(Link& link, resp::Connection& connection);
  void cut_off(Link& link, resp::Connection& connection) noexcept;
  void fail(ErrorKind kind, std::string text);

  Expected<void> verify();
  Crc32c landed_crc(std::uint64_t length);
  bool watching() const noexcept;

  ClientCore& core_;
  const Kind kind_;
  const std::string_view key_;
  const std::vector<Target> targets_;
  const std::optional<std::uint32_t> checksum_;
  std::uint64_t length_ = 0;  // of all windows together
  std::vector<Exposure> exposures_;
  std::vector<std::string> numbers_;
  std::vector<std::string_view> words_;

  bool asking_ = false;  // the last answer was ASK: the next connection was told ASKING

  // What came of it; set once.
  std::optional<ClientError> failure_;
  std::optional<RdmaReadReceipt> receipt_;
  bool answered_ = false;  // a result arrived: receipt_, or nil
};

}  // namespace farlift::client
