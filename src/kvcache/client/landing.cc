#include "kvcache/client/landing.h"

#include "core/base/assert.h"

#include <functional>
#include <utility>

namespace farlift::kv::client {

Result<std::shared_ptr<Landing>> Landing::create(const Domains& domains,
                                                 const fabric::MemoryRef& memory) {
  if (memory.bytes.empty()) return Error::make(Errc::invalid_argument, "empty landing memory");
  std::shared_ptr<Landing> landing(new Landing(memory));
  for (const auto& domain : domains) {
    TRY_ASSIGN(auto registration, domain->register_memory(memory, fabric::Access::local));
    landing->local_.push_back(std::move(registration));
  }
  return landing;
}

bool Landing::covers(std::span<const std::byte> part) const noexcept {
  const std::less_equal<const std::byte*> before;
  const std::byte* const start = memory_.bytes.data();
  return before(start, part.data()) && before(part.data(), start + memory_.bytes.size()) &&
         part.size() <= static_cast<std::size_t>(start + memory_.bytes.size() - part.data());
}

Status Landing::lend(const Domains& domains, Counters& counters) {
  if (lent()) return {};
  if (local_.empty()) return Error::make(Errc::closed, "landing memory");
  std::vector<std::unique_ptr<fabric::Registration>> made;
  for (const auto& domain : domains) {
    TRY_ASSIGN(auto registration, domain->register_memory(memory_, fabric::Access::remote_read));
    made.push_back(std::move(registration));
    ++counters.source_registrations;
  }
  source_ = std::move(made);
  return {};
}

void Landing::close() {
  source_.clear();
  local_.clear();
}

Status LandingSet::add(const std::shared_ptr<Landing>& landing) {
  const std::byte* const start = landing->bytes().data();
  const std::byte* const end = start + landing->bytes().size();
  const auto after = by_start_.lower_bound(start);
  const bool into_next = after != by_start_.end() && std::less<>()(after->first, end);
  const bool into_last =
      after != by_start_.begin() &&
      std::less<>()(start, std::prev(after)->first + std::prev(after)->second->bytes().size());
  if (into_next || into_last) {
    return Error::make(Errc::invalid_argument, "landing memory is registered already");
  }
  by_start_.emplace(start, landing);
  return {};
}

void LandingSet::add_borrowed(const std::shared_ptr<Landing>& landing) {
  borrowed_.emplace(landing.get(), landing);
}

void LandingSet::remove(const Landing& landing) {
  if (borrowed_.erase(&landing) > 0) return;
  const auto at = by_start_.find(landing.bytes().data());
  if (at != by_start_.end() && at->second.get() == &landing) by_start_.erase(at);
}

std::shared_ptr<Landing> LandingSet::find(std::span<const std::byte> part) const {
  auto at = by_start_.upper_bound(part.data());
  if (at == by_start_.begin()) return nullptr;
  --at;
  return at->second->covers(part) ? at->second : nullptr;
}

void LandingSet::close_all() {
  for (const auto& [start, landing] : by_start_) landing->close();
  by_start_.clear();
  for (const auto& [raw, landing] : borrowed_) landing->close();
  borrowed_.clear();
}

Result<std::unique_ptr<HeaderPool>> HeaderPool::create(const Domains& domains) {
  memory::MappingOptions options;
  options.huge_pages = false;
  options.name = "farlift-kv-headers";
  TRY_ASSIGN(memory::Mapping mapping,
             memory::Mapping::create(Length(kHeadersMax * kStride), options));
  std::unique_ptr<HeaderPool> pool(new HeaderPool(std::move(mapping)));
  fabric::MemoryRef memory;
  memory.bytes = pool->mapping_.bytes();
  memory.memfd = pool->mapping_.memfd();
  TRY_ASSIGN(pool->landing_, Landing::create(domains, memory));
  for (std::size_t i = kHeadersMax; i > 0; --i) {
    pool->free_.push_back(static_cast<std::uint16_t>(i - 1));
  }
  return pool;
}

std::optional<std::span<std::byte>> HeaderPool::take() {
  if (free_.empty()) return std::nullopt;
  const std::size_t index = free_.back();
  free_.pop_back();
  return mapping_.bytes().subspan(index * kStride, kHeaderBytes);
}

void HeaderPool::give_back(std::span<std::byte> header) {
  const auto at = static_cast<std::size_t>(header.data() - mapping_.bytes().data());
  ASSERT(at % kStride == 0 && at / kStride < kHeadersMax);
  free_.push_back(static_cast<std::uint16_t>(at / kStride));
}

}  // namespace farlift::kv::client
