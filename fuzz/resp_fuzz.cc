// What a hostile server may send: the parser and everything that reads replies to route by them.
// Checked besides sanitizers: the same bytes give the same values in one piece and byte by byte, in
// offered memory or not, and nothing is written behind the offer.
#include "core/base/assert.h"
#include "core/net/resp/parser.h"
#include "core/net/resp/reply_error.h"
#include "core/net/resp/topology.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace {

using namespace farlift;
using namespace farlift::resp;

constexpr std::byte kCanary{0xa5};

struct Outcome {
  std::vector<Value> values;
  std::optional<Error> error;
};

ParserLimits small_limits(bool resp3) {
  ParserLimits limits;
  limits.line_bytes_max = 200;
  limits.bulk_bytes_max = std::uint64_t{1} << 40;
  limits.reply_bytes_max = std::uint64_t{1} << 41;
  limits.elements_max = 1 << 22;
  limits.depth_max = 8;
  limits.resp3 = resp3;
  return limits;
}

// Through areas() as from a socket, at most `piece` bytes at a time.
Outcome parse(std::span<const std::byte> bytes, std::size_t piece, std::span<std::byte> offer,
              bool resp3 = true) {
  Parser parser(small_limits(resp3));
  Outcome outcome;
  parser.offer_bulk(offer);
  for (;;) {
    auto value = parser.next();
    if (!value.ok()) {
      outcome.error = value.error();
      return outcome;
    }
    if (*value) {
      outcome.values.push_back(*std::move(*value));
      continue;
    }
    if (bytes.empty()) return outcome;
    const Parser::Areas areas = parser.areas();
    std::size_t left = std::min(piece, bytes.size());
    std::size_t received = 0;
    for (const iovec& area : areas.used()) {
      const std::size_t part = std::min(left, area.iov_len);
      if (part == 0) break;
      std::memcpy(area.iov_base, bytes.data(), part);
      bytes = bytes.subspan(part);
      left -= part;
      received += part;
    }
    parser.commit(received);
  }
}

void read_as_router(const Value& value) {
  const Endpoint self{"host", 1};
  if (value.is_error()) {
    const ReplyError error = ReplyError::parse(value.text());
    ASSERT(!error.is_redirect() || (error.slot < kSlotCount && error.target.port != 0));
  }
  const auto slots = Topology::from_slots(value, self);
  const auto shards = Topology::from_shards(value, self, true);
  const auto plain = Topology::from_shards(value, self, false);
  ASSERT(!plain.ok() || plain->slots_covered() <= kSlotCount);
  if (slots.ok() && slots->slots_covered() > 0) ASSERT(!slots->nodes().empty());
  if (shards.ok() && shards->slots_covered() > 0) ASSERT(!shards->nodes().empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  std::vector<std::byte> memory(64, kCanary);
  const Outcome whole = parse(bytes, size, {});
  const Outcome bytewise = parse(bytes, 1, std::span(memory).first(32));
  ASSERT(whole.error.has_value() == bytewise.error.has_value());
  ASSERT(!whole.error || whole.error->code == bytewise.error->code);
  ASSERT(whole.values == bytewise.values);
  ASSERT(std::all_of(memory.begin() + 32, memory.end(), [](std::byte b) { return b == kCanary; }));
  const Outcome resp2 = parse(bytes, size, {}, false);
  ASSERT(resp2.error || !whole.error);  // RESP2 takes less
  for (const Value& value : whole.values) read_as_router(value);
  return 0;
}
