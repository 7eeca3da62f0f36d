// Uploads: the prepared receive buffers and what became of them (spec s3 6).
//
//   prepared → committing → committed | not_committed | unknown        abort, expiry, loss of the
//        └────────────────→ not_committed                              connection, deletion of the
//        fid
//
// Invariants
//   - A buffer is appended only while its handle is live, at most once, and only after its window
//     closed: nothing can land in it while or after its bytes are compared.
//   - A handle that ended is remembered for kRemember; a repeated commit then answers as before.
//   - forbid(key): no handle for that needle that was prepared before will be appended after it
//     returned. So a deletion is not undone by a commit that was on its way.
//
// Threads: any. tick() must be called now and then.
// Errors:  of commit: see CommitOutcome::code.
#pragma once

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "s3/volume/mover.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace farlift::s3::volume {

enum class UploadState : std::uint8_t { prepared, committed, not_committed, unknown };
std::string_view to_string(UploadState state) noexcept;

// A needle of a volume, as the control port and the HTTP port name it.
struct NeedleRef {
  VolumeId volume;
  NeedleKey key;
  friend bool operator==(const NeedleRef&, const NeedleRef&) = default;
};

using UploadHandle = std::array<std::byte, 16>;

// How appending ended, by whoever does it.
struct WriteOutcome {
  UploadState state = UploadState::not_committed;
  Status status;  // when not committed
  Length length;
  Crc32c crc;
  bool was_there = false;  // the same bytes had been committed before
};

enum class CommitCode : std::uint8_t {
  ok,
  unknown_handle,
  expired,      // or aborted, or forbidden
  bad_request,  // another fid or length than was prepared
  crc,
  failed,  // see `write`
};
struct CommitOutcome {
  CommitCode code = CommitCode::ok;
  UploadState state = UploadState::not_committed;
  WriteOutcome write;
};

class Uploads {
 public:
  static constexpr Duration kLife = std::chrono::seconds(35);
  static constexpr Duration kOrphanLife = std::chrono::seconds(5);
  static constexpr Duration kRemember = std::chrono::seconds(120);
  static constexpr std::size_t kHandlesMax = 65536;  // remembered ones included

  // Appends and replicates; called with no lock held.
  using Write =
      std::function<WriteOutcome(const NeedleRef&, std::span<const std::byte>, Crc32c expected)>;
  Uploads(const Clock& clock, Write write) : clock_(clock), write_(std::move(write)) {}
  ~Uploads();  // close()

  // `connection` is whose loss shortens its life. exhausted: kHandlesMax.
  Result<UploadHandle> add(std::unique_ptr<Window> window, const NeedleRef& needle,
                           std::uint64_t connection);
  CommitOutcome commit(const UploadHandle& handle, const NeedleRef& needle, Length length,
                       Crc32c crc);
  UploadState abort(const UploadHandle& handle);
  // Waits for the end of a commit in progress: "prepared" would be taken for "nothing happened".
  UploadState query(const UploadHandle& handle);
  void forbid(const NeedleRef& needle);
  void connection_lost(std::uint64_t connection);
  void tick();
  // Ends what is prepared and waits for commits in progress.
  void close();

  std::size_t live() const;

 private:
  struct Upload {
    NeedleRef needle;
    Length length;
    std::uint64_t connection = 0;
    Instant expires;
    Instant forget;  // once ended
    UploadState state = UploadState::prepared;
    bool committing = false;
    CommitOutcome outcome;           // once ended
    std::unique_ptr<Window> window;  // while prepared
  };
  using Map = std::map<UploadHandle, Upload>;
  void end(Upload& upload, CommitOutcome outcome) REQUIRES(mutex_);
  CommitOutcome run_commit(std::unique_ptr<Window> window, const NeedleRef& needle, Crc32c crc);

  const Clock& clock_;
  const Write write_;
  mutable Mutex mutex_;
  CondVar ended_;
  Map uploads_ GUARDED_BY(mutex_);
};

}  // namespace farlift::s3::volume
