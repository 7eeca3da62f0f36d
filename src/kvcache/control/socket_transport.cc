#include "kvcache/control/socket_transport.h"

#include "kvcache/control/name_resolver.h"
#include "kvcache/control/socket_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

namespace farlift::kv {
namespace {

constexpr std::uint64_t kResolverId = 0;
constexpr std::uint64_t kTimerId = 1;
constexpr std::uint64_t kFirstId = 2;
constexpr std::size_t kEventsMax = 128;  // of one step
constexpr int kAcceptsMax = 64;          // of one step and listener
constexpr std::size_t kScratchBytes = std::size_t{64} << 10;

class SocketListener final : public LinkListener {
 public:
  SocketListener(std::shared_ptr<SocketWorld> world, std::shared_ptr<std::uint64_t> next_id,
                 UniqueFd fd, std::uint16_t port)
      : world_(std::move(world)),
        next_id_(std::move(next_id)),
        fd_(std::move(fd)),
        spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
        port_(port) {}

  std::unique_ptr<Link> accept() override;
  std::uint16_t port() const noexcept override { return port_; }

 private:
  const std::shared_ptr<SocketWorld> world_;
  const std::shared_ptr<std::uint64_t> next_id_;
  const UniqueFd fd_;
  UniqueFd spare_;  // given up for a moment to refuse a connection when descriptors run out
  const std::uint16_t port_;
};

std::unique_ptr<Link> SocketListener::accept() {
  for (int i = 0; world_->open && i < kAcceptsMax; ++i) {
    SocketAddress peer;
    peer.length = sizeof peer.storage;
    UniqueFd fd(::accept4(fd_.get(), peer.raw(), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      ++world_->counters.accepted;
      const std::uint64_t id = (*next_id_)++;
      auto link = std::make_unique<SocketLink>(world_, id, peer.text());
      if (world_->options.server_tls != nullptr)
        link->limit_until(world_->clock.now() + world_->options.connect_timeout);
      link->adopt(std::move(fd));
      world_->hot.insert(id);  // what came before it was watched
      return link;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EMFILE && errno != ENFILE) return nullptr;
    // Left in the backlog it would make us spin; told no, the peer tries another node.
    spare_.reset();
    UniqueFd unwanted(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (unwanted) ++world_->counters.refused;
    const bool more = static_cast<bool>(unwanted);
    unwanted.reset();
    spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!more) return nullptr;
  }
  return nullptr;
}

class SocketTransportImpl final : public SocketTransport {
 public:
  SocketTransportImpl(std::shared_ptr<SocketWorld> world, std::unique_ptr<NameResolver> resolver,
                      UniqueFd timer)
      : world_(std::move(world)), resolver_(std::move(resolver)), timer_(std::move(timer)) {}
  ~SocketTransportImpl() override;

  Result<std::unique_ptr<Link>> connect(const std::string& host, std::uint16_t port) override;
  Result<std::unique_ptr<LinkListener>> listen(const std::string& ip, std::uint16_t port) override;
  bool step() override;
  int wait_fd() const noexcept override { return world_->poller.get(); }
  Counters counters() const override { return world_->counters; }
  void hold() override { world_->held = true; }
  void flush() override;

  Status start();

 private:
  bool take_answers();
  bool expire();
  bool pump_hot();
  void arm_timer();

  const std::shared_ptr<SocketWorld> world_;
  const std::unique_ptr<NameResolver> resolver_;
  const UniqueFd timer_;
  Instant armed_ = Instant::max();
  const std::shared_ptr<std::uint64_t> next_id_ = std::make_shared<std::uint64_t>(kFirstId);
};

Status SocketTransportImpl::start() {
  for (const auto& [fd, id] :
       {std::pair(resolver_->fd(), kResolverId), std::pair(timer_.get(), kTimerId)}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(world_->poller.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return Error::from_errno("epoll_ctl");
  }
  return {};
}

SocketTransportImpl::~SocketTransportImpl() {
  world_->open = false;
  const auto links = world_->links;
  for (const auto& [id, link] : links) link->fail(Error::make(Errc::connection_lost, "transport"));
}

Result<std::unique_ptr<Link>> SocketTransportImpl::connect(const std::string& host,
                                                           std::uint16_t port) {
  const std::uint64_t id = (*next_id_)++;
  auto link = std::make_unique<SocketLink>(world_, id, host + ":" + std::to_string(port));
  link->set_host(host);
  link->limit_until(world_->clock.now() + world_->options.connect_timeout);
  ++world_->counters.connected;
  if (const auto address = numeric_address(host, port)) {
    link->start_connecting({*address});
  } else {
    TRY(resolver_->ask(id, host, port));
  }
  arm_timer();
  return std::unique_ptr<Link>(std::move(link));
}

Result<std::unique_ptr<LinkListener>> SocketTransportImpl::listen(const std::string& ip,
                                                                  std::uint16_t port) {
  auto address = numeric_address(ip, port);
  if (!address) return Error::make(Errc::invalid_argument, "listen address");
  UniqueFd fd(::socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::from_errno("socket");
  const int on = 1;
  // A chosen port may still have connections of our predecessor in TIME_WAIT.
  if (port != 0) ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), address->raw(), address->length) != 0 ||
      ::listen(fd.get(), world_->options.backlog) != 0) {
    if (errno == EADDRINUSE) return Error::make(Errc::already_exists, "listen", errno);
    return Error::from_errno("listen");
  }
  if (::getsockname(fd.get(), address->raw(), &address->length) != 0)
    return Error::from_errno("getsockname");
  const std::uint16_t bound =
      address->family() == AF_INET6
          ? ntohs(reinterpret_cast<const sockaddr_in6*>(&address->storage)->sin6_port)
          : ntohs(reinterpret_cast<const sockaddr_in*>(&address->storage)->sin_port);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;  // whoever accepts nobody any more is told of nobody
  event.data.u64 = (*next_id_)++;
  if (::epoll_ctl(world_->poller.get(), EPOLL_CTL_ADD, fd.get(), &event) != 0)
    return Error::from_errno("epoll_ctl");
  return std::unique_ptr<LinkListener>(
      std::make_unique<SocketListener>(world_, next_id_, std::move(fd), bound));
}

bool SocketTransportImpl::step() {
  bool news = pump_hot();
  std::array<epoll_event, kEventsMax> events;
  const int count = ::epoll_wait(world_->poller.get(), events.data(), kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    const std::uint64_t id = event.data.u64;
    if (id == kResolverId) {
      news = take_answers() || news;
      continue;
    }
    if (id == kTimerId) {  // expire() looks at the clock
      std::uint64_t times = 0;
      static_cast<void>(::read(timer_.get(), &times, sizeof times));
      armed_ = Instant{};
      continue;
    }
    const auto link = world_->links.find(id);
    if (link == world_->links.end()) {
      news = true;  // a listener: accept() has somebody
      continue;
    }
    const bool readable = (event.events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    const bool writable = (event.events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0;
    news = link->second->on_ready(readable, writable) || news;
  }
  news = expire() || news;
  arm_timer();
  // More is left: the caller must not wait for the descriptor.
  return news || !world_->hot.empty() || count == static_cast<int>(kEventsMax);
}

bool SocketTransportImpl::pump_hot() {
  bool news = false;
  const std::set<std::uint64_t> hot = std::exchange(world_->hot, {});
  for (const std::uint64_t id : hot) {
    const auto link = world_->links.find(id);
    if (link != world_->links.end()) news = link->second->pump() || news;
  }
  return news;
}

void SocketTransportImpl::flush() {
  world_->held = false;
  for (const std::uint64_t id : std::exchange(world_->unsent, {})) {
    const auto link = world_->links.find(id);
    if (link != world_->links.end()) link->second->flush();
  }
}

bool SocketTransportImpl::take_answers() {
  bool news = false;
  for (NameResolver::Answer& answer : resolver_->take()) {
    const auto link = world_->links.find(answer.id);
    if (link == world_->links.end()) continue;
    link->second->start_connecting(std::move(answer.addresses));
    news = link->second->lost() || news;
  }
  return news;
}

bool SocketTransportImpl::expire() {
  bool news = false;
  while (!world_->deadlines.empty() && world_->deadlines.begin()->first <= world_->clock.now()) {
    const std::uint64_t id = world_->deadlines.begin()->second;
    world_->deadlines.erase(world_->deadlines.begin());
    const auto link = world_->links.find(id);
    if (link == world_->links.end()) continue;
    link->second->fail(Error::make(Errc::connection_lost, "link not up in time"));
    news = true;
  }
  return news;
}

// So that wait_fd() becomes readable when a link has had its time.
void SocketTransportImpl::arm_timer() {
  const Instant next =
      world_->deadlines.empty() ? Instant::max() : world_->deadlines.begin()->first;
  if (next == armed_) return;
  armed_ = next;
  itimerspec spec{};
  if (next != Instant::max()) {
    const auto left = std::max<std::int64_t>((next - world_->clock.now()).count(), 1'000'000);
    spec.it_value.tv_sec = left / 1'000'000'000;
    spec.it_value.tv_nsec = left % 1'000'000'000;
  }
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

}  // namespace

Result<std::unique_ptr<SocketTransport>> SocketTransport::open(const Clock& clock,
                                                               SocketTransportOptions options) {
  auto world = std::make_shared<SocketWorld>(clock, std::move(options));
  world->poller = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!world->poller) return Error::from_errno("epoll_create1");
  world->scratch.resize(kScratchBytes);
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return Error::from_errno("timerfd_create");
  TRY_ASSIGN(auto resolver, NameResolver::open());
  auto transport = std::make_unique<SocketTransportImpl>(std::move(world), std::move(resolver),
                                                         std::move(timer));
  TRY(transport->start());
  return std::unique_ptr<SocketTransport>(std::move(transport));
}

}  // namespace farlift::kv
