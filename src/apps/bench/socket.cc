#include "apps/bench/socket.h"

#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <system_error>

namespace farlift::apps {

namespace {

tl::unexpected<Failure> failed(const char* what, int error) {
  return fail(kExitFailed,
              std::string("bench: ") + what + ": " + std::generic_category().message(error));
}

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

void without_delay(int fd) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

Outcome<Socket> Socket::connect(std::uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in to = loopback(port);
  if (!fd || ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0)
    return failed("connect", errno);
  without_delay(fd.get());
  return Socket(std::move(fd));
}

Outcome<Socket> Socket::accept(const UniqueFd& listener) {
  UniqueFd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd) return failed("accept", errno);
  without_delay(fd.get());
  return Socket(std::move(fd));
}

Outcome<void> Socket::send_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failed("send", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return {};
}

Outcome<void> Socket::send_all(std::string_view text) {
  return send_all(std::as_bytes(std::span(text.data(), text.size())));
}

Outcome<std::size_t> Socket::receive_some(std::span<std::byte> bytes) {
  for (;;) {
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), 0);
    if (got > 0) return static_cast<std::size_t>(got);
    if (got == 0) return failed("receive", ECONNRESET);
    if (errno != EINTR) return failed("receive", errno);
  }
}

Outcome<void> Socket::receive_all(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    Outcome<std::size_t> got = receive_some(bytes);
    if (!got) return fail(got.error());
    bytes = bytes.subspan(*got);
  }
  return {};
}

Outcome<UniqueFd> listen_on_loopback(std::uint16_t* port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!fd || bind(fd.get(), generic, size) != 0 || listen(fd.get(), 64) != 0 ||
      getsockname(fd.get(), generic, &size) != 0) {
    return failed("listen", errno);
  }
  *port = ntohs(address.sin_port);
  return fd;
}

}  // namespace farlift::apps
