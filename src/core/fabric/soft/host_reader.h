// HostReader: one-sided reads out of processes of this host, piece by piece; a helper thread shares
// the large ones.
//
// Each piece proves itself: the registry entry before, the data, and the entry after are copied by
// one process_vm_readv, in this order; equal and open entries mean that the data was read under an
// open registration (docs/decisions/0001).
//
// Invariants: after cancel() nobody copies for the cancelled jobs; a job is done once, when no
//             piece of it is in progress. Threads: one owner; the helper is started with the first
//             large job. `on_done` is called by the
//             helper, without locks. Errors: access: the registration closed or changed; io: a page
//             could not be read;
//             connection_lost: the process is gone.
#pragma once

#include "core/base/mutex.h"
#include "core/fabric/soft/host_process.h"
#include "core/fabric/soft/registry.h"

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace farlift::fabric::soft {

// A process that proved to be the target of a link, and where its table of registrations is.
struct HostTarget {
  HostProcess process;
  std::uint64_t registry_addr = 0;
  std::uint32_t registry_slots = 0;

  std::uint64_t entry_addr(RKey key) const noexcept {
    return registry_addr +
           std::uint64_t{Registry::slot_of(key, registry_slots)} * sizeof(EntryImage);
  }
  Result<EntryImage> entry_of(RKey key) const;  // access: no such open registration
};

class HostReader {
 public:
  static constexpr std::uint64_t kPieceBytesMax = 1u << 20;  // one process_vm_readv
  // The same where the piece is hashed right after: it should still be in the core's own cache.
  static constexpr std::uint64_t kHashedPieceBytesMax = 256u << 10;
  static constexpr std::uint64_t kParallelBytesMin =
      4u << 20;  // below it the helper costs more than it brings

  struct Job {
    const void* group = nullptr;  // for cancel()
    std::uint64_t id = 0;
    std::shared_ptr<const HostTarget> target;
    EntryImage entry;
    bool entry_cached = false;  // `entry` was known from an earlier operation
    std::uint64_t from = 0;     // in the target's address space
    std::span<std::byte> to;
    bool want_crc = false;
    Status status;  // when done
    std::optional<Crc32c> crc;

   private:
    friend class HostReader;
    std::uint64_t piece_bytes() const noexcept {
      return want_crc ? kHashedPieceBytesMax : kPieceBytesMax;
    }
    std::vector<Crc32c> crcs_;  // a piece
    std::uint64_t next_ = 0;
    std::uint32_t pieces_ = 0;
  };

  explicit HostReader(std::function<void()> on_done) : on_done_(std::move(on_done)) {}
  ~HostReader();

  void add(std::unique_ptr<Job> job);
  // Copies one piece; how many bytes it was, 0 when there is none to hand out.
  std::uint64_t step();
  std::vector<std::unique_ptr<Job>> take_done();
  void cancel(const void* group);  // waits for the helper's piece in progress, never for a peer
  bool pending() const;            // step() or take_done() has something

 private:
  static Status copy(const Job& job, std::uint64_t at, std::uint64_t length);
  struct Piece {
    Job* job = nullptr;
    std::uint64_t at = 0;
    std::uint64_t length = 0;
    Crc32c crc;
  };
  static Status take(Piece& piece);     // copies, and hashes where that is wanted
  Piece next_piece() REQUIRES(mutex_);  // without a job: there is none
  bool end_piece(const Piece& piece, const Status& status) REQUIRES(mutex_);
  void help();

  const std::function<void()> on_done_;
  mutable Mutex mutex_;
  CondVar work_;
  CondVar piece_ended_;
  std::deque<std::unique_ptr<Job>> jobs_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Job>> done_ GUARDED_BY(mutex_);
  std::uint64_t waiting_bytes_ GUARDED_BY(mutex_) = 0;  // not handed out
  bool stop_ GUARDED_BY(mutex_) = false;
  std::thread helper_;
};

}  // namespace farlift::fabric::soft
