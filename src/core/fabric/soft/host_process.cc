#include "core/fabric/soft/host_process.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace farlift::fabric::soft {
namespace {

constexpr int kForeignFilesKeptMax = 16;

// The address family and both names of a socket, in one comparable piece.
struct Names {
  sockaddr_storage local{};
  sockaddr_storage remote{};
};

bool names_of(int fd, Names& out) noexcept {
  socklen_t size = sizeof out.local;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&out.local), &size) != 0) return false;
  size = sizeof out.remote;
  return ::getpeername(fd, reinterpret_cast<sockaddr*>(&out.remote), &size) == 0;
}

bool same(const sockaddr_storage& a, const sockaddr_storage& b) noexcept {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

}  // namespace

Result<HostProcess> HostProcess::open(std::uint32_t pid) {
  if (pid == 0 || pid > 0x7fffffff) return Error::make(Errc::unsupported, "pid");
  HostProcess out;
  out.pid_ = pid;
  out.pidfd_ = UniqueFd(
      static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0)));  // close-on-exec
  if (!out.pidfd_) return Error::make(Errc::unsupported, "pidfd_open", errno);
  return out;
}

bool HostProcess::alive() const noexcept {
  pollfd p{pidfd_.get(), POLLIN, 0};
  return ::poll(&p, 1, 0) == 0;
}

Status HostProcess::read(std::span<const iovec> local, std::span<const iovec> remote) const {
  std::size_t total = 0;
  for (const iovec& v : remote) total += v.iov_len;
  const ssize_t n = ::process_vm_readv(static_cast<pid_t>(pid_), local.data(), local.size(),
                                       remote.data(), remote.size(), 0);
  const int error = errno;
  if (!alive()) return Error::make(Errc::connection_lost, "host process is gone");
  if (n < 0 && (error == EPERM || error == ENOSYS))
    return Error::make(Errc::unsupported, "process_vm_readv", error);
  if (n < 0 && error == ESRCH)
    return Error::make(Errc::connection_lost, "host process is gone", error);
  if (n < 0) return Error::make(Errc::io, "process_vm_readv", error);
  if (static_cast<std::size_t>(n) != total)
    return Error::make(Errc::io, "process_vm_readv stopped short", EFAULT);
  return {};
}

Status HostProcess::read(void* local, std::uint64_t remote, std::size_t length) const {
  const iovec l{local, length};
  const iovec r{reinterpret_cast<void*>(remote),
                length};  // NOLINT(performance-no-int-to-ptr): an address of theirs
  return read({&l, 1}, {&r, 1});
}

// A duplicate of the peer's descriptor, if it is what `prefix` says and `right` finds it to be.
// Nothing else is duplicated on purpose. A stranger's file swapped in between the two looks is kept
// open for ever, since closing it could block in its file system; so many times at most.
template <class Right>
UniqueFd HostProcess::duplicate(int peer_fd, std::string_view prefix, Right right) const noexcept {
  static std::atomic<int> kept{0};
  if (kept.load() >= kForeignFilesKeptMax) return {};
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%u/fd/%d", pid_, peer_fd);
  char target[64];
  const ssize_t n = ::readlink(path, target, sizeof target);
  if (n < static_cast<ssize_t>(prefix.size()) ||
      std::string_view(target, prefix.size()) != prefix) {
    return {};
  }
  UniqueFd theirs(static_cast<int>(::syscall(SYS_pidfd_getfd, pidfd_.get(), peer_fd, 0)));
  if (theirs && !right(theirs.get())) {
    static_cast<void>(theirs.release());
    ++kept;
  }
  return theirs;
}

bool HostProcess::holds_other_end(int fd, std::uint32_t peer_fd) const noexcept {
  const UniqueFd theirs = duplicate(static_cast<int>(peer_fd), "socket:[", [](int file) {
    int type = 0;
    socklen_t size = sizeof type;
    return ::getsockopt(file, SOL_SOCKET, SO_TYPE, &type, &size) == 0;
  });
  Names mine;
  Names other;
  return theirs && names_of(fd, mine) && names_of(theirs.get(), other) &&
         same(mine.local, other.remote) && same(mine.remote, other.local);
}

UniqueFd HostProcess::memfd(int peer_fd, std::uint64_t inode) const noexcept {
  UniqueFd theirs =
      duplicate(peer_fd, "/memfd:", [](int file) { return ::fcntl(file, F_GET_SEALS) >= 0; });
  struct stat file {};
  if (theirs && (::fstat(theirs.get(), &file) != 0 || file.st_ino != inode)) theirs.reset();
  return theirs;
}

void tune_local_socket(int fd) noexcept {
  // Only speed depends on it.
  constexpr char kUnpaced[] = "reno";
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced, sizeof kUnpaced - 1);
  (void)::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kLocalSendQueueBytes, sizeof kLocalSendQueueBytes);
}

Token16 boot_id() noexcept {
  Token16 out{};
  const UniqueFd fd(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[37] = {};
  if (!fd || ::read(fd.get(), text, 36) != 36) return out;
  std::size_t nibble = 0;
  for (const char c : text) {
    int v = -1;
    if (c >= '0' && c <= '9') v = c - '0';
    if (c >= 'a' && c <= 'f') v = c - 'a' + 10;
    if (v < 0 || nibble >= 32) continue;
    out[nibble / 2] |= static_cast<std::byte>(nibble % 2 == 0 ? v << 4 : v);
    ++nibble;
  }
  return nibble == 32 ? out : Token16{};
}

}  // namespace farlift::fabric::soft
