// Memory that reads land in and puts are pulled from: the caller's, registered once on every rail,
// and the private one where value headers land.
//
// Invariants: landing registrations have local access only, so that no peer can write here (spec kv
//             3); the remote-read registrations of a source are made at its first put and live as
//             long as it. Whoever lends a piece of it holds the shared_ptr; registrations close
//             when the last one is gone, or with the client, whose endpoints close before.
// Threads:    the loop's. Errors: of Domain::register_memory.
#pragma once

#include "core/base/result.h"
#include "core/fabric/fabric.h"
#include "core/memory/mapping.h"
#include "kvcache/client/counters.h"
#include "kvcache/wire/types.h"

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace farlift::kv::client {

using Domains = std::vector<std::unique_ptr<fabric::Domain>>;

class Landing {
 public:
  static Result<std::shared_ptr<Landing>> create(const Domains& domains,
                                                 const fabric::MemoryRef& memory);
  std::span<std::byte> bytes() const noexcept { return memory_.bytes; }
  bool covers(std::span<const std::byte> part) const noexcept;
  fabric::Registration* local(std::size_t rail) const noexcept { return local_[rail].get(); }
  std::size_t rails() const noexcept { return local_.size(); }
  // Registers for remote read, the first time.
  Status lend(const Domains& domains, Counters& counters);
  bool lent() const noexcept { return !source_.empty(); }
  const fabric::Registration& source(std::size_t rail) const noexcept { return *source_[rail]; }
  void close();  // before the domains go

 private:
  explicit Landing(const fabric::MemoryRef& memory) : memory_(memory) {}
  const fabric::MemoryRef memory_;
  std::vector<std::unique_ptr<fabric::Registration>> local_;
  std::vector<std::unique_ptr<fabric::Registration>> source_;
};

// Which landing memory a span lies in.
class LandingSet {
 public:
  // invalid_argument: it overlaps one that is there.
  Status add(const std::shared_ptr<Landing>& landing);
  // find() does not find it.
  void add_borrowed(const std::shared_ptr<Landing>& landing);
  void remove(const Landing& landing);
  std::shared_ptr<Landing> find(std::span<const std::byte> part) const;
  void close_all();

 private:
  std::map<const std::byte*, std::shared_ptr<Landing>> by_start_;
  std::unordered_map<const Landing*, std::shared_ptr<Landing>> borrowed_;
};

// Fixed 32-byte places for value headers, one for each framed read under way.
class HeaderPool {
 public:
  static constexpr std::size_t kHeadersMax = 1024;
  static constexpr std::size_t kStride = 64;  // no two share a cache line

  static Result<std::unique_ptr<HeaderPool>> create(const Domains& domains);
  const std::shared_ptr<Landing>& landing() const noexcept { return landing_; }
  std::optional<std::span<std::byte>> take();  // empty: all are out
  void give_back(std::span<std::byte> header);

 private:
  explicit HeaderPool(memory::Mapping&& mapping) : mapping_(std::move(mapping)) {}
  memory::Mapping mapping_;
  std::shared_ptr<Landing> landing_;
  std::vector<std::uint16_t> free_;
};

}  // namespace farlift::kv::client
