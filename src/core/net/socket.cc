#include "core/net/socket.h"

#include "core/net/tls.h"

#include <climits>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <vector>

namespace farlift::net {
namespace {

constexpr std::size_t kAddressesMax = 16;  // of one name; more are not tried
constexpr int kKeepaliveIntervalS = 10;
constexpr int kKeepaliveProbes = 3;

struct Address {
  int family = 0;
  socklen_t length = 0;
  sockaddr_storage storage{};
};

// A reset in any of its forms is the same event to a caller: the peer is gone.
Error stream_error(const char* where) noexcept {
  switch (errno) {
    case EAGAIN:
      return Error::make(Errc::again, where);
    case ECONNABORTED:
    case ENOTCONN:
    case ETIMEDOUT:
      return Error::make(Errc::connection_lost, where, errno);
    default:
      return Error::from_errno(where);
  }
}

bool try_numeric(const std::string& host, std::uint16_t port, addrinfo*& list) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  return ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list) == 0;
}

Result<std::vector<Address>> resolve(const std::string& host, std::uint16_t port,
                                     std::string* reason) {
  addrinfo* list = nullptr;
  if (!try_numeric(host, port, list)) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
    const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (rc != 0) {
      if (reason != nullptr) *reason = "cannot resolve '" + host + "': " + ::gai_strerror(rc);
      return Error::make(Errc::unreachable, "resolve host", rc == EAI_SYSTEM ? errno : 0);
    }
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<Address> addresses;
  for (const addrinfo* a = list; a != nullptr && addresses.size() < kAddressesMax; a = a->ai_next) {
    if (a->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Address& address = addresses.emplace_back();
    address.family = a->ai_family;
    address.length = a->ai_addrlen;
    std::memcpy(&address.storage, a->ai_addr, a->ai_addrlen);
  }
  if (addresses.empty()) return Error::make(Errc::unreachable, "resolve host");
  return addresses;
}

Result<Address> unix_address(const std::string& path) {
  Address address;
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  if (path.size() >= sizeof un.sun_path)
    return Error::make(Errc::invalid_argument, "unix socket path too long");
  std::memcpy(un.sun_path, path.data(), path.size());
  address.family = AF_UNIX;
  address.length = sizeof un;
  std::memcpy(&address.storage, &un, sizeof un);
  return address;
}

void tune(int fd, std::uint32_t keepalive_s) noexcept {
  // None of these is worth failing a connection for.
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (keepalive_s == 0) return;
  const int idle = static_cast<int>(std::min<std::uint32_t>(keepalive_s, 32767));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &kKeepaliveIntervalS, sizeof kKeepaliveIntervalS);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &kKeepaliveProbes, sizeof kKeepaliveProbes);
}

Status await_connected(int fd, const WakeSignal* stop, const Clock& clock, Deadline deadline) {
  for (;;) {
    if (stop != nullptr && stop->raised()) return Error::make(Errc::closed, "connect");
    pollfd fds[2] = {{fd, POLLOUT, 0}, {stop != nullptr ? stop->fd() : -1, POLLIN, 0}};
    const int ready = ::poll(fds, 2, deadline.poll_ms(clock));
    if (ready < 0 && errno != EINTR) return Error::from_errno("poll");
    if (ready > 0 && fds[0].revents != 0) break;
    if (deadline.expired(clock)) return Error::make(Errc::timeout, "connect");
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0)
    return Error::from_errno("connect");
  if (error != 0) return Error::make(Errc::unreachable, "connect", error);
  return {};
}

Result<UniqueFd> connect_address(const Address& address, const StreamOptions& options,
                                 const Clock& clock, Deadline deadline) {
  UniqueFd fd(::socket(address.family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::from_errno("socket");
  if (address.family != AF_UNIX) tune(fd.get(), options.keepalive_s);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0)
    return fd;
  // EAGAIN is a Unix listener whose backlog is full: nothing to wait on, so it is a refusal.
  if (errno != EINPROGRESS && errno != EINTR)
    return Error::make(Errc::unreachable, "connect", errno);
  TRY(await_connected(fd.get(), options.stop.get(), clock, deadline));
  return fd;
}

}  // namespace

