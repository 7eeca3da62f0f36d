// What a node counts. All of them only grow; gauges are computed when asked for (node.cc).
//
// Threads: one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace farlift::kv::node {

enum class Count : std::uint8_t {
  puts_pull,
  puts_push,
  puts_ok,
  puts_exists,
  puts_conflict,
  puts_full,
  puts_bad_crc,
  puts_timeout,
  puts_control_down,
  puts_failed,
  put_repeats,
  put_bytes,
  pull_retries,
  grants,
  grants_expired,
  grants_refused,
  grants_not_closed,
  publish_unknown,
  repairs,
  superseded_sent,
  superseded_received,
  deletes,
  stale_seen,
  touches,
  rotations,
  rotations_postponed,
  arenas_made,
  arenas_refused,
  arenas_lost,
  keys_refused,
  purges_done,
  migrated,
  migrations_dropped,
  evictions,
  reconciles,
  reconcile_quarantined,
  reconcile_unpublished,
  reconcile_published,
  links_accepted,
  links_refused,
  hellos_refused,
  proofs_refused,
  protocol_errors,
  endpoint_fences,
  engine_fences,
  directory_losses,
  moved_away,
  count_,  // NOLINT(readability-identifier-naming): not a counter
};

class Counters {
 public:
  void add(Count what, std::uint64_t n = 1) noexcept { values_[index(what)] += n; }
  std::uint64_t get(Count what) const noexcept { return values_[index(what)]; }

  static constexpr std::array<std::string_view, static_cast<std::size_t>(Count::count_)> kNames = {
      "puts_pull",
      "puts_push",
      "puts_ok",
      "puts_exists",
      "puts_conflict",
      "puts_full",
      "puts_bad_crc",
      "puts_timeout",
      "puts_control_down",
      "puts_failed",
      "put_repeats",
      "put_bytes",
      "pull_retries",
      "grants",
      "grants_expired",
      "grants_refused",
      "grants_not_closed",
      "publish_unknown",
      "repairs",
      "superseded_sent",
      "superseded_received",
      "deletes",
      "stale_seen",
      "touches",
      "rotations",
      "rotations_postponed",
      "arenas_made",
      "arenas_refused",
      "arenas_lost",
      "keys_refused",
      "purges_done",
      "migrated",
      "migrations_dropped",
      "evictions",
      "reconciles",
      "reconcile_quarantined",
      "reconcile_unpublished",
      "reconcile_published",
      "links_accepted",
      "links_refused",
      "hellos_refused",
      "proofs_refused",
      "protocol_errors",
      "endpoint_fences",
      "engine_fences",
      "directory_losses",
      "moved_away",
  };

 private:
  static constexpr std::size_t index(Count what) noexcept { return static_cast<std::size_t>(what); }
  std::array<std::uint64_t, kNames.size()> values_{};
};
static_assert(!Counters::kNames.back().empty());

}  // namespace farlift::kv::node
