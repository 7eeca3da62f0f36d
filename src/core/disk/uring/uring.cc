#include "core/disk/uring/uring.h"

#include "core/base/mutex.h"
#include "core/disk/posix.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <liburing.h>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace farlift::disk::uring {
namespace {

// One ring. Invariant: nothing is in flight between two calls.
class Ring {
 public:
  static Result<std::unique_ptr<Ring>> make() {
    auto ring = std::unique_ptr<Ring>(new Ring());
    const int rc = ::io_uring_queue_init(kPiecesInFlight, &ring->ring_, 0);
    if (rc < 0) return Error::make(Errc::unsupported, "io_uring", -rc);
    ring->open_ = true;
    return ring;
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  ~Ring() {
    if (open_) ::io_uring_queue_exit(&ring_);
  }

  // As File::read_at. `healthy` is false when the ring must not be used again.
  Result<std::size_t> read(int fd, std::span<std::byte> into, Offset offset, bool* healthy);

 private:
  Ring() = default;
  struct Piece {
    std::size_t from = 0;
    std::size_t length = 0;
    std::size_t got = 0;
    int failed = 0;
  };
  unsigned start(int fd, std::span<std::byte> into, Offset offset, std::span<Piece> pieces);
  bool finish(std::span<Piece> pieces, unsigned count);

  io_uring ring_{};
  bool open_ = false;
};

unsigned Ring::start(int fd, std::span<std::byte> into, Offset offset, std::span<Piece> pieces) {
  unsigned queued = 0;
  for (Piece& piece : pieces) {
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);
    if (entry == nullptr) break;
    ::io_uring_prep_read(entry, fd, into.data() + piece.from, static_cast<unsigned>(piece.length),
                         offset.raw() + piece.from);
    entry->user_data = reinterpret_cast<std::uint64_t>(&piece);
    ++queued;
  }
  return queued;
}

// False: the ring did not give everything back, and the kernel may still write to the buffers.
bool Ring::finish(std::span<Piece> pieces, unsigned count) {
  unsigned submitted = 0;
  while (submitted < count) {
    const int rc = ::io_uring_submit(&ring_);
    if (rc == -EINTR || rc == -EAGAIN || rc == -EBUSY) continue;
    if (rc <= 0) break;
    submitted += static_cast<unsigned>(rc);
  }
  for (unsigned left = submitted; left > 0;) {
    io_uring_cqe* done = nullptr;
    const int rc = ::io_uring_wait_cqe(&ring_, &done);
    if (rc == -EINTR) continue;
    if (rc < 0) return false;
    auto* piece = reinterpret_cast<Piece*>(done->user_data);
    if (done->res < 0) {
      piece->failed = -done->res;
    } else {
      piece->got = static_cast<std::size_t>(done->res);
    }
    ::io_uring_cqe_seen(&ring_, done);
    --left;
  }
  for (Piece& piece : pieces.subspan(submitted)) piece.failed = EAGAIN;
  return submitted == count;
}

Result<std::size_t> Ring::read(int fd, std::span<std::byte> into, Offset offset, bool* healthy) {
  std::size_t total = 0;
  *healthy = true;
  for (std::size_t from = 0; from < into.size();) {
    std::array<Piece, kPiecesInFlight> pieces;
    unsigned count = 0;
    for (; count < kPiecesInFlight && from < into.size(); ++count) {
      pieces[count].from = from;
      pieces[count].length = std::min(kPieceBytes, into.size() - from);
      from += pieces[count].length;
    }
    const std::span<Piece> all(pieces.data(), count);
    const unsigned queued = start(fd, into, offset, all);
    if (!finish(all.first(queued), queued)) {
      // Closing the ring waits for, or cancels, what the kernel still has.
      ::io_uring_queue_exit(&ring_);
      open_ = false;
      *healthy = false;
      return Error::make(Errc::again, "io_uring");
    }
    for (const Piece& piece : all.first(queued)) {
      if (piece.failed != 0 || piece.got < piece.length)
        return Error::make(Errc::again, "io_uring read", piece.failed);
      total += piece.got;
    }
    if (queued < count) return Error::make(Errc::again, "io_uring queue");
  }
  return total;
}

// Rings that nobody uses at the moment.
class RingPool {
 public:
  std::unique_ptr<Ring> borrow() {
    {
      MutexLock lock(mutex_);
      if (!idle_.empty()) {
        auto ring = std::move(idle_.back());
        idle_.pop_back();
        return ring;
      }
      if (made_ >= kRingsMax) return nullptr;
      ++made_;
    }
    auto ring = Ring::make();
    if (ring.ok()) return std::move(ring).value();
    lost();
    return nullptr;
  }
  void give_back(std::unique_ptr<Ring> ring) {
    MutexLock lock(mutex_);
    idle_.push_back(std::move(ring));
  }
  void lost() {
    MutexLock lock(mutex_);
    --made_;
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Ring>> idle_ GUARDED_BY(mutex_);
  std::size_t made_ GUARDED_BY(mutex_) = 0;
};

class UringFile final : public PosixFile {
 public:
  UringFile(UniqueFd fd, std::shared_ptr<RingPool> rings)
      : PosixFile(std::move(fd)), rings_(std::move(rings)) {}

  Result<std::size_t> read_at(std::span<std::byte> into, Offset offset) override {
    if (into.size() >= kLongRead) {
      if (auto ring = rings_->borrow()) {
        bool healthy = true;
        const auto got = ring->read(fd(), into, offset, &healthy);
        if (healthy) {
          rings_->give_back(std::move(ring));
        } else {
          ring.reset();
          rings_->lost();
        }
        if (got.ok()) return got;
      }
    }
    // Also what a ring could not do in full: the end of the file, an error and its number.
    return PosixFile::read_at(into, offset);
  }

 private:
  const std::shared_ptr<RingPool> rings_;
};

class UringDirectory final : public PosixDirectory {
 public:
  explicit UringDirectory(UniqueFd fd) : PosixDirectory(std::move(fd), {"uring", {}}) {}
  Result<std::unique_ptr<File>> open(const std::string& name, OpenMode mode) override {
    TRY_ASSIGN(UniqueFd fd, open_fd(name, mode));
    return std::unique_ptr<File>(std::make_unique<UringFile>(std::move(fd), rings_));
  }

 private:
  const std::shared_ptr<RingPool> rings_ = std::make_shared<RingPool>();
};

}  // namespace

Status probe() {
  TRY_ASSIGN(const auto ring, Ring::make());
  UniqueFd fd(::memfd_create("farlift-probe", MFD_CLOEXEC));
  if (!fd) return Error::from_errno("probe io_uring");
  constexpr std::string_view kText = "read through a ring";
  if (::write(fd.get(), kText.data(), kText.size()) != static_cast<ssize_t>(kText.size()))
    return Error::from_errno("probe io_uring");
  std::array<char, kText.size()> back{};
  bool healthy = true;
  TRY(ring->read(fd.get(), std::as_writable_bytes(std::span(back)), Offset(0), &healthy));
  if (std::string_view(back.data(), back.size()) != kText)
    return Error::make(Errc::unsupported, "io_uring gives other bytes");
  return {};
}

std::unique_ptr<Directory> make_directory(UniqueFd fd) {
  return std::make_unique<UringDirectory>(std::move(fd));
}

}  // namespace farlift::disk::uring
