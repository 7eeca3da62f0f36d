#include "core/fabric/soft/target.h"

#include "core/fabric/soft/link_end.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace farlift::fabric::soft {
namespace {

constexpr std::uint64_t kListenerId = 1;
constexpr std::uint64_t kClosedId = 2;
constexpr std::uint64_t kHelloTimerId = 3;
constexpr int kBacklog = 512;
constexpr int kEventsAtOnce = 4;
constexpr std::chrono::milliseconds kTimerStep(1);  // the soonest a timer is set to fire

Status watch_fd(int epoll, int fd, std::uint64_t id, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return Error::from_errno("epoll_ctl");
  return {};
}

}  // namespace

Result<std::unique_ptr<SoftTarget>> SoftTarget::open(SoftDomain& domain,
                                                     const TargetOptions& options) {
  std::unique_ptr<SoftTarget> target(new SoftTarget(domain, options));
  TRY(target->start(options));
  return target;
}

Status SoftTarget::start(const TargetOptions& options) {
  const std::string ip =
      options.listen_ip.empty() ? domain_.options().listen_ip : options.listen_ip;
  TRY_ASSIGN(const SocketAddress listen, SocketAddress::parse(ip, options.port));
  if (!listen.check_target(false).ok())
    return Error::make(Errc::invalid_argument, "listen address cannot be connected to");
  listener_ = UniqueFd(::socket(listen.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  hello_timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  closed_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  helper_event_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
  {
    MutexLock lock(close_mutex_);
    spare_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  }
  if (!listener_ || !epoll_ || !hello_timer_ || !closed_event_ || !helper_event_)
    return Error::from_errno("soft target descriptors");
  const int on = 1;
  if (options.port != 0) ::setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener_.get(), listen.get(), listen.size()) != 0)
    return Error::from_errno("soft target bind");
  if (::listen(listener_.get(), kBacklog) != 0) return Error::from_errno("soft target listen");
  TRY_ASSIGN(const SocketAddress bound, SocketAddress::of_socket(listener_.get()));
  address_ = bound.encode();
  TRY(watch_fd(epoll_.get(), listener_.get(), kListenerId, EPOLLIN));
  TRY(watch_fd(epoll_.get(), hello_timer_.get(), kHelloTimerId, EPOLLIN));
  TRY(watch_fd(epoll_.get(), closed_event_.get(), kClosedId, EPOLLIN));
  if (options.own_thread) {
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "soft-target");
      while (run(-1, -1, true).ok()) {
      }
    });
  }
  return {};
}

SoftTarget::~SoftTarget() { close().ignore(); }

Status SoftTarget::add_peer(const Address& peer) {
  // Nothing is kept: any initiator that speaks the protocol and holds a key is served.
  TRY(domain_.peer_address(peer, false));
  return {};
}

Status SoftTarget::close() {
  closed_.store(true);
  const std::uint64_t one = 1;
  if (::write(closed_event_.get(), &one, sizeof one) < 0) ASSERT(errno == EAGAIN);
  {
    MutexLock lock(inside_mutex_);
    while (inside_ > 0) left_.wait(inside_mutex_);
  }
  MutexLock close_lock(close_mutex_);
  // A fork may have copied the descriptors: shutdown() acts on the sockets, however many hold them.
  if (listener_) ::shutdown(listener_.get(), SHUT_RDWR);
  std::unordered_map<std::uint64_t, LinkRef> links;
  {
    MutexLock lock(links_mutex_);
    links.swap(links_);
  }
  {
    MutexLock lock(jobs_mutex_);
    jobs_.clear();
  }
  link_end_given();
  for (auto& [id, link] : links) ::shutdown(link->fd.get(), SHUT_RDWR);
  listener_.reset();
  if (thread_.joinable()) thread_.join();
  return {};
}

// One thread at a time leads: it alone sleeps on the epoll set, so that one warm thread serves a
// stream of events. The others follow: they sleep until there is a copy to share or the lead to
// take. Waking one costs as much as copying half a megabyte, hence the lead changes hands only when
// its holder leaves or is busy for long.
Result<bool> SoftTarget::progress(int timeout_ms, int fd) { return run(timeout_ms, fd, false); }

Result<bool> SoftTarget::run(int timeout_ms, int fd, bool stay) {
  {
    MutexLock lock(inside_mutex_);
    if (closed_.load()) return Error::make(Errc::closed, "soft target");
    ++inside_;
  }
  bool fd_ready = false;
  if (pull_piece(nullptr) == 0) {
    bool leading = try_lead();
    if (!leading) {
      followers_.fetch_add(1);
      leading = try_lead();  // it may have been given up before we were counted
      if (!leading) fd_ready = follow(timeout_ms, fd);
      followers_.fetch_sub(1);
    }
    if (leading) {
      fd_ready = lead(timeout_ms, fd, stay, leading);
      if (leading) led_.store(false);
    }
  }
  // Whoever leaves sees to it that somebody leads: the token it was woken by is spent.
  if (!led_.load()) wake_follower();
  {
    MutexLock lock(inside_mutex_);
    if (--inside_ == 0) left_.notify_all();
  }
  if (closed_.load()) return Error::make(Errc::closed, "soft target");
  return fd_ready;
}