void explain(std::string* reason, const std::string& what, const Error& why) {
  if (reason != nullptr) *reason = what + ": " + why.describe();
}

Result<std::size_t> PlainStream::try_read(std::span<const iovec> into) {
  if (is_cut()) return Error::make(Errc::closed, "stream");
  const int count = static_cast<int>(std::min<std::size_t>(into.size(), IOV_MAX));
  ssize_t got = 0;
  do {
    got = ::readv(fd(), into.data(), count);
  } while (got < 0 && errno == EINTR);
  if (got > 0) return static_cast<std::size_t>(got);
  if (is_cut()) return Error::make(Errc::closed, "stream");
  if (got == 0) return Error::make(Errc::connection_lost, "peer ended the stream");
  return stream_error("read");
}

Result<std::size_t> PlainStream::try_write(std::span<const iovec> from) {
  if (is_cut()) return Error::make(Errc::closed, "stream");
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(from.data());
  message.msg_iovlen = std::min<std::size_t>(from.size(), IOV_MAX);
  ssize_t put = 0;
  do {
    put = ::sendmsg(fd(), &message, MSG_NOSIGNAL);
  } while (put < 0 && errno == EINTR);
  if (put >= 0) return static_cast<std::size_t>(put);
  if (is_cut()) return Error::make(Errc::closed, "stream");
  return stream_error("write");
}

Result<UniqueFd> connect_socket(const StreamOptions& options, const Clock& clock, Deadline deadline,
                                std::string* reason) {
  std::vector<Address> addresses;
  std::string target;
  if (!options.unix_path.empty()) {
    target = options.unix_path;
    Result<Address> address = unix_address(options.unix_path);
    if (!address.ok()) {
      explain(reason, "cannot connect to " + target, address.error());
      return address.error();
    }
    addresses.push_back(*address);
  } else {
    target = options.host + " port " + std::to_string(options.port);
    TRY_ASSIGN(addresses, resolve(options.host, options.port, reason));
  }
  Error last = Error::make(Errc::unreachable, "connect");
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const auto shares = static_cast<std::int64_t>(addresses.size() - i);
    const Deadline own =
        deadline.is_never() ? deadline : Deadline::after(clock, deadline.left(clock) / shares);
    Result<UniqueFd> fd = connect_address(addresses[i], options, clock, own);
    if (fd.ok()) return fd;
    last = fd.error();
    if (last.code == Errc::closed || deadline.expired(clock)) break;
  }
  explain(reason, "cannot connect to " + target, last);
  return last;
}

Result<std::unique_ptr<Stream>> connect_stream(const StreamOptions& options, const Clock& clock,
                                               Deadline deadline, std::string* reason) {
  if (options.stop != nullptr && options.stop->raised())
    return Error::make(Errc::closed, "connect");
  TRY_ASSIGN(UniqueFd fd, connect_socket(options, clock, deadline, reason));
  if (options.tls != nullptr) {
    const std::string name = options.unix_path.empty() ? options.host : std::string();
    return options.tls->connect(std::move(fd), name, options.stop, clock, deadline, reason);
  }
  return adopt_stream(std::move(fd), clock, options.stop);
}

Result<std::unique_ptr<Stream>> adopt_stream(UniqueFd fd, const Clock& clock,
                                             std::shared_ptr<const WakeSignal> stop) {
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return Error::from_errno("fcntl");
  TRY_ASSIGN(auto own, WakeSignal::make());
  return std::unique_ptr<Stream>(
      std::make_unique<PlainStream>(std::move(fd), std::move(own), std::move(stop), clock));
}

}  // namespace farlift::net
