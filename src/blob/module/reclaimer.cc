#include "blob/module/reclaimer.h"

#include "blob/module/keyspace.h"
#include "blob/module/module.h"

#include <utility>

namespace farlift::blob {

Reclaimer::~Reclaimer() { drop_cursor(); }

void Reclaimer::start(vk::Ctx* ctx) { arm_scale(ctx); }

void Reclaimer::stop(vk::Ctx* ctx) {
  if (scale_timer_ != 0) vk::StopTimer(ctx, std::exchange(scale_timer_, 0), nullptr);
  if (reclaim_timer_ != 0) vk::StopTimer(ctx, std::exchange(reclaim_timer_, 0), nullptr);
}

void Reclaimer::arm_scale(vk::Ctx* ctx) {
  scale_timer_ = vk::CreateTimer(ctx, settings_.get().scaling_poll_ms, on_scale, this);
}

void Reclaimer::arm_reclaim(vk::Ctx* ctx) {
  reclaim_timer_ = vk::CreateTimer(ctx, settings_.get().reclaim_poll_ms, on_reclaim, this);
}

void Reclaimer::on_scale(vk::Ctx* ctx, void* user) noexcept {
  auto& self = *static_cast<Reclaimer*>(user);
  self.store_.scale();
  if (self.store_.draining() && self.reclaim_timer_ == 0) self.arm_reclaim(ctx);
  self.arm_scale(ctx);
}

void Reclaimer::on_reclaim(vk::Ctx* ctx, void* user) noexcept {
  auto& self = *static_cast<Reclaimer*>(user);
  self.reclaim_timer_ = 0;
  self.reclaim(ctx);
  if (self.store_.draining()) self.arm_reclaim(ctx);
}

void Reclaimer::reclaim(vk::Ctx* ctx) {
  if (!store_.draining()) return;
  if ((vk::GetContextFlags(ctx) & vk::kCtxReplica) != 0) {
    // The primary decides what a replica holds.
    store_.cancel_drain();
    drop_cursor();
    return;
  }
  const store::SegmentId victim = *store_.draining();
  if (store_.live_in(victim) != 0) scan_some(ctx, victim);
  if (store_.live_in(victim) == 0 && store_.try_end_drain()) drop_cursor();
}

// Walks the databases with a cursor that survives from tick to tick, and starts over at the end: a
// key may have been renamed from where the cursor has not been to where it has.
void Reclaimer::scan_some(vk::Ctx* ctx, store::SegmentId victim) {
  const Instant until = clock_.now() + kTickBudget;
  victim_ = victim;
  while (store_.live_in(victim) != 0 && clock_.now() < until) {
    if (cursor_ == nullptr) cursor_ = vk::ScanCursorCreate();
    vk::SelectDb(ctx, database_);
    const bool more = vk::Scan(ctx, cursor_, on_key, this) != 0;
    for (vk::String* key : std::exchange(found_, {})) {
      evict(ctx, key, victim);
      vk::FreeString(ctx, key);
    }
    if (!more && !next_database(ctx)) return;  // a full round is enough for one tick
  }
}

bool Reclaimer::next_database(vk::Ctx* ctx) {
  vk::ScanCursorDestroy(std::exchange(cursor_, nullptr));
  ++database_;
  if (vk::SelectDb(ctx, database_) == vk::kOk) return true;
  database_ = 0;
  return false;
}

void Reclaimer::on_key(vk::Ctx* ctx, vk::String* name, vk::Key* key, void* user) noexcept {
  auto& self = *static_cast<Reclaimer*>(user);
  if (key == nullptr || vk::ModuleTypeGetType(key) != module().type()) return;
  const auto* value = static_cast<const Value*>(vk::ModuleTypeGetValue(key));
  // Keys are not deleted under the scan's feet.
  if (value->object()->segment() == self.victim_) self.found_.push_back(vk::HoldString(ctx, name));
}

void Reclaimer::drop_cursor() {
  if (cursor_ != nullptr) vk::ScanCursorDestroy(std::exchange(cursor_, nullptr));
  database_ = 0;
}

}  // namespace farlift::blob
