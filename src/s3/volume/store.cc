#include "s3/volume/store.h"

#include "core/base/log.h"
#include "core/codec/text.h"

#include <optional>
#include <string_view>

namespace farlift::s3::volume {
namespace {

constexpr std::string_view kDataEnd = ".dat";
constexpr std::string_view kFreshEnd = ".new";

std::optional<VolumeId> volume_of(std::string_view name) {
  if (!name.ends_with(kDataEnd)) return std::nullopt;
  const auto number = codec::parse_u32(name.substr(0, name.size() - kDataEnd.size()));
  if (!number.ok() || Volume::data_name(VolumeId(*number)) != name) return std::nullopt;
  return VolumeId(*number);
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(std::unique_ptr<disk::Directory> directory,
                                           StoreOptions options) {
  std::unique_ptr<Store> store(new Store(std::move(directory), std::move(options)));
  TRY(store->load());
  if (store->options_.upkeep_every > Duration::zero())
    store->thread_ = std::thread([raw = store.get()] { raw->run(); });
  return store;
}

Status Store::load() {
  TRY_ASSIGN(const auto names, directory_->list());
  MutexLock lock(mutex_);
  for (const std::string& name : names) {
    // Left by a process that ended in the middle; nothing in it is needed. The names are ours only:
    // somebody else's files stay.
    if (name.ends_with(kFreshEnd)) {
      const std::string_view whole =
          std::string_view(name).substr(0, name.size() - kFreshEnd.size());
      if (volume_of(whole) ||
          (whole.ends_with(".fli") &&
           volume_of(std::string(whole.substr(0, whole.size() - 4)) + std::string(kDataEnd))))
        directory_->remove(name).ignore();
      continue;
    }
    const auto id = volume_of(name);
    if (!id) continue;
    if (volumes_.size() >= kVolumesMax) return Error::make(Errc::exhausted, "too many volumes");
    auto volume = Volume::open(*directory_, *id, options_.volume, false);
    if (!volume.ok()) {
      logf(LogLevel::error, "volume %u cannot be used: %s", id->raw(),
           volume.error().describe().c_str());
      ++broken_;
      continue;
    }
    volumes_.emplace(*id, std::move(volume).value());
  }
  return {};
}

Store::~Store() { close(); }

Result<std::shared_ptr<Volume>> Store::find(VolumeId id) const {
  MutexLock lock(mutex_);
  const auto found = volumes_.find(id);
  if (found == volumes_.end()) return Error::make(Errc::not_found, "volume");
  return found->second;
}

Result<std::shared_ptr<Volume>> Store::assign(VolumeId id) {
  MutexLock lock(mutex_);
  const auto found = volumes_.find(id);
  if (found != volumes_.end()) return found->second;
  if (volumes_.size() >= kVolumesMax) return Error::make(Errc::exhausted, "too many volumes");
  TRY_ASSIGN(auto volume, Volume::open(*directory_, id, options_.volume, true));
  volumes_.emplace(id, volume);
  return volume;
}

std::vector<std::shared_ptr<Volume>> Store::volumes() const {
  MutexLock lock(mutex_);
  std::vector<std::shared_ptr<Volume>> out;
  for (const auto& [id, volume] : volumes_) out.push_back(volume);
  return out;
}

void Store::look_after(Volume& volume) {
  volume.check_writable(Length(0)).ignore();  // refreshes what stats() says
  const VolumeStats stats = volume.stats();
  const bool enough = options_.compact_percent > 0 && stats.garbage >= options_.compact_min &&
                      stats.garbage.raw() >= stats.size.raw() / 100 * options_.compact_percent;
  if (stats.sync_failed || enough) {
    const Status done = volume.compact();
    if (!done.ok())
      logf(LogLevel::warning, "volume %u not compacted: %s", volume.id().raw(),
           done.error().describe().c_str());
    return;
  }
  if (stats.unindexed >= options_.index_every.raw()) {
    const Status done = volume.save();
    if (!done.ok())
      logf(LogLevel::warning, "volume %u: index not written: %s", volume.id().raw(),
           done.error().describe().c_str());
  }
}

void Store::upkeep() {
  for (const auto& volume : volumes()) look_after(*volume);
}

void Store::run() {
  for (;;) {
    {
      MutexLock lock(stop_mutex_);
      if (!stopping_) stopped_.wait_for(stop_mutex_, options_.upkeep_every);
      if (stopping_) return;
    }
    upkeep();
  }
}

void Store::close() {
  {
    MutexLock lock(stop_mutex_);
    if (stopping_) return;
    stopping_ = true;
    stopped_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (const auto& volume : volumes()) volume->save().ignore();  // the next start reads more
}

}  // namespace farlift::s3::volume
