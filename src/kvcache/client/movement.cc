#include "kvcache/client/movement.h"

#include "core/base/assert.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::client {
namespace {

// What all parts share. It dies with the last Lender, when nothing can touch the memory any more.
struct Whole {
  Movement movement;
  OnMoved done;
  std::size_t left = 0;
  Moved outcome;
  std::vector<std::pair<Crc32c, Length>> crcs;  // by part

  Whole(Movement what, OnMoved told) : movement(std::move(what)), done(std::move(told)) {}
  Whole(const Whole&) = delete;
  Whole& operator=(const Whole&) = delete;
  ~Whole() {
    if (movement.headers != nullptr) movement.headers->give_back(movement.header);
  }

  void part_done(std::size_t part, Length length, const transfer::TransferOutcome& result) {
    if (result.status.ok()) {
      crcs[part] = {result.crc, length};
    } else if (outcome.status.ok()) {
      outcome.status = result.status;
    } else {
      Error first = outcome.status.error();
      const Error other = result.status.error();
      const bool quiet = first.quiet && other.quiet;
      if (first.code == Errc::flushed && other.code == Errc::access) first = other;
      first.quiet = quiet;
      outcome.status = first;
    }
    if (--left > 0) return;
    if (outcome.status.ok()) {
      for (const auto& [crc, bytes] : crcs) {
        outcome.crc = digest::crc32c_combine(outcome.crc, crc, bytes);
      }
    }
    const OnMoved told = std::move(done);
    told(outcome);
  }
};

// [addr, addr + length) in windows of at most `most`, so that no operation is longer.
std::vector<transfer::RemoteWindow> windows(RKey key, RemoteAddr addr, std::uint64_t length,
                                            std::uint64_t most) {
  std::vector<transfer::RemoteWindow> list;
  for (std::uint64_t at = 0; at < length;) {
    const std::uint64_t now = std::min(most, length - at);
    list.push_back({key, addr + Offset(at), Length(now)});
    at += now;
  }
  return list;
}

void submit_part(const std::shared_ptr<Whole>& whole, const LinkRail& rail, RKey key,
                 std::size_t part, std::uint64_t from, std::uint64_t to, std::uint64_t most) {
  const Movement& movement = whole->movement;
  transfer::Job job;
  job.kind = movement.kind;
  job.peer = rail.peer;
  job.compute_crc = movement.kind == fabric::OpKind::read;
  const std::uint64_t header = movement.header.size();
  if (from < header) {
    job.local.push_back({movement.header, movement.headers->landing()->local(rail.own)});
  }
  const std::uint64_t payload_from = std::max(from, header) - header;
  if (to > header) {
    job.local.push_back({movement.payload.subspan(payload_from, to - header - payload_from),
                         movement.memory->local(rail.own)});
  }
  job.remote = windows(key, movement.addr + Offset(from), to - from, most);
  rail.engine->submit(std::move(job), transfer::lend([whole, part, length = Length(to - from)](
                                                         const transfer::TransferOutcome& result) {
                        whole->part_done(part, length, result);
                      }));
}

}  // namespace

Status start_movement(std::span<const LinkRail> rails, const MovementLimits& limits,
                      Movement movement, OnMoved done) {
  std::vector<std::size_t> usable;
  for (std::size_t i = 0; i < std::min(rails.size(), movement.rkeys.size()); ++i) {
    if (rails[i].engine != nullptr) usable.push_back(i);
  }
  const std::uint64_t total = movement.header.size() + movement.payload.size();
  ASSERT(total > 0);
  auto whole = std::make_shared<Whole>(std::move(movement), std::move(done));
  if (usable.empty()) return Error::make(Errc::unreachable, "no rail in common with the node");
  const std::uint64_t most = limits.max_read.raw() > 0 ? limits.max_read.raw() : UINT64_MAX;
  std::uint64_t step = total;
  if (usable.size() > 1) {
    step = std::max<std::uint64_t>(std::min(limits.part_max.raw(), most), kHeaderBytes + 1);
  }
  whole->left = static_cast<std::size_t>((total + step - 1) / step);
  whole->crcs.resize(whole->left);
  std::size_t part = 0;
  for (std::uint64_t from = 0; from < total; from += step, ++part) {
    const std::size_t rail = usable[part % usable.size()];
    submit_part(whole, rails[rail], whole->movement.rkeys[rail], part, from,
                std::min(total, from + step), most);
  }
  return {};
}

}  // namespace farlift::kv::client
