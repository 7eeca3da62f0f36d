#include "tests/fabric/slow_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace farlift::kv::rig {
namespace {

// Returns false when the round could not be played.
bool play(Rig& rig, std::size_t size, std::uint64_t round, SlowReads& tally) {
  User& writer = rig.user(0);
  User& reader = rig.user(1);
  const Bytes key = key_of("k" + std::to_string(round));
  const Bytes other = key_of("f" + std::to_string(round));
  const Bytes old_value = pattern(size, 2 * round);
  const Bytes new_value = pattern(size, 2 * round + 1);
  const PutResult put = writer.put(key, old_value);
  EXPECT_EQ(put.outcome, Outcome::ok) << outcome_name(put.outcome) << ", round " << round;
  if (put.outcome != Outcome::ok) return false;
  const auto dest = reader.dest(size);
  std::fill(dest.begin(), dest.end(), std::byte{0});
  const std::uint64_t posted = reader.counter("reads_posted");
  const ReadMode mode = round % 2 == 0 ? ReadMode::payload_only : ReadMode::framed;
  reader.begin_get(key, size, mode);
  if (!rig.run([&] { return reader.late || reader.counter("reads_posted") > posted; })) {
    ADD_FAILURE() << "the read was never posted, round " << round;
    return false;
  }
  for (std::uint64_t i = 0; i < round % 8; ++i) rig.step();
  reader.held = true;
  tally.caught += reader.late ? 0 : 1;
  const bool rotated = rig.rotate();
  EXPECT_TRUE(rotated);
  const PutResult refill = writer.put(other, new_value);
  EXPECT_EQ(refill.outcome, Outcome::ok) << outcome_name(refill.outcome) << ", round " << round;
  reader.held = false;
  const bool ended = rig.run([&] { return reader.late.has_value(); });
  EXPECT_TRUE(ended) << "round " << round;
  if (!rotated || !ended || refill.outcome != Outcome::ok) return false;
  if (reader.late->outcome != Outcome::ok) {
    ++tally.none;
  } else {
    ++(same(dest, old_value) ? tally.whole : tally.wrong);
  }
  const GetResult next = reader.get(other, size, mode);
  EXPECT_EQ(next.outcome, Outcome::ok) << "the reader goes on without a restart";
  EXPECT_TRUE(same(dest, new_value));
  ++tally.done;
  return next.outcome == Outcome::ok && rig.rotate();  // room for the next round
}

}  // namespace

SlowReads slow_reads(Rig& rig, std::size_t size, std::uint64_t rounds, bool until_wrong) {
  SlowReads tally;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    if (!play(rig, size, round, tally)) break;
    if (until_wrong && tally.wrong > 0) break;
  }
  return tally;
}

}  // namespace farlift::kv::rig
