#include "s3/volume/uploads.h"

#include "core/base/prng.h"
#include "core/digest/crc32c.h"

#include <algorithm>
#include <vector>

namespace farlift::s3::volume {
namespace {

CommitOutcome ended_as(CommitCode code) {
  CommitOutcome outcome;
  outcome.code = code;
  return outcome;
}

}  // namespace

std::string_view to_string(UploadState state) noexcept {
  switch (state) {
    case UploadState::prepared:
      return "prepared";
    case UploadState::committed:
      return "committed";
    case UploadState::not_committed:
      return "not_committed";
    case UploadState::unknown:
      return "unknown";
  }
  return "unknown";
}

Uploads::~Uploads() { close(); }

Result<UploadHandle> Uploads::add(std::unique_ptr<Window> window, const NeedleRef& needle,
                                  std::uint64_t connection) {
  MutexLock lock(mutex_);
  if (uploads_.size() >= kHandlesMax) return Error::make(Errc::exhausted, "prepared buffers");
  UploadHandle handle;
  secure_random(handle);
  Upload& upload = uploads_[handle];
  upload.needle = needle;
  upload.length = Length(window->bytes().size());
  upload.connection = connection;
  upload.expires = clock_.now() + kLife;
  upload.window = std::move(window);
  return handle;
}

// With the lock: closing a window waits for our own piece in progress only, never for a peer.
void Uploads::end(Upload& upload, CommitOutcome outcome) {
  upload.state = outcome.state;
  upload.outcome = std::move(outcome);
  upload.committing = false;
  upload.window.reset();
  upload.forget = clock_.now() + kRemember;
  ended_.notify_all();
}

CommitOutcome Uploads::run_commit(std::unique_ptr<Window> window, const NeedleRef& needle,
                                  Crc32c crc) {
  CommitOutcome outcome;
  // First the fence, then the comparison: what was compared is what is appended.
  const Status closed = window->close();
  if (!closed.ok()) {
    outcome.code = CommitCode::failed;
    outcome.write.status = closed;
    return outcome;
  }
  outcome.write = write_(needle, window->bytes(), crc);
  outcome.state = outcome.write.state;
  if (outcome.state != UploadState::committed) {
    const bool other_crc =
        !outcome.write.status.ok() && outcome.write.status.error().code == Errc::checksum;
    outcome.code = other_crc ? CommitCode::crc : CommitCode::failed;
  }
  return outcome;
}

CommitOutcome Uploads::commit(const UploadHandle& handle, const NeedleRef& needle, Length length,
                              Crc32c crc) {
  std::unique_ptr<Window> window;
  {
    MutexLock lock(mutex_);
    for (;;) {
      const auto found = uploads_.find(handle);
      if (found == uploads_.end()) return ended_as(CommitCode::unknown_handle);
      Upload& upload = found->second;
      if (upload.needle != needle || upload.length != length)
        return ended_as(CommitCode::bad_request);
      if (upload.committing) {
        ended_.wait(mutex_);
        continue;
      }
      if (upload.state != UploadState::prepared) return upload.outcome;
      if (clock_.now() >= upload.expires) {
        end(upload, ended_as(CommitCode::expired));
        return upload.outcome;
      }
      upload.committing = true;
      window = std::move(upload.window);
      break;
    }
  }
  CommitOutcome outcome = run_commit(std::move(window), needle, crc);
  MutexLock lock(mutex_);
  const auto found = uploads_.find(handle);
  ASSERT(found != uploads_.end() && found->second.committing);
  end(found->second, outcome);
  return outcome;
}

UploadState Uploads::abort(const UploadHandle& handle) {
  MutexLock lock(mutex_);
  for (;;) {
    const auto found = uploads_.find(handle);
    if (found == uploads_.end()) return UploadState::unknown;
    Upload& upload = found->second;
    if (upload.committing) {
      ended_.wait(mutex_);
      continue;
    }
    if (upload.state == UploadState::prepared) end(upload, ended_as(CommitCode::expired));
    return upload.state;
  }
}

UploadState Uploads::query(const UploadHandle& handle) {
  MutexLock lock(mutex_);
  for (;;) {
    const auto found = uploads_.find(handle);
    if (found == uploads_.end()) return UploadState::unknown;
    if (!found->second.committing) return found->second.state;
    ended_.wait(mutex_);
  }
}

void Uploads::forbid(const NeedleRef& needle) {
  MutexLock lock(mutex_);
  for (;;) {
    bool waits = false;
    for (auto& [handle, upload] : uploads_) {
      if (!(upload.needle == needle)) continue;
      if (upload.committing) {
        waits = true;
      } else if (upload.state == UploadState::prepared) {
        end(upload, ended_as(CommitCode::expired));
      }
    }
    if (!waits) return;
    ended_.wait(mutex_);
  }
}

void Uploads::connection_lost(std::uint64_t connection) {
  MutexLock lock(mutex_);
  const Instant soon = clock_.now() + kOrphanLife;
  for (auto& [handle, upload] : uploads_) {
    if (upload.connection == connection) upload.expires = std::min(upload.expires, soon);
  }
}

void Uploads::tick() {
  MutexLock lock(mutex_);
  const Instant now = clock_.now();
  for (auto at = uploads_.begin(); at != uploads_.end();) {
    Upload& upload = at->second;
    if (upload.state == UploadState::prepared) {
      if (!upload.committing && now >= upload.expires) end(upload, ended_as(CommitCode::expired));
      ++at;
    } else {
      at = now >= upload.forget ? uploads_.erase(at) : std::next(at);
    }
  }
}

void Uploads::close() {
  MutexLock lock(mutex_);
  for (;;) {
    bool waits = false;
    for (auto& [handle, upload] : uploads_) {
      if (upload.committing) {
        waits = true;
      } else if (upload.state == UploadState::prepared) {
        end(upload, ended_as(CommitCode::expired));
      }
    }
    if (!waits) return;
    ended_.wait(mutex_);
  }
}

std::size_t Uploads::live() const {
  MutexLock lock(mutex_);
  return static_cast<std::size_t>(
      std::count_if(uploads_.begin(), uploads_.end(),
                    [](const auto& item) { return item.second.state == UploadState::prepared; }));
}

}  // namespace farlift::s3::volume
