#include "core/fabric/ofi/fault.h"

#include <rdma/fi_errno.h>

#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

namespace farlift::fabric::ofi {
namespace {

// ibv_wc_status values that rxm passes on as provider errors.
Errc verbs_code(int status, int err) noexcept {
  switch (status) {
    case 5:
      return Errc::flushed;  // WR_FLUSH_ERR
    case 9:                  // REM_INV_REQ_ERR
    case 10:
      return Errc::access;  // REM_ACCESS_ERR
    case 11:                // REM_OP_ERR
    case 12:                // RETRY_EXC_ERR
    case 13:
      return Errc::connection_lost;  // RNR_RETRY_EXC_ERR
    default:
      return err == FI_ECANCELED ? Errc::flushed : Errc::io;
  }
}

// Completion status of an EFA work request (efa_io_defs: 1 flushed, 7 remote bad address, 8 remote
// abort, 9 no such queue pair, 10 receiver not ready, 13 unresponsive).
Errc efa_code(int status, int err) noexcept {
  switch (status) {
    case 1:
      return Errc::flushed;
    case 7:
    case 8:
      return Errc::access;
    case 9:
    case 10:
    case 13:
      return Errc::connection_lost;
    default:
      return err == FI_ECANCELED ? Errc::flushed : Errc::io;
  }
}

}  // namespace

Error completion_error(Provider provider, int err, int provider_errno) noexcept {
  switch (provider) {
    case Provider::tcp:
      break;
    case Provider::verbs:
      return Error::make(verbs_code(provider_errno, err), "fabric operation", err);
    case Provider::efa:
      return Error::make(efa_code(provider_errno, err), "fabric operation", err);
  }
  switch (err) {
    case FI_ENOMEM:
      return Error::make(Errc::no_memory, "fabric operation", err);
    default:
      return Error::make(Errc::again, "fabric operation", err);
  }
}

ListenerProbe::ListenerProbe(const Address& address, Instant deadline) noexcept
    : deadline_(deadline) {
  sockaddr_storage storage{};
  std::memcpy(&storage, address.bytes().data(), address.size());
  socket_ = UniqueFd(::socket(storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket_) {
    answer_ = Answer::lost;
    return;
  }
  const auto length = static_cast<socklen_t>(address.size());
  if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&storage), length) == 0) {
    answer_ = Answer::listening;
  } else if (errno != EINPROGRESS) {
    answer_ = Answer::lost;
  }
}

ListenerProbe::Answer ListenerProbe::ask(Instant now) noexcept {
  if (answer_ != Answer::pending) return answer_;
  pollfd fd{socket_.get(), POLLOUT, 0};
  if (::poll(&fd, 1, 0) > 0) {
    int error = 0;
    socklen_t length = sizeof error;
    const int rc = ::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    answer_ = rc == 0 && error == 0 ? Answer::listening : Answer::lost;
  } else if (now >= deadline_) {
    answer_ = Answer::lost;
  }
  if (answer_ != Answer::pending) socket_.reset();
  return answer_;
}

}  // namespace farlift::fabric::ofi
