#include "kvcache/node/core.h"

#include "core/base/assert.h"
#include "core/base/log.h"

#include <cstring>

namespace farlift::kv::node {
namespace {

Incarnation draw_incarnation(const Environment& environment,
                             [[maybe_unused]] const NodeOptions& options) {
#ifdef FARLIFT_PLANTED_BUGS
  if (options.planted == PlantedBug::restored_incarnation) {
    return Incarnation(options.planted_incarnation);
  }
#endif
  std::uint64_t raw = 0;
  while (raw == 0) environment.random(std::as_writable_bytes(std::span(&raw, 1)));
  return Incarnation(raw);
}

}  // namespace

Core::Core(const Environment& from, NodeOptions with)
    : environment(from),
      options(std::move(with)),
      incarnation(draw_incarnation(environment, options)),
      budget(options.pinned_max),
      retired(environment.rails.size()),
      worker(std::make_unique<Worker>(options.hash_threads)),
      uid_(static_cast<std::uint32_t>(random_u64())) {}

// Nothing may touch an arena when it goes: hashing first, then what moves bytes, then the
// registrations, then the domains.
Core::~Core() {
  alive_.reset();
  stopping_.store(true);
  toucher.reset();
  worker.reset();
  for (const auto& tenant : tenants) tenant->close_endpoints();
  arenas.clear();
  tenants.clear();
}

// Arenas outlive the pool.
void Core::populate_later(Arena& arena) {
  if (options.hash_threads == 0) return;
  if (toucher == nullptr) toucher = std::make_unique<transfer::CrcPool>(1);
  (void)toucher->try_submit([this, &arena] {
    while (!stopping_.load() && arena.populate_some()) {
    }
  });
}

Tenant* Core::tenant(std::string_view name) noexcept {
  for (const auto& tenant : tenants) {
    if (tenant->name() == name) return tenant.get();
  }
  return nullptr;
}

std::uint64_t Core::random_u64() const {
  std::uint64_t raw = 0;
  environment.random(std::as_writable_bytes(std::span(&raw, 1)));
  return raw;
}

SlotRef Core::find(const Location& location) noexcept {
  if (location.node != options.id || location.incarnation != incarnation) return {};
  Arena* const found = arena(location.arena);
  if (found == nullptr || found->gen() != location.gen || found->registration(0) == nullptr) {
    return {};
  }
  const std::uint64_t base = found->base().raw();
  if (location.addr.raw() < base) return {};
  const auto index = found->slots().find(Offset(location.addr.raw() - base));
  return index ? found->ref(*index) : SlotRef{};
}

void Core::directory_answered(bool reached) {
  if (reached == directory_up) return;
  directory_up = reached;
  if (!reached) {
    counters.add(Count::directory_losses);
    return log(LogLevel::warning, "kv node: the directory cannot be reached; puts are refused");
  }
  log(LogLevel::info, "kv node: the directory answers");
  if (on_directory_back) on_directory_back();
}

bool directory_lost(const Error& error) noexcept {
  return error.code == Errc::unreachable || error.code == Errc::timeout ||
         error.code == Errc::connection_lost || error.code == Errc::closed;
}

Version raw_version(ByteView descriptor) noexcept {
  constexpr std::size_t kAt = 48;
  if (descriptor.size() < kAt + 8) return {};
  std::uint64_t raw = 0;
  for (std::size_t i = 8; i-- > 0;) {
    raw = raw << 8 | std::to_integer<std::uint64_t>(descriptor[kAt + i]);
  }
  return Version(raw);
}

}  // namespace farlift::kv::node
