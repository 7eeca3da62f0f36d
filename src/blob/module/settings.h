// Settings: the configuration of spec blob 9, its ranges, defaults and cross checks, and its
// registration with the server's own CONFIG machinery.
//
// Invariants: after load() and after every accepted CONFIG SET check() holds; a refused change
//             leaves every value as it was (the server puts back what it had set).
// Threads:    main only. Values a worker needs travel inside its job.
// Errors:     load() and check() answer with the exact text of the rule that was broken.
#pragma once

#include "blob/module/address_policy.h"
#include "blob/module/api.h"
#include "core/base/types.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace farlift::blob {

enum class OperatingMode : int { dram = 0, tiered = 1 };
enum class Provider : int { automatic = 0, soft, emulated, efa_direct, verbs };

struct SettingsValues {
  int operating_mode = static_cast<int>(OperatingMode::dram);
  int fabric_provider = static_cast<int>(Provider::automatic);
  std::string fabric_interfaces;
  std::string fabric_allow;
  std::string disk_dir;
  long long fabric_max_in_flight = 0;
  long long fabric_crc_pool_threads = 1;
  long long segment_size = 0;
  long long chunk_size = 0;
  long long max_object_size = 0;
  long long worker_threads = 2;
  long long max_buffers_per_op = 8;
  long long min_buffers_per_op = 2;
  long long scaling_poll_ms = 5000;
  long long scaling_expand_watermark = 80;
  long long scaling_shrink_watermark = 90;
  long long reclaim_poll_ms = 100;
  long long disk_maxmemory = 0;
  long long disk_staging_size = 0;
  long long max_promote_size = 0;
  long long promote_min_hits = 1;
  long long tiered_decay_time = 1;
  long long reclaim_sample_size = 5;
  long long max_cached_fds = 1024;
  long long smartlog_poll_secs = 60;
  long long test_pause_before_finalize_set_ms = 0;
  int direct_io = 1;
  int bench_mode = 0;
};

class Settings {
 public:
  // Registers everything, takes the values of the configuration file and of MODULE LOADEX, then the
  // unprefixed words of the loadmodule line, and checks them. The text of the first error, or
  // nullopt.
  std::optional<std::string> load(vk::Ctx* ctx, std::span<const std::string_view> words);

  // The cross checks of spec blob 9; nullptr when they hold.
  const char* check() const noexcept;

  // One unprefixed word and its value, as the server's own parser would take it. The error, or
  // nullopt.
  std::optional<std::string> set_word(std::string_view name, std::string_view value);

  const SettingsValues& get() const noexcept { return values_; }
  SettingsValues& values() noexcept { return values_; }
  OperatingMode mode() const noexcept { return static_cast<OperatingMode>(values_.operating_mode); }
  Provider provider() const noexcept { return static_cast<Provider>(values_.fabric_provider); }
  Length object_max() const noexcept {
    return Length(static_cast<std::uint64_t>(values_.max_object_size));
  }
  // Rounded to the pages that storage is made of: a segment up, a chunk down.
  Length segment_size() const noexcept;
  Length chunk_size() const noexcept;
  const AddressPolicy& address_policy() const noexcept { return policy_; }
  bool set_address_policy(std::string_view list);

 private:
  SettingsValues values_;
  AddressPolicy policy_;
};

// A number with the units of the server's configuration (1k = 1000, 1kb = 1024, ... gb), nullopt
// when malformed.
std::optional<long long> parse_memory(std::string_view text) noexcept;

}  // namespace farlift::blob
