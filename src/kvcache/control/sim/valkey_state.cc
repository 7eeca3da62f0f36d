#include "kvcache/control/sim/valkey_state.h"

#include "kvcache/control/schema.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::sim {

const ValkeyState::Entry* ValkeyState::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && live(found->second) ? &found->second : nullptr;
}

void ValkeyState::replace(const std::string& name, std::optional<Entry> entry) {
  ++revision_;
  const auto found = entries_.find(name);
  Change change{clock_.now(), name, std::nullopt};
  if (found != entries_.end()) change.before = std::move(found->second);
  history_.push_back(std::move(change));
  while (history_.front().at < clock_.now() - kHistoryMax) history_.pop_front();
  if (entry) {
    entries_.insert_or_assign(name, *std::move(entry));
  } else {
    entries_.erase(name);
  }
}

std::optional<Bytes> ValkeyState::get(const std::string& name) const {
  const Entry* entry = find(name);
  return entry != nullptr ? std::optional<Bytes>(entry->value) : std::nullopt;
}

ValkeyState::Live ValkeyState::look(const std::string& name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) return {};
  return {&entry->value, entry->expires ? *entry->expires - shift_ : Instant::max()};
}

std::optional<Bytes> ValkeyState::get_as_of(const std::string& name, Duration lag) const {
  const Instant then = clock_.now() - lag;
  // The first change after `then` says what was there at that time.
  const auto change = std::ranges::find_if(
      history_, [&](const Change& c) { return c.at > then && c.name == name; });
  if (change == history_.end()) return get(name);
  if (!change->before || !live(*change->before)) return std::nullopt;
  return change->before->value;
}

void ValkeyState::set(const std::string& name, Bytes value, std::optional<Duration> px) {
  Entry entry{std::move(value), {}, std::nullopt};
  if (px) entry.expires = server_now() + *px;
  replace(name, std::move(entry));
}

bool ValkeyState::del(const std::string& name) {
  if (find(name) == nullptr) return false;
  replace(name, std::nullopt);
  return true;
}

void ValkeyState::set_add(const std::string& name, const std::string& member) {
  const Entry* found = find(name);
  Entry entry = found != nullptr ? *found : Entry{};
  entry.members.insert(member);
  replace(name, std::move(entry));
}

void ValkeyState::set_remove(const std::string& name, const std::string& member) {
  const Entry* found = find(name);
  if (found == nullptr) return;
  Entry entry = *found;
  entry.members.erase(member);
  if (entry.members.empty()) {
    replace(name, std::nullopt);
  } else {
    replace(name, std::move(entry));
  }
}

std::set<std::string> ValkeyState::members(const std::string& name) const {
  const Entry* entry = find(name);
  return entry != nullptr ? entry->members : std::set<std::string>{};
}

std::vector<std::string> ValkeyState::names() const {
  std::vector<std::string> out;
  for (const auto& [name, entry] : entries_) {
    if (live(entry)) out.push_back(name);
  }
  return out;
}

std::uint64_t ValkeyState::count_with_prefix(const std::string& prefix) const {
  std::uint64_t count = 0;
  for (auto at = entries_.lower_bound(prefix);
       at != entries_.end() && at->first.starts_with(prefix); ++at) {
    if (live(at->second)) ++count;
  }
  return count;
}

ValkeyState::Published ValkeyState::publish(const PublishRequest& request) {
  const std::string name = descriptor_name(request.tenant, request.key);
  const std::string tag = tag_name(request.tenant, request.key);
  const std::optional<Bytes> current = get(name);
  if (request.mode == PutMode::if_absent && current) return {PublishReply::Kind::exists, current};
  if (request.mode == PutMode::if_version) {
    const Bytes version = current ? version_slice(*current) : Bytes{};
    if (version != version_operand(request.expected))
      return {PublishReply::Kind::conflict, current};
  }
  set(name, request.descriptor, request.ttl);
  if (request.tag.empty()) {
    del(tag);
  } else {
    set(tag, request.tag, request.ttl);
  }
  return {PublishReply::Kind::ok, current};
}

UnpublishReply::Kind ValkeyState::unpublish(const UnpublishRequest& request) {
  const std::string name = descriptor_name(request.tenant, request.key);
  const std::string tag = tag_name(request.tenant, request.key);
  const std::optional<Bytes> current = get(name);
  if (!current) {
    // Always both: a tag without its descriptor is of no use to anybody.
    const bool lone = request.how == UnpublishRequest::How::exact && request.descriptor.empty();
    if (lone || request.how == UnpublishRequest::How::any) del(tag);
    return UnpublishReply::Kind::absent;
  }
  if (request.how == UnpublishRequest::How::location) {
    const auto location = encode_location(request.location);
    if (location_slice(*current) != Bytes(location.begin(), location.end()))
      return UnpublishReply::Kind::other;
  }
  if (request.how == UnpublishRequest::How::version &&
      version_slice(*current) != version_operand(request.version))
    return UnpublishReply::Kind::other;
  if (request.how == UnpublishRequest::How::exact && *current != request.descriptor)
    return UnpublishReply::Kind::other;
  del(name);
  del(tag);
  return UnpublishReply::Kind::removed;
}

void ValkeyState::flush_all() {
  while (!entries_.empty()) replace(entries_.begin()->first, std::nullopt);
}

void ValkeyState::rewind(Duration back) {
  const Instant then = clock_.now() - back;
  ++revision_;
  while (!history_.empty() && history_.back().at > then) {
    Change& change = history_.back();
    if (change.before) {
      entries_.insert_or_assign(change.name, *std::move(change.before));
    } else {
      entries_.erase(change.name);
    }
    history_.pop_back();
  }
}

}  // namespace farlift::kv::sim
