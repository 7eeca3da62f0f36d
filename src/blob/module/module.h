// Module: everything the loaded module owns, and the few facts its parts ask each other for. The
// server calls us without a pointer of ours, so there is exactly one, made by load() and never
// destroyed: the server keeps values of our type until the process ends.
//
// Invariants: after stop() no transfer is accepted and no thread of ours runs; values stay
//             readable.
// Threads:    main only, except what the parts say of themselves.
// Errors:     load(): a logged reason and a refused load.
#pragma once

#include "blob/module/api.h"
#include "blob/module/binding.h"
#include "blob/module/blob_store.h"
#include "blob/module/copy_pool.h"
#include "blob/module/counters.h"
#include "blob/module/reclaimer.h"
#include "blob/module/services.h"
#include "blob/module/settings.h"
#include "blob/module/value.h"
#include "core/base/clock.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace farlift::blob {

class Module {
 public:
  // vk::kOk or vk::kErr, with the reason in the server's log.
  static int load(vk::Ctx* ctx, std::span<const std::string_view> words);

  Settings& settings() noexcept { return settings_; }
  Counters& counters() noexcept { return counters_; }
  BlobStore& store() noexcept { return *store_; }
  Services& services() noexcept { return services_; }
  Sessions& sessions() noexcept { return sessions_; }
  CopyPool& copiers() noexcept { return *copiers_; }
  vk::Type* type() const noexcept { return type_; }
  const Clock& clock() const noexcept { return clock_; }
  // A context for work that no command or timer asked for. Main thread.
  vk::Ctx* detached() const noexcept { return detached_; }

  // Numbers the SETs in the order in which they start.
  std::uint64_t next_start() noexcept { return ++starts_; }
  JobId next_job() noexcept { return JobId(++jobs_); }
  bool is_victim(const Value& value) const noexcept {
    return store_->draining() == value.object()->segment();
  }

  bool stopping() const noexcept { return stopping_; }
  void stop();

 private:
  Module() = default;
  bool start(vk::Ctx* ctx, std::span<const std::string_view> words);
  bool subscribe(vk::Ctx* ctx);

  SystemClock clock_;
  Settings settings_;
  Counters counters_;
  Services services_{settings_, clock_, counters_};
  std::unique_ptr<BlobStore> store_;
  Sessions sessions_;
  std::unique_ptr<CopyPool> copiers_;
  std::unique_ptr<Reclaimer> reclaimer_;
  vk::Type* type_ = nullptr;
  vk::Ctx* detached_ = nullptr;
  std::uint64_t starts_ = 0;
  std::uint64_t jobs_ = 0;
  bool stopping_ = false;
};

// After a successful load.
Module& module() noexcept;

}  // namespace farlift::blob
