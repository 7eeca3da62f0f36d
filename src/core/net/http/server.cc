#include "core/net/http/server.h"

#include "core/base/bounded_queue.h"
#include "core/base/log.h"
#include "core/net/tls.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace farlift::net::http {
namespace {

constexpr std::size_t kDrainBytesMax = 256 * 1024;          // of a body the handler left unread
constexpr Duration kTick = std::chrono::milliseconds(250);  // how exact timeouts are
constexpr int kBacklog = 512;

// What a connection is: waiting in the poller's table, or with one worker.
struct Connection {
  Connection(std::unique_ptr<Stream> owned, const Clock& clock, std::string from)
      : stream(std::move(owned)), input(*stream, clock), peer(std::move(from)) {}
  std::unique_ptr<Stream> stream;
  Input input;
  std::string peer;
  std::optional<std::string> head;  // complete, for the worker
  std::optional<Refusal> refusal;   // or why there is none
  Instant since{};                  // idle, or in the middle of a head, from then on
  bool in_head = false;
};
using ConnectionPtr = std::unique_ptr<Connection>;

std::string peer_address(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = {};
  if (from.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(from).sin_addr, text, sizeof text);
  } else if (from.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      ::inet_ntop(AF_INET, v6.s6_addr + 12, text, sizeof text);
    } else {
      ::inet_ntop(AF_INET6, &v6, text, sizeof text);
    }
  }
  return text;
}

