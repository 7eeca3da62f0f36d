#include "core/base/prng.h"
#include "core/fabric/soft/initiator.h"
#include "core/fabric/soft/link_end.h"

#include <algorithm>
#include <cerrno>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace farlift::fabric::soft {
namespace {

// The end of a connection that proves that the target's socket is gone. A network that merely
// stopped answering does not: what the target had received by then may still land.
bool proves_end(int error) noexcept { return error == 0 || error == ECONNRESET || error == EPIPE; }

}  // namespace

// The link with the fewest bytes to send; more links are opened only for operations that are worth
// one.
Result<SoftInitiator::Link*> SoftInitiator::link_for(InitiatorPeer& peer, std::uint64_t bytes) {
  const std::uint32_t streams =
      std::clamp(options_.streams_per_peer, std::uint32_t{1}, kStreamsPerPeerMax);
  const auto least = std::min_element(
      peer.links.begin(), peer.links.end(),
      [](const Link* a, const Link* b) { return a->queued_bytes < b->queued_bytes; });
  if (least == peer.links.end()) return connect(peer);
  const bool host = (*least)->state == Link::State::up && (*least)->host != nullptr;
  if (peer.links.size() < streams && (*least)->queued_bytes > 0 && bytes >= kPullBytesMin && !host)
    return connect(peer);
  return *least;
}

Result<SoftInitiator::Link*> SoftInitiator::connect(InitiatorPeer& peer) {
  auto link = std::make_unique<Link>();
  link->id = next_link_++;
  link->peer = &peer;
  link->fd =
      UniqueFd(::socket(peer.socket.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!link->fd) return Error::from_errno("soft link socket");
  const int on = 1;
  ::setsockopt(link->fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  link->deadline = domain_.clock().now() + options_.connect_deadline;
  if (::connect(link->fd.get(), peer.socket.get(), peer.socket.size()) != 0 &&
      errno != EINPROGRESS) {
    domain_.counters().connect_failures.add();
    return Error::make(Errc::unreachable, "soft connect", errno);
  }
  epoll_event event{};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.u64 = link->id;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, link->fd.get(), &event) != 0)
    return Error::from_errno("epoll_ctl");
  Link* raw = link.get();
  peer.links.push_back(raw);
  links_.emplace(raw->id, std::move(link));
  arm_timer();
  return raw;
}

void SoftInitiator::on_event(Link& link, std::uint32_t events) {
  if ((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) link.hung_up = true;
  if (link.state == Link::State::connecting) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(link.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fail(link, Error::make(Errc::unreachable, "soft connect", error));
    if ((events & EPOLLOUT) == 0) return;
    on_connected(link);
  }
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    const std::uint64_t id = link.id;
    receive(link);
    if (!links_.contains(id)) return;
  }
  if ((events & EPOLLOUT) != 0) send(link);
}

void SoftInitiator::on_connected(Link& link) {
  link.state = Link::State::greeting;
  secure_random(link.challenge);
  Hello hello;
  hello.host_lane = domain_.host_lane_possible();
  hello.pid = static_cast<std::uint32_t>(::getpid());
  hello.boot_id = domain_.boot();
  hello.challenge = link.challenge;
  hello.registry_slots = hello.host_lane ? kAnnouncesSources : 0;
  hello.cell_addr = reinterpret_cast<std::uint64_t>(link.cell.data());
  hello.socket_fd = static_cast<std::uint32_t>(link.fd.get());
  link.control.resize(kHelloBytes);
  encode(hello, std::span<std::byte, kHelloBytes>(link.control.data(), kHelloBytes));
}

// The target's hello is complete in the buffer.
void SoftInitiator::on_hello(Link& link) {
  const auto hello = decode_hello({link.buffer.data(), kHelloBytes});
  if (!hello.ok())
    return fail(link, Error::make(Errc::unsupported, "the peer does not speak soft"));
  if (hello->status == HelloStatus::full)
    return fail(link, Error::make(Errc::exhausted, "the target has no room for a link"));
  if (domain_.same_host(hello->boot_id)) tune_local_socket(link.fd.get());
  if (!hello->host_lane) return on_up(link);
  link.takes_sources = hello->takes_sources;
  prove_host(link, *hello);
  Request ready;
  ready.kind = RequestKind::host_ready;
  ready.length = Length(link.host != nullptr ? 1 : 0);
  link.control.resize(kRequestBytes);
  encode(ready, std::span<std::byte, kRequestBytes>(link.control.data(), kRequestBytes));
  link.state = Link::State::proving;
  send(link);
}

