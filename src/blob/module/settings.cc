#include "blob/module/settings.h"

#include "blob/wire/texts.h"
#include "core/codec/text.h"
#include "core/store/pool.h"

#include <climits>

#include <array>

namespace farlift::blob {
namespace {

constexpr long long kKiB = 1024;
constexpr long long kMiB = 1024 * kKiB;
constexpr long long kGiB = 1024 * kMiB;
constexpr unsigned kImm = vk::kConfigImmutable;
constexpr unsigned kMem = vk::kConfigMemory;
constexpr unsigned kHidden = vk::kConfigHidden;

struct NumberSpec {
  const char* name;
  long long SettingsValues::*value;
  long long fallback, lowest, highest;
  unsigned flags;
};
constexpr std::array kNumbers = {
    NumberSpec{"fabric-max-in-flight", &SettingsValues::fabric_max_in_flight, 0, 0, 65536, kImm},
    NumberSpec{"fabric-crc-pool-threads", &SettingsValues::fabric_crc_pool_threads, 1, 1, 1024,
               kImm},
    NumberSpec{"segment-size", &SettingsValues::segment_size, kGiB, kMiB, kGiB, kImm | kMem},
    NumberSpec{"chunk-size", &SettingsValues::chunk_size, 8 * kMiB, 4 * kKiB, 256 * kMiB,
               kImm | kMem},
    NumberSpec{"max-object-size", &SettingsValues::max_object_size, 512 * kMiB, 1, LLONG_MAX, kMem},
    NumberSpec{"worker-threads", &SettingsValues::worker_threads, 2, 1, 32, kImm},
    NumberSpec{"max-buffers-per-op", &SettingsValues::max_buffers_per_op, 8, 2, 64, 0},
    NumberSpec{"min-buffers-per-op", &SettingsValues::min_buffers_per_op, 2, 1, 64, 0},
    NumberSpec{"scaling-poll-ms", &SettingsValues::scaling_poll_ms, 5000, 1000, 60000, 0},
    NumberSpec{"scaling-expand-watermark", &SettingsValues::scaling_expand_watermark, 80, 50, 95,
               0},
    NumberSpec{"scaling-shrink-watermark", &SettingsValues::scaling_shrink_watermark, 90, 50, 95,
               0},
    NumberSpec{"reclaim-poll-ms", &SettingsValues::reclaim_poll_ms, 100, 1, 60000, 0},
    NumberSpec{"disk-maxmemory", &SettingsValues::disk_maxmemory, 0, 0, LLONG_MAX, kMem},
    NumberSpec{"disk-staging-size", &SettingsValues::disk_staging_size, kGiB, kMiB, kGiB,
               kImm | kMem},
    NumberSpec{"max-promote-size", &SettingsValues::max_promote_size, 256 * kMiB, 0, 1024 * kGiB,
               kMem},
    NumberSpec{"promote-min-hits", &SettingsValues::promote_min_hits, 1, 1, 255, 0},
    NumberSpec{"tiered-decay-time", &SettingsValues::tiered_decay_time, 1, 0, 65535, 0},
    NumberSpec{"reclaim-sample-size", &SettingsValues::reclaim_sample_size, 5, 1, 64, 0},
    NumberSpec{"max-cached-fds", &SettingsValues::max_cached_fds, 1024, 0, 1048576, 0},
    NumberSpec{"smartlog-poll-secs", &SettingsValues::smartlog_poll_secs, 60, 0, 86400, kImm},
    NumberSpec{"test-pause-before-finalize-set-ms",
               &SettingsValues::test_pause_before_finalize_set_ms, 0, 0, 60000, kHidden},
};

struct BoolSpec {
  const char* name;
  int SettingsValues::*value;
  int fallback;
  unsigned flags;
};
constexpr std::array kBools = {
    BoolSpec{"direct-io", &SettingsValues::direct_io, 1, kImm},
    BoolSpec{"bench-mode", &SettingsValues::bench_mode, 0, kHidden},
};

struct EnumSpec {
  const char* name;
  int SettingsValues::*value;
  int fallback;
  std::span<const char* const> words;
};
constexpr std::array<const char*, 2> kModeWords = {"Dram", "Tiered"};
constexpr std::array<const char*, 5> kProviderWords = {"Auto", "Soft", "Emulated", "EfaDirect",
                                                       "Verbs"};
constexpr std::array kEnums = {
    EnumSpec{"operating-mode", &SettingsValues::operating_mode, 0, kModeWords},
    EnumSpec{"fabric-provider", &SettingsValues::fabric_provider, 0, kProviderWords},
};

struct StringSpec {
  const char* name;
  std::string SettingsValues::*value;
  unsigned flags;
};
constexpr std::array kStrings = {
    StringSpec{"fabric-interfaces", &SettingsValues::fabric_interfaces, kImm},
    StringSpec{"fabric-allow", &SettingsValues::fabric_allow, 0},
    StringSpec{"disk-dir", &SettingsValues::disk_dir, kImm},
};
constexpr std::string_view kAllow = "fabric-allow";
constexpr const char kBadAllow[] =
    "fabric-allow takes a comma list of IP addresses and networks (10.0.0.0/8)";

// Older spellings, taken on the loadmodule line.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kOlderNames = {
    {{"nvme-dir", "disk-dir"},
     {"nvme-maxmemory", "disk-maxmemory"},
     {"nvme-staging-size", "disk-staging-size"}}};

template <class Table>
auto* find_spec(const Table& table, std::string_view name) {
  for (const auto& spec : table) {
    if (codec::equal_ignoring_case(spec.name, name)) return &spec;
  }
  return static_cast<const typename Table::value_type*>(nullptr);
}

Settings& self(void* user) { return *static_cast<Settings*>(user); }

vk::String* text(const char* what) {
  return vk::CreateString(nullptr, what, std::char_traits<char>::length(what));
}

long long get_number(const char* name, void* user) noexcept {
  return self(user).values().*(find_spec(kNumbers, name)->value);
}
int set_number(const char* name, long long value, void* user, vk::String**) noexcept {
  self(user).values().*(find_spec(kNumbers, name)->value) = value;
  return vk::kOk;
}
int get_bool(const char* name, void* user) noexcept {
  return self(user).values().*(find_spec(kBools, name)->value);
}
int set_bool(const char* name, int value, void* user, vk::String**) noexcept {
  self(user).values().*(find_spec(kBools, name)->value) = value;
  return vk::kOk;
}
int get_enum(const char* name, void* user) noexcept {
  return self(user).values().*(find_spec(kEnums, name)->value);
}
int set_enum(const char* name, int value, void* user, vk::String**) noexcept {
  self(user).values().*(find_spec(kEnums, name)->value) = value;
  return vk::kOk;
}
// The server frees nothing that a getter returns, so the string is kept until the next call for the
// same setting.
vk::String* get_string(const char* name, void* user) noexcept {
  static std::array<vk::String*, kStrings.size()> kept{};
  const StringSpec* spec = find_spec(kStrings, name);
  vk::String*& slot = kept[static_cast<std::size_t>(spec - kStrings.data())];
  if (slot != nullptr) vk::FreeString(nullptr, slot);
  const std::string& value = self(user).values().*(spec->value);
  slot = vk::CreateString(nullptr, value.data(), value.size());
  return slot;
}
int set_string(const char* name, vk::String* value, void* user, vk::String** error) noexcept {
  std::size_t size = 0;
  const char* data = vk::StringPtrLen(value, &size);
  const std::string_view given(data, size);
  if (kAllow == name && !self(user).set_address_policy(given)) {
    *error = text(kBadAllow);
    return vk::kErr;
  }
  self(user).values().*(find_spec(kStrings, name)->value) = given;
  return vk::kOk;
}
int apply(vk::Ctx*, void* user, vk::String** error) noexcept {
  const char* broken = self(user).check();
  if (broken == nullptr) return vk::kOk;
  *error = text(broken);
  return vk::kErr;
}

bool register_all(vk::Ctx* ctx, Settings* s) {
  bool ok = true;
  for (const NumberSpec& n : kNumbers) {
    ok = ok && vk::RegisterNumericConfig(ctx, n.name, n.fallback, n.flags, n.lowest, n.highest,
                                         get_number, set_number, apply, s) == vk::kOk;
  }
  for (const BoolSpec& b : kBools) {
    ok = ok && vk::RegisterBoolConfig(ctx, b.name, b.fallback, b.flags, get_bool, set_bool, nullptr,
                                      s) == vk::kOk;
  }
  for (const EnumSpec& e : kEnums) {
    std::array<const char*, kProviderWords.size()> words{};
    std::array<int, kProviderWords.size()> numbers{};
    for (std::size_t i = 0; i < e.words.size(); ++i) {
      words[i] = e.words[i];
      numbers[i] = static_cast<int>(i);
    }
    ok = ok && vk::RegisterEnumConfig(ctx, e.name, e.fallback, kImm, words.data(), numbers.data(),
                                      static_cast<int>(e.words.size()), get_enum, set_enum, nullptr,
                                      s) == vk::kOk;
  }
  for (const StringSpec& t : kStrings) {
    ok = ok && vk::RegisterStringConfig(ctx, t.name, "", t.flags, get_string, set_string, nullptr,
                                        s) == vk::kOk;
  }
  return ok;
}

Length bytes(long long n) { return Length(static_cast<std::uint64_t>(n)); }

}  // namespace

