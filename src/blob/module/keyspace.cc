#include "blob/module/keyspace.h"

#include "blob/module/module.h"
#include "blob/module/reply.h"
#include "blob/module/server_info.h"
#include "blob/wire/names.h"
#include "blob/wire/texts.h"

#include <memory>
#include <utility>
#include <vector>

namespace farlift::blob {
namespace {

constexpr const char kReadOnly[] = "READONLY You can't write against a read only replica.";
// Below this a needless copy for propagation costs less than asking whether there is anybody to
// feed.
constexpr std::uint64_t kAskBeforeCopyBytes = 64u << 10;

void propagate(vk::Ctx* ctx, vk::String* key, const store::Object& object, vk::String* payload) {
  if (payload != nullptr) {
    vk::Replicate(ctx, wire::kTcpSet, "ss", key, payload);
    return;
  }
  if (object.length().raw() > kAskBeforeCopyBytes && !propagation_wanted()) return;
  if (const auto whole = object.contiguous()) {
    vk::Replicate(ctx, wire::kTcpSet, "sb", key, reinterpret_cast<const char*>(whole->data()),
                  whole->size());
    return;
  }
  std::vector<std::byte> whole;
  whole.reserve(object.length().raw());
  for (std::size_t i = 0; i < object.extents(); ++i) {
    whole.insert(whole.end(), object.span(i).begin(), object.span(i).end());
  }
  vk::Replicate(ctx, wire::kTcpSet, "sb", key, reinterpret_cast<const char*>(whole.data()),
                whole.size());
}

Committed put(const OpenedKey& key, std::unique_ptr<Value> fresh, bool exists) {
  if (!exists) {
    if (vk::ModuleTypeSetValue(key.get(), module().type(), fresh.get()) != vk::kOk)
      return Committed::failed;
    std::ignore = fresh.release();
    return Committed::stored;
  }
  void* old = nullptr;
  if (vk::ModuleTypeReplaceValue(key.get(), module().type(), fresh.get(), &old) != vk::kOk)
    return Committed::failed;
  std::ignore = fresh.release();
  delete static_cast<Value*>(old);
  vk::SetExpire(key.get(), vk::kNoExpire);  // as SET does
  return Committed::stored;
}

}  // namespace

Value* OpenedKey::value() const {
  if (empty() || vk::ModuleTypeGetType(key_) != module().type()) return nullptr;
  return static_cast<Value*>(vk::ModuleTypeGetValue(key_));
}

Lookup lookup(vk::Ctx* ctx, vk::String* key, bool touch) {
  const int quietly = vk::kOpenNoTouch | vk::kOpenNoNotify | vk::kOpenNoStats;
  const OpenedKey opened(ctx, key, vk::kRead | (touch ? 0 : quietly));
  if (opened.empty()) return {};
  const Value* value = opened.value();
  if (value == nullptr) return {Found::other_type, nullptr};
  if (module().is_victim(*value)) return {};
  return {Found::object, value->object()};
}

Committed commit(vk::Ctx* ctx, vk::String* key, store::ObjectRef object, std::uint64_t started,
                 vk::String* payload) {
  const int flags = vk::GetContextFlags(ctx);
  // The role may have changed while the bytes travelled.
  if ((flags & vk::kCtxReadOnly) != 0 && (flags & (vk::kCtxReplicated | vk::kCtxLoading)) == 0) {
    return Committed::read_only;
  }
  const store::ObjectRef kept = object;
  bool exists = false;
  {
    const OpenedKey opened(ctx, key, vk::kRead | vk::kWrite);
    const Value* old = opened.value();
    exists = old != nullptr;
    if (!exists && !opened.empty()) return Committed::other_type;
    if (exists && old->started() > started) return Committed::stale;
    auto fresh = std::make_unique<Value>(module().store(), std::move(object), started);
    if (put(opened, std::move(fresh), exists) != Committed::stored) return Committed::failed;
  }
  vk::SignalModifiedKey(ctx, key);
  propagate(ctx, key, *kept, payload);
  vk::NotifyKeyspaceEvent(ctx, vk::kNotifyModule, exists ? wire::kEventUpdate : wire::kEventCreate,
                          key);
  return Committed::stored;
}

int reply_committed(vk::Ctx* ctx, Committed outcome) {
  switch (outcome) {
    case Committed::stale:
      module().counters().set_finalize_stale.add();
      return reply_ok(ctx);
    case Committed::stored:
      return reply_ok(ctx);
    case Committed::other_type:
      return reply_error(ctx, wire::text::kWrongType);
    case Committed::read_only:
      return reply_error(ctx, kReadOnly);
    case Committed::failed:
      break;
  }
  module().counters().set_value_failures.add();
  return reply_error(ctx, wire::text::kCommitFailed);
}

bool propagation_wanted() {
  // Exactly when the server itself would feed it: an AOF that is not off (also while its first
  // rewrite runs), replicas in any state, or a backlog that one of them may still resume from.
  const ServerInfoView persistence("persistence");
  if (persistence.number("aof_enabled") != 0) return true;
  const ServerInfoView replication("replication");
  return replication.number("repl_backlog_active") != 0 ||
         replication.number("connected_slaves") != 0;
}

bool evict(vk::Ctx* ctx, vk::String* key, std::optional<store::SegmentId> victim) {
  {
    const OpenedKey opened(
        ctx, key, vk::kRead | vk::kWrite | vk::kOpenNoTouch | vk::kOpenNoNotify | vk::kOpenNoStats);
    Value* value = opened.value();
    if (value == nullptr || (victim && value->object()->segment() != *victim)) return false;
    // The server frees values on a thread of its own, some time; whoever evicts wants the room now.
    value->abandon();
    if (vk::UnlinkKey(opened.get()) != vk::kOk) return false;
  }
  vk::SignalModifiedKey(ctx, key);
  vk::Replicate(ctx, "DEL", "s", key);
  vk::NotifyKeyspaceEvent(ctx, vk::kNotifyEvicted, "evicted", key);
  module().counters().reclaims.add();
  return true;
}

}  // namespace farlift::blob