Result<UniqueFd> listen_on(const ServerOptions& options, std::uint16_t& port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  addrinfo* list = nullptr;
  const std::string service = std::to_string(options.port);
  if (::getaddrinfo(options.host.c_str(), service.c_str(), &hints, &list) != 0 || list == nullptr)
    return Error::make(Errc::invalid_argument, "address to listen on");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  UniqueFd fd(::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::from_errno("socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), list->ai_addr, list->ai_addrlen) != 0) return Error::from_errno("bind");
  if (::listen(fd.get(), kBacklog) != 0) return Error::from_errno("listen");
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0)
    return Error::from_errno("getsockname");
  port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
  return fd;
}

class BlockingServer final : public Server {
 public:
  BlockingServer(ServerOptions options, Handler handler, const Clock& clock, RefusalText text,
                 UniqueFd listener, std::uint16_t port, UniqueFd poll, UniqueFd wake)
      : options_(std::move(options)),
        handler_(std::move(handler)),
        clock_(clock),
        refusal_text_(std::move(text)),
        listener_(std::move(listener)),
        poll_(std::move(poll)),
        wake_(std::move(wake)),
        port_(port),
        ready_(options_.connections_max) {}

  ~BlockingServer() override { stop(Duration::zero()); }

  Status run() {
    TRY(watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN));
    TRY(watch(EPOLL_CTL_ADD, wake_.get(), EPOLLIN));
    poller_ = std::thread([this] { poll_loop(); });
    for (std::size_t i = 0; i < options_.workers; ++i)
      workers_.emplace_back([this] { work_loop(); });
    return {};
  }

  std::uint16_t port() const noexcept override { return port_; }

  void stop(Duration grace) override {
    stopping_.store(true, std::memory_order_release);
    wake();
    if (poller_.joinable()) poller_.join();
    const Deadline deadline = Deadline::after(clock_, grace);
    ready_.close();
    {
      MutexLock lock(mutex_);
      while (!active_.empty() && !deadline.expired(clock_))
        left_.wait_for(mutex_, deadline.left(clock_));
      cut_ = true;
      for (Stream* stream : active_) stream->cut_off();
    }
    for (std::thread& worker : workers_) {
      if (worker.joinable()) worker.join();
    }
    MutexLock lock(mutex_);
    returned_.clear();
  }

 private:
  bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }

  void wake() noexcept {
    const std::uint64_t one = 1;
    // A full counter is readable already.
    [[maybe_unused]] const ssize_t ignored = ::write(wake_.get(), &one, sizeof one);
  }

  Status watch(int operation, int fd, std::uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (::epoll_ctl(poll_.get(), operation, fd, &event) != 0) return Error::from_errno("epoll_ctl");
    return {};
  }

  // ---- the poller ----

  void poll_loop() {
    std::vector<epoll_event> events(128);
    Instant swept = clock_.now();
    while (!stopping()) {
      const int tick =
          static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(kTick).count());
      const int count =
          ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), tick);
      for (int i = 0; i < count && !stopping(); ++i) {
        const int fd = events[static_cast<std::size_t>(i)].data.fd;
        if (fd == listener_.get()) {
          accept_all();
        } else if (fd == wake_.get()) {
          take_back();
        } else if (const auto it = waiting_.find(fd); it != waiting_.end()) {
          progress(std::move(it->second));
        }
      }
      if (clock_.now() - swept >= kTick) {
        swept = clock_.now();
        sweep();
      }
    }
    waiting_.clear();
    listener_.reset();
  }

  void accept_all() {
    while (connections_.load() < options_.connections_max) {
      sockaddr_storage from{};
      socklen_t length = sizeof from;
      UniqueFd fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from), &length,
                            SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd && (errno == EINTR || errno == ECONNABORTED)) continue;
      if (!fd) return pause_accepting(errno != EAGAIN);
      const int on = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      auto stream = options_.tls != nullptr
                        ? options_.tls->start_server(std::move(fd), nullptr, clock_)
                        : adopt_stream(std::move(fd), clock_);
      if (!stream.ok()) continue;
      auto connection =
          std::make_unique<Connection>(std::move(stream).value(), clock_, peer_address(from));
      connections_.fetch_add(1);
      connection->since = clock_.now();
      const int key = connection->stream->fd();
      waiting_[key] = nullptr;  // marks it as ours; progress() fills it
      progress(std::move(connection));
    }
    pause_accepting(true);
  }

  // Level-triggered readiness of a listener we will not accept from would spin.
  void pause_accepting(bool pause) {
    if (pause == accept_paused_) return;
    if (watch(EPOLL_CTL_MOD, listener_.get(), pause ? 0U : std::uint32_t{EPOLLIN}).ok())
      accept_paused_ = pause;
  }

  void take_back() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t ignored = ::read(wake_.get(), &count, sizeof count);
    std::vector<ConnectionPtr> back;
    {
      MutexLock lock(mutex_);
      back.swap(returned_);
    }
    for (ConnectionPtr& connection : back) progress(std::move(connection));
    if (accept_paused_ && connections_.load() < options_.connections_max) pause_accepting(false);
  }

  // Reads what is there; hands on a complete head, ends a dead connection, or waits for more.
  void progress(ConnectionPtr connection) {
    Connection& c = *connection;
    const int fd = c.stream->fd();
    for (;;) {
      if (!c.in_head) c.input.skip_empty_lines();
      if (!c.in_head && c.input.buffered() > 0) {
        c.in_head = true;
        c.since = clock_.now();
      }
      c.head = c.input.take_head();
      if (c.head.has_value() || c.input.buffered() >= options_.head_bytes_max) break;
      const Status filled = c.input.fill_now(options_.head_bytes_max);
      if (filled.ok()) continue;
      if (filled.code() == Errc::again) return keep(fd, std::move(connection));
      return end(fd, std::move(connection));
    }
    if (!c.head.has_value()) c.refusal = Refusal{431, "the header is too large"};
    hand_on(fd, std::move(connection));
  }

  void keep(int fd, ConnectionPtr connection) {
    const auto interest = static_cast<std::uint16_t>(connection->stream->events(Interest::read));
    const std::uint32_t events = interest | EPOLLRDHUP;
    if (!watch(EPOLL_CTL_MOD, fd, events).ok() && !watch(EPOLL_CTL_ADD, fd, events).ok())
      return end(fd, std::move(connection));
    waiting_[fd] = std::move(connection);
  }

  void end(int fd, ConnectionPtr connection) {
    waiting_.erase(fd);
    connection.reset();  // closing leaves the poll set
    closed_one();
  }

  void closed_one() {
    connections_.fetch_sub(1);
    wake();
  }

  void hand_on(int fd, ConnectionPtr connection) {
    ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, fd, nullptr);  // absent is fine
    waiting_.erase(fd);
    // The queue has room for every connection there can be.
    if (!ready_.try_push(std::move(connection)).ok()) closed_one();
  }

  void sweep() {
    const Instant now = clock_.now();
    std::vector<int> late;
    for (const auto& [fd, connection] : waiting_) {
      const Duration limit = connection->in_head ? options_.head_timeout : options_.idle_timeout;
      if (now - connection->since >= limit) late.push_back(fd);
    }
    for (const int fd : late) {
      ConnectionPtr connection = std::move(waiting_[fd]);
      if (!connection->in_head) {
        end(fd, std::move(connection));
        continue;
      }
      connection->refusal = Refusal{408, "the header did not arrive in time"};
      hand_on(fd, std::move(connection));
    }
  }

  // ---- the workers ----

  void work_loop() {
    while (std::optional<ConnectionPtr> next = ready_.pop()) {
      ConnectionPtr connection = std::move(*next);
      bool cut = false;
      {
        MutexLock lock(mutex_);
        cut = cut_;
        if (!cut) active_.push_back(connection->stream.get());
      }
      const bool keep = !cut && serve(*connection) && !stopping();
      {
        MutexLock lock(mutex_);
        std::erase(active_, connection->stream.get());
        left_.notify_all();
        if (keep) returned_.push_back(std::move(connection));
      }
      if (keep) {
        wake();
      } else {
        connection.reset();
        closed_one();
      }
    }
  }

  // One exchange; true when the connection can carry another.
  bool serve(Connection& c) {
    std::optional<std::string> head_text = std::exchange(c.head, std::nullopt);
    c.in_head = false;
    if (!c.refusal && head_text->size() > options_.head_bytes_max)
      c.refusal = Refusal{431, "the header is too large"};
    if (c.refusal) return refuse(c, *c.refusal);
    auto parsed = parse_request_head(*head_text);
    if (const auto* refusal = std::get_if<Refusal>(&parsed)) return refuse(c, *refusal);
    Request request(std::get<RequestHead>(std::move(parsed)), *c.stream, c.input, c.peer,
                    options_.body_patience);
    Response response(*c.stream, clock_, request.head(), &request.body(), options_.body_patience);
    handler_(request, response);
    if (!response.started() && !request.body().failed())
      response.send(500, {}, "").ignore();  // the connection says the rest
    const bool reusable = response.finish() && drain(request);
    c.since = clock_.now();
    if (!reusable) linger(c);
    return reusable;
  }

  // A body that was not read must not be taken for the next request.
  bool drain(Request& request) {
    Body& body = request.body();
    if (body.ended()) return true;
    if (body.failed()) return false;
    // Nobody told the client to send it, and it may or may not do so now.
    if (request.head().expects_continue && !body.touched()) return false;
    std::byte part[4096];
    for (std::size_t total = 0; total <= kDrainBytesMax;) {
      const Result<std::size_t> got = body.read(part);
      if (!got.ok()) return false;
      if (*got == 0) return true;
      total += *got;
    }
    return false;
  }

  bool refuse(Connection& c, const Refusal& refusal) {
    RequestHead none;
    none.keep_alive = false;
    Response response(*c.stream, clock_, none, nullptr, options_.head_timeout);
    Headers headers;
    const std::string body = refusal_text_ ? refusal_text_(refusal, headers) : refusal.text + "\n";
    if (response.send(refusal.status, std::move(headers), body).ok()) linger(c);
    return false;
  }

  // Closing with unread input resets the connection, and the reset may overtake our answer; so the
  // input is read off for a moment.
  void linger(Connection& c) {
    ::shutdown(c.stream->fd(), SHUT_WR);
    const Deadline deadline = Deadline::after(clock_, std::chrono::seconds(1));
    std::byte part[4096];
    for (std::size_t total = 0; total < kDrainBytesMax;) {
      const Result<std::size_t> got = c.stream->read_some(part, deadline);
      if (!got.ok()) return;
      total += *got;
    }
  }

  // constant
  const ServerOptions options_;
  const Handler handler_;
  const Clock& clock_;
  const RefusalText refusal_text_;
  UniqueFd listener_;
  const UniqueFd poll_;
  const UniqueFd wake_;
  const std::uint16_t port_;
  // the poller's
  std::unordered_map<int, ConnectionPtr> waiting_;
  bool accept_paused_ = false;
  // self-locking
  BoundedQueue<ConnectionPtr> ready_;
  std::atomic<std::size_t> connections_{0};
  std::atomic<bool> stopping_{false};
  // guarded
  Mutex mutex_;
  CondVar left_;
  std::vector<Stream*> active_ GUARDED_BY(mutex_);
  std::vector<ConnectionPtr> returned_ GUARDED_BY(mutex_);
  bool cut_ GUARDED_BY(mutex_) = false;
  std::thread poller_;
  std::vector<std::thread> workers_;
};

}  // namespace

Result<std::unique_ptr<Server>> Server::start(ServerOptions options, Handler handler,
                                              const Clock& clock, RefusalText refusal_text) {
  if (options.workers == 0 || options.connections_max == 0)
    return Error::make(Errc::invalid_argument, "server options");
  std::uint16_t port = 0;
  TRY_ASSIGN(UniqueFd listener, listen_on(options, port));
  UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll) return Error::from_errno("epoll_create1");
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return Error::from_errno("eventfd");
  auto server = std::make_unique<BlockingServer>(std::move(options), std::move(handler), clock,
                                                 std::move(refusal_text), std::move(listener), port,
                                                 std::move(poll), std::move(wake));
  TRY(server->run());
  return std::unique_ptr<Server>(std::move(server));
}

}  // namespace farlift::net::http