bool SoftTarget::try_lead() noexcept {
  bool free = false;
  return led_.compare_exchange_strong(free, true);
}

void SoftTarget::give_up_lead() noexcept {
  led_.store(false);
  wake_follower();
}

void SoftTarget::wake_follower() noexcept {
  if (followers_.load() == 0) return;
  const std::uint64_t one = 1;
  if (::write(helper_event_.get(), &one, sizeof one) < 0)
    return;  // full of tokens: enough are awake
}

// Sleeps until a token, `fd`, or the end; true when `fd` is readable.
bool SoftTarget::follow(int timeout_ms, int fd) {
  pollfd polls[3] = {
      {helper_event_.get(), POLLIN, 0}, {closed_event_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
  if (::poll(polls, fd >= 0 ? 3 : 2, timeout_ms) <= 0) return false;
  std::uint64_t token = 0;
  if (polls[0].revents != 0 && ::read(helper_event_.get(), &token, sizeof token) == sizeof token) {
    while (!closed_.load(std::memory_order_relaxed) && pull_piece(nullptr) > 0) {
    }
  }
  return fd >= 0 && polls[2].revents != 0;
}

// Waits for events and runs them. With an `fd` it goes on until that is readable or the time is
// over, since its caller waits for nothing else; without one it returns after some work, or stays.
// `leading` tells whether the lead is still ours.
bool SoftTarget::lead(int timeout_ms, int fd, bool stay, bool& leading) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    int left_ms = timeout_ms;
    if (timeout_ms > 0) {
      const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - begin);
      left_ms = std::max(0, timeout_ms - static_cast<int>(spent.count()));
    }
    pollfd polls[2] = {{epoll_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
    const nfds_t count = fd >= 0 ? 2 : 1;
    int ready = 0;
    const bool may_spin = left_ms != 0 && WaitingThread::may_poll();
    if (const Duration budget = may_spin ? spin_.budget() : Duration(0); budget.count() > 0) {
      const auto until = std::chrono::steady_clock::now() + budget;
      while ((ready = ::poll(polls, count, 0)) == 0 && std::chrono::steady_clock::now() < until &&
             WaitingThread::may_poll()) {
        AdaptiveSpin::breathe();
      }
      if (ready != 0 || WaitingThread::may_poll()) spin_.count(ready != 0);
    }
    if (fd < 0) {
      run_events(left_ms, leading);
      if (!stay || !leading || closed_.load(std::memory_order_relaxed)) return false;
      continue;
    }
    if (ready == 0) ready = ::poll(polls, count, left_ms);
    if (polls[1].revents != 0) return true;
    if (ready <= 0 || !run_events(0, leading) || !leading) return false;
    if (closed_.load(std::memory_order_relaxed) || timeout_ms == 0) return false;
  }
}

bool SoftTarget::run_events(int timeout_ms, bool& leading) {
  epoll_event events[kEventsAtOnce];
  const int n = ::epoll_wait(epoll_.get(), events, kEventsAtOnce, timeout_ms);
  for (int i = 0; i < n && !closed_.load(std::memory_order_relaxed); ++i) {
    const std::uint64_t id = events[i].data.u64;
    if (id == kListenerId) {
      accept_links();
    } else if (id == kHelloTimerId) {
      end_silent_links();
    } else if (id != kClosedId) {
      LinkRef link;
      {
        MutexLock lock(links_mutex_);
        const auto found = links_.find(id);
        if (found != links_.end()) link = found->second;
      }
      if (link) serve(link, leading);
    }
  }
  return n > 0;
}

void SoftTarget::accept_links() {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) {
      if (errno == EMFILE || errno == ENFILE) refuse_without_descriptor();
      return;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    LinkRef link;
    {
      MutexLock lock(links_mutex_);
      const std::size_t links = links_.size();
      if (links >= connections_max_) domain_.counters().links_refused.add();
      if (links >= std::size_t{connections_max_} + kRefusingLinksMax) continue;
      const auto hello_by = std::chrono::steady_clock::now() + hello_deadline_;
      link = std::make_shared<TargetLink>(next_link_++, std::move(fd), links >= connections_max_,
                                          hello_by);
      links_.emplace(link->id, link);
      if (!hello_timer_armed_) arm_hello_timer(hello_by);
    }
    domain_.counters().links_accepted.add();
    if (!watch_fd(epoll_.get(), link->fd.get(), link->id, EPOLLIN | EPOLLONESHOT).ok()) {
      MutexLock lock(links_mutex_);
      links_.erase(link->id);
    }
  }
}

