#include "blob/module/evictor.h"

#include "blob/module/keyspace.h"
#include "blob/module/module.h"
#include "blob/module/server_info.h"
#include "blob/module/words.h"

#include <climits>

#include <string>

namespace farlift::blob {
namespace {

// Random keys looked at for each one wanted: most keys of a mixed database are no large objects.
constexpr std::size_t kLooksPerSample = 16;
constexpr int kDatabasesMax = 16;

struct Policy {
  enum class By { idle, frequency, time_to_live, chance } by = By::idle;
  bool volatile_only = false;
};

std::optional<Policy> evicting_policy() {
  const int flags = vk::GetContextFlags(nullptr);
  if ((flags & vk::kCtxMaxmemory) == 0 || (flags & vk::kCtxEvict) == 0 ||
      (flags & vk::kCtxReplica) != 0) {
    return std::nullopt;
  }
  const ServerInfoView memory("memory");
  const std::string_view name = memory.text("maxmemory_policy");
  Policy policy;
  policy.volatile_only = name.starts_with("volatile");
  if (name.ends_with("lfu")) policy.by = Policy::By::frequency;
  if (name.ends_with("ttl")) policy.by = Policy::By::time_to_live;
  if (name.ends_with("random")) policy.by = Policy::By::chance;
  return policy;
}

// The higher the better to lose; nullopt when the key is no candidate.
std::optional<long long> score(vk::Ctx* ctx, vk::String* name, const Policy& policy) {
  const OpenedKey key(ctx, name,
                      vk::kRead | vk::kOpenNoTouch | vk::kOpenNoNotify | vk::kOpenNoStats);
  const Value* value = key.value();
  // A victim of the running drain frees no room: nothing is placed in its segment.
  if (value == nullptr || module().is_victim(*value)) return std::nullopt;
  const vk::Milliseconds ttl = vk::GetExpire(key.get());
  if (policy.volatile_only && ttl == vk::kNoExpire) return std::nullopt;
  long long number = 0;
  switch (policy.by) {
    case Policy::By::time_to_live:
      return ttl == vk::kNoExpire ? LLONG_MIN : -ttl;
    case Policy::By::frequency:
      return vk::GetLFU(key.get(), &number) == vk::kOk ? -number : 0;
    case Policy::By::idle:
      return vk::GetLRU(key.get(), &number) == vk::kOk ? number : 0;
    case Policy::By::chance:
      break;
  }
  return 0;
}

bool evict_one(vk::Ctx* ctx, std::string_view spared, const Policy& policy) {
  const auto samples = static_cast<std::size_t>(module().settings().get().reclaim_sample_size);
  vk::String* best = nullptr;
  long long best_score = 0;
  std::size_t found = 0;
  for (std::size_t looks = 0; looks < samples * kLooksPerSample && found < samples; ++looks) {
    vk::String* name = vk::RandomKey(ctx);
    if (name == nullptr) break;  // the database is empty
    const auto s = view(name) == spared ? std::nullopt : score(ctx, name, policy);
    if (s) ++found;
    if (s && (best == nullptr || *s > best_score)) {
      std::swap(best, name);
      best_score = *s;
    }
    if (name != nullptr) vk::FreeString(ctx, name);
  }
  if (best == nullptr) return false;
  const bool gone = evict(ctx, best, std::nullopt);
  vk::FreeString(ctx, best);
  return gone;
}

// In the database of the command first, then in the others.
bool evict_somewhere(vk::Ctx* ctx, std::string_view spared, const Policy& policy) {
  if (evict_one(ctx, spared, policy)) return true;
  const int own = vk::GetSelectedDb(ctx);
  bool gone = false;
  for (int db = 0; db < kDatabasesMax && !gone; ++db) {
    if (db == own || vk::SelectDb(ctx, db) != vk::kOk) continue;
    gone = evict_one(ctx, {}, policy);
  }
  vk::SelectDb(ctx, own);
  return gone;
}

}  // namespace

Result<store::Draft> reserve_or_evict(vk::Ctx* ctx, std::string_view key, Length length) {
  BlobStore& store = module().store();
  auto draft = store.reserve(length, BlobStore::Growth::within_maxmemory);
  if (draft.ok() || draft.code() != Errc::no_memory) return draft;
  const auto policy = evicting_policy();
  if (!policy) return draft;
  for (std::size_t victims = 0; victims < kVictimsMax && !draft.ok(); ++victims) {
    if (!evict_somewhere(ctx, key, *policy)) break;
    draft = store.reserve(length, BlobStore::Growth::within_maxmemory);
  }
  return draft;
}

}  // namespace farlift::blob
