// Reclaimer: the periodic task of Dram mode (spec blob 8.2). Every scaling-poll-ms it lets the
// store grow ahead of demand or choose a segment to give up; every reclaim-poll-ms while a segment
// is being given up it deletes some of its keys, and returns the segment when the last is gone.
//
// Invariants: a key is deleted only if it still holds an object of the chosen segment; one tick
//             holds the main thread for about kTickBudget.
// Threads:    main. Errors: none.
#pragma once

#include "blob/module/api.h"
#include "blob/module/blob_store.h"
#include "blob/module/settings.h"
#include "core/base/clock.h"

#include <chrono>
#include <cstdint>
#include <vector>

namespace farlift::blob {

class Reclaimer {
 public:
  static constexpr Duration kTickBudget = std::chrono::milliseconds(5);

  Reclaimer(const Settings& settings, BlobStore& store, const Clock& clock)
      : settings_(settings), store_(store), clock_(clock) {}
  ~Reclaimer();
  void start(vk::Ctx* ctx);
  void stop(vk::Ctx* ctx);

 private:
  static void on_scale(vk::Ctx* ctx, void* self) noexcept;
  static void on_reclaim(vk::Ctx* ctx, void* self) noexcept;
  static void on_key(vk::Ctx* ctx, vk::String* name, vk::Key* key, void* self) noexcept;
  void reclaim(vk::Ctx* ctx);
  void scan_some(vk::Ctx* ctx, store::SegmentId victim);
  bool next_database(vk::Ctx* ctx);
  void drop_cursor();
  void arm_scale(vk::Ctx* ctx);
  void arm_reclaim(vk::Ctx* ctx);

  const Settings& settings_;
  BlobStore& store_;
  const Clock& clock_;
  vk::ScanCursor* cursor_ = nullptr;
  int database_ = 0;
  std::vector<vk::String*> found_;
  store::SegmentId victim_;
  vk::TimerId scale_timer_ = 0;
  vk::TimerId reclaim_timer_ = 0;
};

}  // namespace farlift::blob
