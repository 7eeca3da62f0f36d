#include "kvcache/node/arena.h"

#include "core/base/assert.h"
#include "core/base/log.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace farlift::kv::node {

std::string_view to_string(ArenaState state) noexcept {
  switch (state) {
    case ArenaState::active:
      return "active";
    case ArenaState::sealing:
      return "sealing";
    case ArenaState::migrate:
      return "migrate";
    case ArenaState::unpublish:
      return "unpublish";
    case ArenaState::grace:
      return "grace";
    case ArenaState::close:
      return "close";
    case ArenaState::fence:
      return "fence";
    case ArenaState::scrub:
      return "scrub";
    case ArenaState::enlist:
      return "enlist";
    case ArenaState::lost:
      return "lost";
  }
  return "?";
}

Arena::Arena(ArenaId id, Length size, std::size_t rails, memory::Mapping mapping,
             memory::PinnedBudget::Reservation reservation)
    : id_(id),
      size_(size),
      rails_(rails),
      mapping_(std::move(mapping)),
      reservation_(std::move(reservation)),
      bytes_(mapping_.bytes().first(size.raw())),
      grant_keys_(rails),
      slots_(std::make_unique<Slots>(size)) {}

Result<std::unique_ptr<Arena>> Arena::create(ArenaId id, Length size, std::size_t rails,
                                             memory::PinnedBudget& budget) {
  ASSERT(rails > 0);
  if (size.raw() > UINT64_MAX / rails) return Error::make(Errc::exhausted, "pinned-byte budget");
  TRY_ASSIGN(auto reservation, budget.reserve(Length(size.raw() * rails)));
  memory::MappingOptions options;
  options.name = "farlift-kv";
  TRY_ASSIGN(memory::Mapping mapping, memory::Mapping::create(size, options));
  return std::unique_ptr<Arena>(
      new Arena(id, size, rails, std::move(mapping), std::move(reservation)));
}

Location Arena::location(NodeId node, Incarnation incarnation, SlotIndex index) const {
  return {node, incarnation, id_, gen_, base() + (*slots_)[index].header()};
}

namespace {

// Registers under a key that `used` does not hold. What was refused stays open until a better one
// is found, so that the provider cannot give the same again (8.2 step 8).
Result<std::unique_ptr<fabric::Registration>> register_fresh(
    fabric::Domain& domain, const fabric::MemoryRef& memory, fabric::Access access,
    const KeySet& used, Counters& counters,
    std::vector<std::unique_ptr<fabric::Registration>>& stuck, bool any_key) {
  std::vector<std::unique_ptr<fabric::Registration>> refused;
  Result<std::unique_ptr<fabric::Registration>> found =
      Error::make(Errc::corrupt, "the provider repeats its keys");
  for (int i = 0; i < Arena::kKeyTriesMax; ++i) {
    auto made = domain.register_memory(memory, access);
    if (!made.ok()) {
      found = made.error();
      break;
    }
    if (any_key || !used.contains((*made)->key())) {
      found = std::move(made);
      break;
    }
    counters.add(Count::keys_refused);
    refused.push_back(std::move(made).value());
  }
  for (auto& registration : refused) {
    if (registration->close().ok()) continue;
    stuck.push_back(std::move(registration));
    found = Error::make(Errc::corrupt, "close of a refused registration");
  }
  return found;
}

}  // namespace

Status Arena::enlist(Tenant& owner, std::span<fabric::Domain* const> domains,
                     std::span<KeySet> retired, Counters& counters, bool skip_retired) {
  ASSERT(state_ == ArenaState::enlist && registrations_.empty() && !doomed_);
  ASSERT(domains.size() == rails_ && retired.size() == rails_);
  std::vector<std::unique_ptr<fabric::Registration>> made;
  for (std::size_t rail = 0; rail < rails_; ++rail) {
    auto one =
        register_fresh(*domains[rail], {bytes_, mapping_.memfd(), 0}, fabric::Access::remote_read,
                       retired[rail], counters, stuck_, skip_retired);
    if (!one.ok()) {
      for (auto& registration : made) {
        if (!registration->close().ok()) keep_stuck(std::move(registration));
      }
      return stuck_.empty() ? one.error() : Error::make(Errc::corrupt, "close of a registration");
    }
    ASSERT(skip_retired || !retired[rail].contains((*one)->key()));  // P6
    retired[rail].insert((*one)->key());
    made.push_back(std::move(one).value());
  }
  for (const auto& registration : made) ASSERT(registration->addr() == made[0]->addr());
  registrations_ = std::move(made);
  owner_ = &owner;
  gen_ = ArenaGen(gen_.raw() + 1);
  slots_ = std::make_unique<Slots>(size_);
  heat = 0;
  first_publish = Instant::max();
  scrubbed_ = 0;
  state_ = ArenaState::active;
  return {};
}