std::optional<std::string> Settings::load(vk::Ctx* ctx, std::span<const std::string_view> words) {
  if (!register_all(ctx, this)) return "cannot register the configuration with the server";
  if (vk::LoadConfigs(ctx) != vk::kOk)
    return "a largeobj.* setting was refused, see the line before";
  if (words.size() % 2 != 0) return "arguments on the loadmodule line come in pairs: name value";
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (auto error = set_word(words[i], words[i + 1])) return error;
  }
  if (const char* broken = check()) return std::string(broken);
  return std::nullopt;
}

const char* Settings::check() const noexcept {
  using namespace wire;
  const SettingsValues& v = values_;
  if (v.chunk_size > v.segment_size) return text::kSegmentBelowChunk;
  if (v.max_buffers_per_op < v.min_buffers_per_op) return text::kBuffersMaxBelowMin;
  const auto fits = [&](long long n) {
    return store::Pool::fits_one_segment(bytes(n), segment_size(), chunk_size());
  };
  if (mode() == OperatingMode::dram) {
    return fits(v.max_object_size) ? nullptr : text::kSegmentBelowObject;
  }
  if (v.max_promote_size > 0 && !fits(v.max_promote_size)) return text::kSegmentBelowPromote;
  if (v.disk_staging_size < v.segment_size) return text::kStagingBelowSegment;
  if (v.disk_maxmemory != 0 && v.disk_maxmemory < v.max_object_size) return text::kDiskBelowObject;
  return nullptr;
}

