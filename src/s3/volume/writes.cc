#include "s3/volume/writes.h"

#include "core/base/log.h"
#include "core/digest/crc32c.h"

#include <thread>

namespace farlift::s3::volume {

Status Writes::check(const NeedleRef& needle, Length length) {
  TRY_ASSIGN(const auto volume, store_.find(needle.volume));
  return volume->check_writable(length);
}

// Deletes what a failed write may have left on peers. True: certainly nothing is left.
bool Writes::take_back(const NeedleRef& needle, std::span<const bool> may_hold) {
  bool clean = true;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    if (!may_hold[i]) continue;
    const Status gone = peers_[i]->remove(needle);
    if (!gone.ok()) {
      clean = false;
      logf(LogLevel::warning, "volume %u: needle %llx may be left on a peer: %s",
           needle.volume.raw(), static_cast<unsigned long long>(needle.key.id),
           gone.error().describe().c_str());
    }
  }
  return clean;
}

Status Writes::put_to_peers(const NeedleRef& needle, const NeedleMeta& meta,
                            std::span<const std::byte> data, Crc32c crc, std::span<bool> may_hold) {
  std::vector<Result<bool>> results(peers_.size(), Result<bool>(false));
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < peers_.size(); ++i) {
    threads.emplace_back([&, i] {
      bool sent = false;
      results[i] = peers_[i]->put(needle, meta, data, crc, &sent);
      may_hold[i] = results[i].ok() ? !*results[i] : sent;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) {
    if (!result.ok()) return result.error();
  }
  return {};
}

WriteOutcome Writes::write_with_peers(Volume& volume, const NeedleRef& needle,
                                      const NeedleMeta& meta, std::span<const std::byte> data,
                                      std::optional<Crc32c> expected) {
  WriteOutcome outcome;
  const Crc32c crc = digest::crc32c(data);
  if (expected && *expected != crc) {
    outcome.status = Error::make(Errc::checksum, "data of another CRC");
    return outcome;
  }
  const bool repeated = volume.find(needle.key).ok();
  // Nothing is sent that could not be kept here.
  if (!repeated) outcome.status = volume.check_writable(Length(data.size()));
  if (!outcome.status.ok()) return outcome;
  const auto may_hold = std::make_unique<bool[]>(peers_.size());
  const std::span<bool> holders(may_hold.get(), peers_.size());
  outcome.status = put_to_peers(needle, meta, data, crc, holders);
  if (outcome.status.ok()) {
    const auto stored = volume.append(needle.key, meta, data, crc);
    if (stored.ok()) {
      outcome.state = UploadState::committed;
      outcome.length = stored->length;
      outcome.crc = stored->crc;
      return outcome;
    }
    outcome.status = stored.error();
    if (stored.code() == Errc::aborted) {
      outcome.state = UploadState::unknown;
      return outcome;
    }
  }
  const bool clean = repeated || take_back(needle, holders);
  outcome.state = clean ? UploadState::not_committed : UploadState::unknown;
  return outcome;
}

WriteOutcome Writes::write(const NeedleRef& needle, const NeedleMeta& meta,
                           std::span<const std::byte> data, std::optional<Crc32c> expected,
                           bool replicate) {
  WriteOutcome outcome;
  const auto volume = store_.find(needle.volume);
  if (!volume.ok()) {
    outcome.status = volume.error();
    return outcome;
  }
  if (replicate && !peers_.empty()) return write_with_peers(**volume, needle, meta, data, expected);
  const auto stored = (*volume)->append(needle.key, meta, data, expected);
  if (!stored.ok()) {
    outcome.status = stored.error();
    if (stored.code() == Errc::aborted) outcome.state = UploadState::unknown;
    return outcome;
  }
  outcome.state = UploadState::committed;
  outcome.length = stored->length;
  outcome.crc = stored->crc;
  outcome.was_there = stored->was_there;
  return outcome;
}

Result<Length> Writes::remove(const NeedleRef& needle, bool replicate) {
  // What is prepared for it and on its way must not come after the deletion (spec s3 7.4).
  if (uploads_ != nullptr) uploads_->forbid(needle);
  TRY_ASSIGN(const auto volume, store_.find(needle.volume));
  auto removed = volume->remove(needle.key);
  // Peers are told also of what is not here: it may be there.
  if (replicate && (removed.ok() || removed.code() == Errc::not_found)) {
    for (const auto& peer : peers_) TRY(peer->remove(needle));
  }
  return removed;
}

}  // namespace farlift::s3::volume
