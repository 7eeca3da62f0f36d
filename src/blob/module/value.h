// Value: what the keyspace holds under a key of type largeob-k: a pin on an immutable object, and
// when the SET that made it started.
//
// Invariants: the object never changes; while a Value holds it, it is counted in its segment
//             (BlobStore::live_in).
// Threads:    made on the main thread; destroyed on any (the server frees lazily on threads of its
//             own).
#pragma once

#include "blob/module/blob_store.h"
#include "core/store/pool.h"

#include <cstdint>
#include <utility>

namespace farlift::blob {

class Value {
 public:
  Value(BlobStore& store, store::ObjectRef object, std::uint64_t started)
      : store_(store), object_(std::move(object)), started_(started) {
    store_.note_value(object_->segment());
  }
  ~Value() { abandon(); }
  Value(const Value&) = delete;
  Value& operator=(const Value&) = delete;

  const store::ObjectRef& object() const noexcept { return object_; }
  // Lets go of the object; only on the way out of the keyspace, when nobody will look at the Value
  // any more.
  void abandon() {
    if (object_ == nullptr) return;
    store_.note_value_gone(object_->segment());
    object_.reset();
  }
  // Position of its SET in the order in which SETs started (spec blob 3.3, the last one started
  // wins).
  std::uint64_t started() const noexcept { return started_; }

 private:
  BlobStore& store_;
  store::ObjectRef object_;
  const std::uint64_t started_;
};

}  // namespace farlift::blob