std::optional<std::string> Settings::set_word(std::string_view name, std::string_view value) {
  for (const auto& [older, newer] : kOlderNames) {
    if (codec::equal_ignoring_case(older, name)) name = newer;
  }
  const auto bad = [&] {
    return "bad value '" + std::string(value) + "' for '" + std::string(name) + "'";
  };
  if (const NumberSpec* n = find_spec(kNumbers, name)) {
    const auto number =
        (n->flags & kMem) != 0 ? parse_memory(value) : [&]() -> std::optional<long long> {
      const auto plain = codec::parse_u64(value);
      if (!plain.ok() || *plain > static_cast<std::uint64_t>(LLONG_MAX)) return std::nullopt;
      return static_cast<long long>(*plain);
    }();
    if (!number || *number < n->lowest || *number > n->highest) return bad();
    values_.*(n->value) = *number;
    return std::nullopt;
  }
  if (const BoolSpec* b = find_spec(kBools, name)) {
    const bool yes = codec::equal_ignoring_case(value, "yes");
    if (!yes && !codec::equal_ignoring_case(value, "no")) return bad();
    values_.*(b->value) = yes ? 1 : 0;
    return std::nullopt;
  }
  if (const EnumSpec* e = find_spec(kEnums, name)) {
    for (std::size_t i = 0; i < e->words.size(); ++i) {
      if (!codec::equal_ignoring_case(value, e->words[i])) continue;
      values_.*(e->value) = static_cast<int>(i);
      return std::nullopt;
    }
    return bad();
  }
  if (const StringSpec* s = find_spec(kStrings, name)) {
    if (name == kAllow && !set_address_policy(value)) return std::string(kBadAllow);
    values_.*(s->value) = value;
    return std::nullopt;
  }
  return "unknown setting '" + std::string(name) + "'";
}

Length Settings::segment_size() const noexcept {
  const auto size = static_cast<std::uint64_t>(values_.segment_size);
  return Length((size + store::kExtentAlign - 1) / store::kExtentAlign * store::kExtentAlign);
}

Length Settings::chunk_size() const noexcept {
  const auto size = static_cast<std::uint64_t>(values_.chunk_size);
  return Length(size / store::kExtentAlign * store::kExtentAlign);
}

bool Settings::set_address_policy(std::string_view list) {
  auto parsed = AddressPolicy::parse(list);
  if (!parsed) return false;
  policy_ = std::move(*parsed);
  return true;
}

std::optional<long long> parse_memory(std::string_view text) noexcept {
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const auto number = codec::parse_u64(text.substr(0, digits));
  if (!number.ok()) return std::nullopt;
  constexpr std::array<std::pair<std::string_view, long long>, 8> kUnits = {
      {{"", 1},
       {"b", 1},
       {"k", 1000},
       {"kb", kKiB},
       {"m", 1000 * 1000},
       {"mb", kMiB},
       {"g", 1000 * 1000 * 1000},
       {"gb", kGiB}}};
  for (const auto& [unit, factor] : kUnits) {
    if (!codec::equal_ignoring_case(unit, text.substr(digits))) continue;
    if (*number > static_cast<std::uint64_t>(LLONG_MAX / factor)) return std::nullopt;
    return static_cast<long long>(*number) * factor;
  }
  return std::nullopt;
}

}  // namespace farlift::blob
