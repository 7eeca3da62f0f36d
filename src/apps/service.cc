#include "apps/service.h"

#include "apps/files.h"
#include "core/codec/text.h"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace farlift::apps {

Outcome<HostPort> parse_host_port(const std::string& text, const std::string& flag) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0)
    return fail(kExitUsage, flag + ": '" + text + "' is not HOST:PORT");
  HostPort out;
  out.host = text.substr(0, colon);
  const bool bracketed = out.host.front() == '[' && out.host.back() == ']';
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  if (!bracketed && out.host.find(':') != std::string::npos)
    return fail(kExitUsage, flag + ": an IPv6 address stands in brackets: [::1]:8080");
  const Result<std::uint32_t> port = codec::parse_u32(text.substr(colon + 1));
  if (!port.ok() || *port > 65535)
    return fail(kExitUsage, flag + ": '" + text.substr(colon + 1) + "' is no port (0 to 65535)");
  out.port = static_cast<std::uint16_t>(*port);
  return out;
}

std::string format_host_port(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

ServiceSignals::ServiceSignals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&wanted, s);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  fd_ = UniqueFd(signalfd(-1, &wanted, SFD_CLOEXEC));
}

void ServiceSignals::wait(const std::function<void()>& reload) const {
  for (;;) {
    signalfd_siginfo info{};
    const ssize_t got = ::read(fd_.get(), &info, sizeof info);
    if (got < 0 && errno == EINTR) continue;
    if (got != static_cast<ssize_t>(sizeof info) || info.ssi_signo != SIGHUP) return;
    reload();
  }
}

Outcome<void> tell_ready(const std::string& ready_file, const std::string& text) {
  if (ready_file.empty()) return {};
  // By rename: who waits for the file never reads half of it.
  Outcome<void> written = write_file(ready_file + ".new", text + "\n");
  if (!written) return written;
  if (::rename((ready_file + ".new").c_str(), ready_file.c_str()) != 0)
    return fail(kExitFailed, "cannot write " + ready_file);
  return {};
}

}  // namespace farlift::apps
