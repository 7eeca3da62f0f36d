// OfiInitiator, third part: the links to peers, and which of them to read.
#include "core/fabric/ofi/initiator.h"

#include <algorithm>
#include <sys/epoll.h>

namespace farlift::fabric::ofi {
namespace {

constexpr int kLinksPerWait = 64;
constexpr int kRecheckMs = 20;  // a link whose readiness was missed waits no longer

}  // namespace

Result<std::unique_ptr<Link>> OfiInitiator::open_link(std::uint32_t index) {
  const Peer& peer = *peers_[index];
  std::unique_ptr<Link> link;
  if (domain_.domain_per_peer()) {
    TRY_ASSIGN(link, domain_.open_link(peer.address, slots_.size() + kQueueMargin));
  } else {
    TRY_ASSIGN(const UniqueInfo info, domain_.endpoint_info(TargetOptions{}));
    link = std::make_unique<Link>();
    link->fi_addr = peer.fi_addr;
    TRY_ASSIGN(link->endpoint, domain_.open_endpoint(info.get(), queue_.get()));
  }
  TRY(close_door(link->endpoint.get()));
  if (!domain_.domain_per_peer()) return link;
  if (link->queue.progress_fd < 0) {
    links_polled_ = true;
    return link;
  }
  epoll_event interest{};
  interest.events = EPOLLIN;
  interest.data.u64 = index;
  if (::epoll_ctl(links_ready_.get(), EPOLL_CTL_ADD, link->queue.progress_fd, &interest) != 0) {
    return Error::from_errno("epoll");
  }
  return link;
}

Result<fid_ep*> OfiInitiator::endpoint_of(std::uint32_t index) {
  if (!domain_.endpoint_per_peer()) return base_endpoint_.get();
  Peer& peer = *peers_[index];
  if (peer.link == nullptr) {
    TRY_ASSIGN(peer.link, open_link(index));
  }
  return peer.link->endpoint.get();
}

// Closing the endpoint is the fence for everything posted on it. What its queue still says is taken
// before that goes, too. Where the endpoint does not close, the rest must stay.
int OfiInitiator::close_link(Peer& peer) {
  if (peer.link == nullptr) return 0;
  const std::unique_ptr<Link> link = std::move(peer.link);
  fid_cq* const queue = link->queue.queue != nullptr ? link->queue.queue.get() : queue_.get();
  const Peer* const of = link->queue.queue != nullptr ? &peer : nullptr;
  drain_queue(queue, of);
  // The descriptor may live on in a child of this process, and would stay in the set.
  if (link->queue.progress_fd >= 0) {
    (void)::epoll_ctl(links_ready_.get(), EPOLL_CTL_DEL, link->queue.progress_fd, nullptr);
  }
  const int rc = close_fid(&link->endpoint.release()->fid);
  drain_queue(queue, of);
  if (rc != 0) {
    (void)link->queue.queue.release();
    (void)link->address_vector.release();
    (void)link->domain.release();
  }
  return rc;
}

// Waits for links that libfabric can make progress on, and lets it. A link that stays ready comes
// again with the next call. Returns how many there were.
std::size_t OfiInitiator::drain_ready_links(int timeout_ms) {
  epoll_event events[kLinksPerWait];
  const int n = ::epoll_wait(links_ready_.get(), events, kLinksPerWait, timeout_ms);
  std::size_t links = 0;
  for (const epoll_event& event :
       std::span(events).first(static_cast<std::size_t>(std::max(n, 0)))) {
    if (event.data.u64 == kWakeMark) {
      take_wake();
      continue;
    }
    ++links;
    const Peer* const peer = peers_[event.data.u64].get();
    if (peer != nullptr && peer->link != nullptr) drain_queue(peer->link->queue.queue.get(), peer);
  }
  return links;
}

void OfiInitiator::drain_all_links() {
  for (const auto& peer : peers_) {
    if (peer != nullptr && peer->link != nullptr)
      drain_queue(peer->link->queue.queue.get(), peer.get());
  }
}

void OfiInitiator::rest_on_links(int timeout_ms) {
  const bool capped = posted_ > 0 && timeout_ms > kRecheckMs;
  if (drain_ready_links(capped ? kRecheckMs : timeout_ms) == 0 && capped) drain_all_links();
}

}  // namespace farlift::fabric::ofi
