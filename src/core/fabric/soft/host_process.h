// HostProcess: another process of this host whose memory we may read with process_vm_readv.
//
// Invariants: the process is held by a pidfd, which is looked at after each copy, so a recycled pid
//             is never believed.
// Threads:    read() and alive() from any thread. Errors: unsupported: the kernel does not allow
//             it; connection_lost: the process is gone; io: a page could not be read.
#pragma once

#include "core/base/result.h"
#include "core/base/unique_fd.h"
#include "core/fabric/soft/soft_wire.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <sys/uio.h>

namespace farlift::fabric::soft {

class HostProcess {
 public:
  HostProcess() = default;
  static Result<HostProcess> open(std::uint32_t pid);
  explicit operator bool() const noexcept { return static_cast<bool>(pidfd_); }

  // Copies all of `remote` to `local` (equal totals), in order.
  Status read(std::span<const iovec> local, std::span<const iovec> remote) const;
  Status read(void* local, std::uint64_t remote, std::size_t length) const;
  bool alive() const noexcept;
  std::uint32_t pid() const noexcept { return pid_; }

  // Proof that the process at the other end of the connected socket `fd` is this one: it holds, as
  // its descriptor `peer_fd`, the very socket that `fd` is connected to. Without it a peer could
  // name a foreign process.
  bool holds_other_end(int fd, std::uint32_t peer_fd) const noexcept;

  // A duplicate of its descriptor `peer_fd`, if that is the memfd with this file number.
  UniqueFd memfd(int peer_fd, std::uint64_t inode) const noexcept;

 private:
  template <class Right>
  UniqueFd duplicate(int peer_fd, std::string_view prefix, Right right) const noexcept;

  UniqueFd pidfd_;
  std::uint32_t pid_ = 0;
};

// On one host the socket's queue is no pipe to fill but memory to copy through: a queue that grows
// to megabytes pushes its own pages out of the cache, and halves the throughput or worse (measured,
// docs/formats/soft.md). Both ends of a link within a host keep theirs short.
// Nor is there a path whose congestion is to be found out: where the system's algorithm paces what
// it sends (bbr), each transfer would wait for timers, so both ends ask for reno, which every
// kernel has and never paces.
inline constexpr int kLocalSendQueueBytes = 192 << 10;
void tune_local_socket(int fd) noexcept;

// The kernel's boot id, zero when it cannot be read (then no host lane).
Token16 boot_id() noexcept;

}  // namespace farlift::fabric::soft