void SoftTarget::arm_hello_timer(TargetLink::Time at) {
  const auto left =
      std::max<std::chrono::nanoseconds>(at - std::chrono::steady_clock::now(), kTimerStep);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  itimerspec when{};
  when.it_value.tv_sec = seconds.count();
  when.it_value.tv_nsec = (left - seconds).count();
  hello_timer_armed_ = ::timerfd_settime(hello_timer_.get(), 0, &when, nullptr) == 0;
}

// Strangers that connect and say nothing, or not enough, give their place back.
void SoftTarget::end_silent_links() {
  std::uint64_t fired = 0;
  if (::read(hello_timer_.get(), &fired, sizeof fired) < 0) return;
  const auto now = std::chrono::steady_clock::now();
  auto next = TargetLink::Time::max();
  MutexLock lock(links_mutex_);
  std::erase_if(links_, [&](const auto& entry) {
    TargetLink& link = *entry.second;
    auto awaited = TargetLink::Greeting::awaited;
    if (link.hello_by > now) {
      if (link.greeting.load() == awaited) next = std::min(next, link.hello_by);
      return false;
    }
    if (!link.greeting.compare_exchange_strong(awaited, TargetLink::Greeting::expired))
      return false;
    domain_.counters().links_silent.add();
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link.fd.get(), nullptr);
    ::shutdown(link.fd.get(), SHUT_RDWR);
    return true;
  });
  hello_timer_armed_ = false;
  if (next != TargetLink::Time::max()) arm_hello_timer(next);
}

// Out of descriptors: without this the listener would stay readable and wake us for ever.
void SoftTarget::refuse_without_descriptor() {
  MutexLock lock(close_mutex_);
  spare_.reset();
  UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)).reset();
  spare_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  domain_.counters().links_refused.add();
}

void SoftTarget::arm(TargetLink& link) {
  epoll_event event{};
  event.events = EPOLLONESHOT | EPOLLIN | (link.want_out ? EPOLLOUT : 0u);
  // A link whose replies the peer does not read is not read either, until they are gone.
  if (link.want_out && link.out.size() - link.out_sent >= kOutBytesMax)
    event.events = EPOLLONESHOT | EPOLLOUT;
  if (link.want_out && link.reads.size() >= kReadsPerLinkMax)
    event.events = EPOLLONESHOT | EPOLLOUT;
  event.data.u64 = link.id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, link.fd.get(), &event);
}

void SoftTarget::serve(const LinkRef& link, bool& leading) {
  {
    MutexLock lock(link->mutex);
    if (link->ended) return;
    if (link->claimed) {
      link->pending = true;
      return;
    }
    link->claimed = true;
  }
  for (;;) {
    if (!serve_claimed(link, leading)) {
      end_link(link);
      return;
    }
    MutexLock lock(link->mutex);
    if (!link->pending) {
      link->claimed = false;
      if (!closed_.load(std::memory_order_relaxed)) arm(*link);
      return;
    }
    link->pending = false;
  }
}

// Receives and copies until there is nothing to do; false when the link is over.
bool SoftTarget::serve_claimed(const LinkRef& link, bool& leading) {
  std::uint64_t moved = 0;
  while (!closed_.load(std::memory_order_relaxed) && moved < kServeBytesMax) {
    if (leading && moved >= kLeadBytesMax && followers_.load(std::memory_order_relaxed) > 0) {
      leading = false;  // other links shall not wait for this one
      give_up_lead();
    }
    moved += kRequestBytes;  // small or refused requests end a turn, too
    const Step step = receive(link, moved);
    if (step == Step::ended) return false;
    if (step == Step::more) continue;
    flush(*link);
    const std::uint64_t pulled = pull_piece(link.get());
    if (pulled == 0) {
      flush(*link);
      return true;
    }
    moved += pulled;
  }
  flush(*link);
  // Its turn is over with work left. A writable socket is an event at once: whoever waits next goes
  // on here.
  MutexLock lock(link->mutex);
  link->want_out = true;
  return true;
}

// The initiator closed its side, or broke the protocol. Nothing more is received; pieces in
// progress finish first.
void SoftTarget::end_link(const LinkRef& link) {
  {
    MutexLock lock(link->mutex);
    if (link->ended) return;
    // Nobody wants the rest of its reads; acknowledgements still go out unless a frame is cut.
    link->reads.clear();
    if (link->frame_left == 0 && link->frame_header_left == 0) flush_locked(*link);
    link->ended = true;
  }
  bool now = false;
  {
    MutexLock lock(jobs_mutex_);
    std::erase_if(jobs_, [&](const std::shared_ptr<Pull>& job) {
      if (job->link != link) return false;
      pieces_waiting_ -= job->request.length.raw() - job->next;
      job->next = job->request.length.raw();
      return true;
    });
    link->ending = true;
    now = link->pieces == 0;
  }
  if (now) finish_link(link);
}

void SoftTarget::finish_link(const LinkRef& link) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, link->fd.get(), nullptr);
  link_end_given();
  ::shutdown(link->fd.get(), SHUT_RDWR);
  MutexLock lock(links_mutex_);
  links_.erase(link->id);
}

}  // namespace farlift::fabric::soft
