#include "core/fabric/ofi/target.h"

#include "core/fabric/ofi/listener_guard.h"

#include <algorithm>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace farlift::fabric::ofi {
namespace {

constexpr int kEmptyRoundsMin = 4;
constexpr int kEmptyRoundsMax = 5000;  // the listener's backlog is 4096
constexpr std::size_t kEventsPerRead = 64;
// Between looks at the caller's descriptor when the caller makes progress itself.
constexpr int kSliceMs = 2;
constexpr int kLongSliceMs = 100;  // where the descriptor ends the slice

}  // namespace

Result<std::unique_ptr<OfiTarget>> OfiTarget::make(OfiDomain& domain, TargetProgress& progress,
                                                   UniqueFid<fid_ep> endpoint,
                                                   const Address& address, bool own_thread) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return Error::from_errno("eventfd");
  return std::unique_ptr<OfiTarget>(
      new OfiTarget(domain, progress, std::move(endpoint), address, std::move(event), own_thread));
}

OfiTarget::~OfiTarget() { close().ignore(); }  // close_fid() logged and counted it

int OfiTarget::wait_readable(int timeout_ms, int fd) const {
  pollfd fds[2] = {{closed_event_.get(), POLLIN, 0},
                   {fd, POLLIN, 0}};  // poll() skips a negative descriptor
  const int n = ::poll(fds, 2, timeout_ms);
  if (closed_.load()) return -1;
  return n > 0 && fds[1].revents != 0 ? 1 : 0;
}

Result<bool> OfiTarget::progress(int timeout_ms, int fd) {
  const Instant start = domain_.clock().now();
  for (;;) {
    const auto spent =
        std::chrono::duration_cast<std::chrono::milliseconds>(domain_.clock().now() - start)
            .count();
    const int left = timeout_ms < 0 ? -1 : static_cast<int>(std::max<long>(0, timeout_ms - spent));
    const int readable = wait_readable(own_thread_ ? left : 0, fd);
    if (readable < 0) return Error::make(Errc::closed, "target endpoint");
    if (readable > 0) return true;
    if (left == 0) {
      if (!own_thread_) progress_.turn(0);
      return false;
    }
    if (own_thread_) continue;
    const int slice = progress_.wakes_early() ? kLongSliceMs : kSliceMs;
    progress_.turn(left < 0 ? slice : std::min(left, slice), closed_event_.get(), fd);
  }
}

Status OfiTarget::add_peer(const Address& peer) {
  TRY_ASSIGN(const OfiDomain::Admitted admitted, domain_.admit(peer));
  MutexLock lock(mutex_);
  if (endpoint_ == nullptr) {
    domain_.release(admitted.address);
    return Error::make(Errc::closed, "target endpoint");
  }
  peers_.push_back(admitted.address);
  return {};
}

// Lets the provider finish with every connection that has not introduced itself, see
// listener_guard.h. The rounds are bounded: nothing new gets in, and nobody is waited for.
void OfiTarget::empty_listener() {
  refuse_connections(address_);
  std::size_t known = 0;
  for (int round = 0; round < kEmptyRoundsMax; ++round) {
    const Accepted found = hang_up(address_);
    if (found.connections == 0 && !found.backlog) return;
    // One read serves a batch of events; a few more see to it that the last ones had their turn.
    for (std::size_t i = 0; i <= found.connections / kEventsPerRead; ++i) progress_.read_now();
    if (!found.backlog && found.connections <= known && round >= kEmptyRoundsMin) return;
    known = found.connections;
  }
}

Status OfiTarget::close() {
  MutexLock lock(mutex_);
  if (endpoint_ == nullptr) return close_status_;
  closed_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t n = ::write(closed_event_.get(), &one, sizeof one);
  int rc = 0;
  progress_.exclusive([&]() REQUIRES(mutex_) {
    if (domain_.provider() == Provider::tcp) empty_listener();
    rc = close_fid(&endpoint_.release()->fid);
  });
  for (const Address& peer : peers_) domain_.release(peer);
  peers_.clear();
  if (rc != 0) close_status_ = Error::not_quiet(Errc::io, "close endpoint", -rc);
  return close_status_;
}

}  // namespace farlift::fabric::ofi
