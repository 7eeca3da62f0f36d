// Keyspace: finding, committing and dropping large objects under keys, with everything the server
// and its replicas must hear of it.
//
// Invariants: a commit is atomic: readers see the whole old or the whole new object; a commit that
//             finds an object whose SET started later changes nothing (spec blob 3.3); a failed
//             call leaves no key, TTL change or event.
// Threads:    main. Errors: as the enums say.
#pragma once

#include "blob/module/api.h"
#include "blob/module/value.h"

#include <cstdint>
#include <optional>

namespace farlift::blob {

enum class Found : std::uint8_t { absent, object, other_type };

struct Lookup {
  Found found = Found::absent;
  store::ObjectRef object;  // pinned, when found
};

// `touch`: counts as an access. A victim of the running drain counts as absent (spec blob 8.2).
Lookup lookup(vk::Ctx* ctx, vk::String* key, bool touch);

enum class Committed : std::uint8_t { stored, stale, other_type, read_only, failed };

// `payload`, where given, holds the same bytes as a server string, so that feeding replicas needs
// no copy.
Committed commit(vk::Ctx* ctx, vk::String* key, store::ObjectRef object, std::uint64_t started,
                 vk::String* payload);

// The reply to a commit.
int reply_committed(vk::Ctx* ctx, Committed outcome);

// True when a commit will be fed to replicas or an AOF.
bool propagation_wanted();

// Deletes the key if it still holds a large object (of segment `victim`, when given); fires
// "evicted" and tells replicas. The storage is free at once, unless a transfer pins it. True when
// it did.
bool evict(vk::Ctx* ctx, vk::String* key, std::optional<store::SegmentId> victim);

// An opened key, closed with the scope.
class OpenedKey {
 public:
  OpenedKey(vk::Ctx* ctx, vk::String* name, int mode) : key_(vk::OpenKey(ctx, name, mode)) {}
  ~OpenedKey() { vk::CloseKey(key_); }
  OpenedKey(const OpenedKey&) = delete;
  OpenedKey& operator=(const OpenedKey&) = delete;
  vk::Key* get() const noexcept { return key_; }
  bool empty() const { return key_ == nullptr || vk::KeyType(key_) == vk::kKeyEmpty; }
  Value* value() const;  // nullptr when the key is empty or of another type

 private:
  vk::Key* key_;
};

}  // namespace farlift::blob