void SoftInitiator::on_up(Link& link) {
  link.state = Link::State::up;
  domain_.counters().links_connected.add();
  if (link.host != nullptr && link.can_pull) domain_.counters().host_links.add();
  arm_timer();
  std::deque<std::uint32_t> waiting;
  waiting.swap(link.queue);
  link.queued_bytes = 0;
  for (const std::uint32_t index : waiting) route(link, index);
  send(link);
}

// The connection is over: every operation on it ends with `why`.
void SoftInitiator::fail(Link& link, Error why) {
  const bool was_up = link.state == Link::State::up || link.state == Link::State::leaving;
  if (link.state == Link::State::up) domain_.counters().links_lost.add();
  if (!was_up) domain_.counters().connect_failures.add();
  const bool leaving = link.state == Link::State::leaving;
  reader_.cancel(&link);
  for (Slot& slot : slots_) {
    if (slot.id == 0 || slot.link != &link) continue;
    Error error = why;
    if (leaving) error.code = Errc::aborted;
    // What was never begun touched nothing, and a read stops touching local memory with this very
    // call.
    if (!slot.begun || slot.operation.kind == OpKind::read) error.quiet = true;
    finish(slot, error);
  }
  drop(link);
}

// No new byte goes out; what the target has of us it may still land, until it ends the link.
void SoftInitiator::leave(Link& link) {
  reader_.cancel(&link);
  for (Slot& slot : slots_) {
    if (slot.id == 0 || slot.link != &link) continue;
    if (!slot.begun || slot.operation.kind == OpKind::read)
      finish(slot, Error::make(Errc::aborted, "soft abort"));
  }
  link.queue.clear();
  link.control.clear();
  if (link.peer != nullptr) std::erase(link.peer->links, &link);
  link.peer = nullptr;
  const bool owed = std::any_of(slots_.begin(), slots_.end(),
                                [&](const Slot& s) { return s.id != 0 && s.link == &link; });
  if (!owed || ::shutdown(link.fd.get(), SHUT_WR) != 0) {
    if (owed) return fail(link, Error::make(Errc::aborted, "soft abort"));
    return drop(link);
  }
  link.state = Link::State::leaving;
  // Never a time limit (quiet rule): a stopped target may go on when it is resumed. Only close()
  // gives up.
  link.deadline = closed_ ? domain_.clock().now() + kLeaveLimit : Instant::max();
  arm_timer();
}

void SoftInitiator::drop(Link& link) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.fd.get(), nullptr);
  ::shutdown(link.fd.get(), SHUT_RDWR);
  link.fd.reset();
  if (link.peer != nullptr) std::erase(link.peer->links, &link);
  const auto found = links_.find(link.id);
  ASSERT(found != links_.end());
  dropped_.push_back(std::move(found->second));
  links_.erase(found);
  arm_timer();
}

void SoftInitiator::abort_links(InitiatorPeer& peer) {
  const std::vector<Link*> links = peer.links;
  for (Link* link : links) leave(*link);
  if (!ready_.empty()) ring();
}

void SoftInitiator::receive_eof(Link& link, int error) {
  link_end_seen();
  switch (link.state) {
    case Link::State::connecting:
      return fail(link, Error::make(Errc::unreachable, "soft connect", error));
    case Link::State::greeting:
      return fail(link, Error::make(Errc::unsupported,
                                    "the peer ended the link without a soft hello", error));
    case Link::State::proving:
    case Link::State::up:
    case Link::State::leaving:
      break;
  }
  Error why = Error::make(Errc::connection_lost, "soft link", error);
  why.quiet = proves_end(error);
  fail(link, why);
}

}  // namespace farlift::fabric::soft