bool Arena::close_registrations() {
  ASSERT(state_ == ArenaState::close);
  bool all = true;
  for (auto& registration : registrations_) {
    if (registration->close().ok()) continue;
    all = false;
    keep_stuck(std::move(registration));
  }
  registrations_.clear();
  return all && !doomed_ && stuck_.empty();
}

std::unique_ptr<Slots> Arena::take_slots() {
  ASSERT(state_ == ArenaState::enlist || state_ == ArenaState::lost);
  return std::exchange(slots_, std::make_unique<Slots>(size_));
}

#ifdef FARLIFT_PLANTED_BUGS
void Arena::leak_registrations_planted() {
  for (auto& registration : registrations_) leaked_.push_back(std::move(registration));
  registrations_.clear();
}
#endif

bool Arena::scrub(Length at_most) {
  ASSERT(state_ == ArenaState::scrub && registrations_.empty());  // P5
  const std::uint64_t length = std::min(at_most.raw(), size_.raw() - scrubbed_);
  std::memset(bytes_.data() + scrubbed_, 0, length);
  scrubbed_ += length;
  return scrubbed_ == size_.raw();
}

bool Arena::populate_some() noexcept {
  const std::uint64_t now = std::min(kPopulatedAtOnce, size_.raw() - populated_);
  memory::populate(bytes_.subspan(populated_, now));
  populated_ += now;
  return populated_ < size_.raw();
}

void Arena::advance(ArenaState next) {
  ASSERT(state_ != ArenaState::lost);
  const bool forward = static_cast<int>(next) == static_cast<int>(state_) + 1;
  ASSERT(forward || next == ArenaState::lost);
  if (next == ArenaState::migrate) ASSERT(slots_->count(SlotState::reserved) == 0);
  if (next == ArenaState::close) {
    ASSERT(slots_->count(SlotState::sealed) == 0 && slots_->count(SlotState::published) == 0);
  }
  if (next == ArenaState::fence) ASSERT(registrations_.empty());  // P5
  state_ = next;
}

SlotRef Arena::ref(SlotIndex index) noexcept {
  return {this, gen_, index, (*slots_)[index].serial};
}

std::span<std::byte> Arena::payload_for_write(SlotIndex index) {
  const Slot& slot = (*slots_)[index];
  // P2 and P5: only a reserved slot of a live generation is written.
  ASSERT(slot.state() == SlotState::reserved);
  ASSERT(state_ == ArenaState::active || state_ == ArenaState::sealing);
  return bytes_.subspan(slot.payload().raw(), slot.length);
}

std::span<std::byte, kHeaderBytes> Arena::header_for_write(SlotIndex index) {
  const Slot& slot = (*slots_)[index];
  ASSERT(slot.state() == SlotState::reserved);
  ASSERT(state_ == ArenaState::active || state_ == ArenaState::sealing);
  return bytes_.subspan(slot.header().raw()).first<kHeaderBytes>();
}

std::span<const std::byte> Arena::payload(SlotIndex index) const {
  const Slot& slot = (*slots_)[index];
  return bytes_.subspan(slot.payload().raw(), slot.length);
}

std::span<const std::byte> Arena::header(SlotIndex index) const {
  return bytes_.subspan((*slots_)[index].header().raw(), kHeaderBytes);
}

Result<std::vector<std::unique_ptr<fabric::Registration>>> Arena::grant(
    SlotIndex index, std::span<fabric::Domain* const> domains, Counters& counters) {
  const std::span<std::byte> payload = payload_for_write(index);
  std::vector<std::unique_ptr<fabric::Registration>> made;
  const auto give_up = [&](Error why) {
    for (auto& registration : made) {
      if (registration->close().ok()) continue;
      doom();
      keep_stuck(std::move(registration));
    }
    if (!stuck_.empty()) doom();
    return why;
  };
  if (payload.empty()) return made;  // nothing to write, nothing to lend
  for (std::size_t rail = 0; rail < rails_; ++rail) {
    if (grant_keys_[rail].size() >= kGrantKeysMax) {
      return give_up(Error::make(Errc::exhausted, "grant keys of the arena"));
    }
    const fabric::MemoryRef memory{payload, mapping_.memfd(), (*slots_)[index].payload().raw()};
    auto one = register_fresh(*domains[rail], memory, fabric::Access::remote_write,
                              grant_keys_[rail], counters, stuck_, false);
    if (!one.ok()) return give_up(one.error());
    ASSERT((*one)->length() == Length(payload.size()));  // P3: that slot and nothing else
    grant_keys_[rail].insert((*one)->key());
    made.push_back(std::move(one).value());
  }
  slots_->set_granted(index, true);
  return made;
}

std::uint32_t Arena::cool(std::uint32_t from, std::uint32_t at_most) noexcept {
  if (from == 0) heat /= 2;
  std::uint32_t i = from;
  for (; i < slots_->size() && i - from < at_most; ++i) slots_->cool(SlotIndex(i));
  return i;
}

}  // namespace farlift::kv::node
