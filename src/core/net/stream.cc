#include "core/net/stream.h"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace farlift::net {

Stream::Stream(UniqueFd fd, std::shared_ptr<WakeSignal> own, std::shared_ptr<const WakeSignal> stop,
               const Clock& clock)
    : clock_(clock), fd_(std::move(fd)), own_(std::move(own)), stop_(std::move(stop)) {
  ASSERT(fd_ && own_ != nullptr);
}

void Stream::cut_off() noexcept {
  own_->raise();
  // The descriptor is open as long as the stream exists, so it cannot name somebody else's by now.
  // ENOTCONN is fine.
  ::shutdown(fd_.get(), SHUT_RDWR);
}

bool Stream::is_cut() const noexcept {
  return own_->raised() || (stop_ != nullptr && stop_->raised());
}

short Stream::poll_events(Interest interest) const noexcept {
  const auto bits = static_cast<unsigned>(interest);
  unsigned events = 0;
  if ((bits & static_cast<unsigned>(Interest::read)) != 0) events |= POLLIN;
  if ((bits & static_cast<unsigned>(Interest::write)) != 0) events |= POLLOUT;
  return static_cast<short>(events);
}

Result<Readiness> Stream::wait(Interest interest, Deadline deadline) {
  for (;;) {
    if (is_cut()) return Error::make(Errc::closed, "stream");
    if (pending() > 0 && interest != Interest::write)
      return Readiness{.readable = true, .writable = false};
    const short read_events = interest == Interest::write ? short{0} : poll_events(Interest::read);
    const short write_events = interest == Interest::read ? short{0} : poll_events(Interest::write);
    pollfd fds[3] = {{fd_.get(), static_cast<short>(read_events | write_events), 0},
                     {own_->fd(), POLLIN, 0},
                     {stop_ != nullptr ? stop_->fd() : -1, POLLIN, 0}};
    const int ready = ::poll(fds, 3, deadline.poll_ms(clock_));
    if (ready < 0 && errno != EINTR) return Error::from_errno("poll");
    if (is_cut()) return Error::make(Errc::closed, "stream");
    if (ready > 0 && fds[0].revents != 0) {
      // An error or hang-up is for the next read or write to find out and name.
      const bool failed = (fds[0].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
      return Readiness{.readable = interest != Interest::write &&
                                   (failed || (fds[0].revents & read_events) != 0),
                       .writable = interest != Interest::read &&
                                   (failed || (fds[0].revents & write_events) != 0)};
    }
    if (deadline.expired(clock_)) return Error::make(Errc::timeout, "stream");
  }
}

Result<std::size_t> Stream::read_some(std::span<std::byte> into, Deadline deadline) {
  const iovec area{into.data(), into.size()};
  for (;;) {
    Result<std::size_t> got = try_read({&area, 1});
    if (got.ok() || got.code() != Errc::again) return got;
    TRY(wait(Interest::read, deadline));
  }
}

Status Stream::write_all(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const iovec area{const_cast<std::byte*>(bytes.data()), bytes.size()};
    Result<std::size_t> put = try_write({&area, 1});
    if (put.ok()) {
      bytes = bytes.subspan(*put);
      continue;
    }
    if (put.code() != Errc::again) return put.error();
    TRY(wait(Interest::write, deadline));
  }
  return {};
}

}  // namespace farlift::net
