#include "s3/volume/control.h"

#include "core/base/log.h"
#include "core/net/wake_signal.h"
#include "s3/volume/control_connection.h"

#include <arpa/inet.h>
#include <cerrno>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

namespace farlift::s3::volume {
namespace {

constexpr std::size_t kQueueMax = 16384;  // connections_max * kControlOutstandingMax
constexpr int kBacklog = 128;
constexpr Duration kUpkeepEvery = std::chrono::milliseconds(250);

}  // namespace

Control::Control(const Parts& parts, ControlOptions options)
    : parts_(parts),
      options_(std::move(options)),
      pushes_(kQueueMax),
      prepares_(kQueueMax),
      others_(kQueueMax) {}

Result<std::unique_ptr<Control>> Control::start(const Parts& parts, ControlOptions options) {
  if (options.connections_max == 0 ||
      options.connections_max > kQueueMax / kControlOutstandingMax || options.push_workers == 0 ||
      options.prepare_workers == 0 || options.other_workers == 0)
    return Error::make(Errc::invalid_argument, "control options");
  std::unique_ptr<Control> control(new Control(parts, std::move(options)));
  TRY_ASSIGN(control->stop_signal_, net::WakeSignal::make());
  TRY(control->listen());
  Control* const raw = control.get();
  auto& threads = raw->threads_;
  threads.emplace_back([raw] { raw->accept_loop(); });
  threads.emplace_back([raw] { raw->upkeep_loop(); });
  for (std::size_t i = 0; i < raw->options_.push_workers; ++i)
    threads.emplace_back([raw] { raw->work(raw->pushes_); });
  for (std::size_t i = 0; i < raw->options_.prepare_workers; ++i)
    threads.emplace_back([raw] { raw->work(raw->prepares_); });
  for (std::size_t i = 0; i < raw->options_.other_workers; ++i)
    threads.emplace_back([raw] { raw->work(raw->others_); });
  return control;
}

Control::~Control() { stop(); }

Status Control::listen() {
  sockaddr_storage storage{};
  socklen_t size = 0;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, options_.listen_ip.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(options_.port);
    size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, options_.listen_ip.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(options_.port);
    size = sizeof *v6;
  } else {
    return Error::make(Errc::invalid_argument, "control address is not numeric");
  }
  UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return Error::from_errno("control socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 ||
      ::listen(fd.get(), kBacklog) != 0 ||
      ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0)
    return Error::from_errno("control listen");
  port_ = ntohs(storage.ss_family == AF_INET ? v4->sin_port : v6->sin6_port);
  listener_ = std::move(fd);
  return {};
}

std::string Control::hello() const {
  ControlHello hello;
  hello.read_auth = hello.write_auth = hello.commit_query = true;
  hello.transport = options_.transport;
  hello.read_auth_required = parts_.access.required(Right::read) && !parts_.access.ignores_reads();
  hello.write_auth_required = parts_.access.required(Right::write);
  hello.max_transfer = options_.max_transfer.raw();
  return hello.encode();
}

void Control::accept_loop() {
  for (;;) {
    pollfd watched[2] = {{listener_.get(), POLLIN, 0}, {stop_signal_->fd(), POLLIN, 0}};
    if (::poll(watched, 2, -1) < 0 && errno != EINTR) return;
    if (stop_signal_->raised()) return;
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) continue;
    reap(false);
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    auto connection =
        Connection::adopt(std::move(fd), next_connection_.fetch_add(1), parts_.clock, stop_signal_);
    if (!connection.ok()) continue;
    MutexLock lock(mutex_);
    if (stopping_ || readers_.size() >= options_.connections_max) {
      logf(LogLevel::warning, "control port: connection refused, %zu are open", readers_.size());
      continue;
    }
    connections_.fetch_add(1, std::memory_order_relaxed);
    readers_.push_back({*connection, std::thread([this, shared = *connection] { serve(shared); })});
  }
}

// Joins the readers that have ended.
void Control::reap(bool all) {
  std::list<Reader> ended;
  {
    MutexLock lock(mutex_);
    for (auto at = readers_.begin(); at != readers_.end();) {
      const auto here = at++;
      if (all || here->connection->is_finished()) ended.splice(ended.end(), readers_, here);
    }
  }
  for (Reader& reader : ended) reader.thread.join();
}

void Control::serve(const std::shared_ptr<Connection>& connection) {
  connection->write(hello());
  for (bool go_on = true; go_on;) {
    const auto line = connection->read_line();
    if (!line.ok()) break;
    take_line(connection, *line, &go_on);
  }
  connection->cut();
  parts_.uploads.connection_lost(connection->id());
  connection->finished();
}

void Control::take_line(const std::shared_ptr<Connection>& connection, std::string_view line,
                        bool* go_on) {
  ParsedControlRequest parsed = parse_control_request(line);
  if (!parsed.request) {
    if (!parsed.seq) {
      *go_on = false;  // nobody could tell which request an answer is for
      return;
    }
    ControlReply reply;
    reply.seq = *parsed.seq;
    reply.code = parsed.code;
    reply.message = parsed.message;
    reply.nothing_written = true;
    answer(*connection, reply);
    return;
  }
  if (!connection->begin()) {
    *go_on = false;
    return;
  }
  Task task;
  task.connection = connection;
  task.deadline = parts_.clock.now() + std::chrono::milliseconds(parsed.request->deadline_ms);
  task.request = std::move(*parsed.request);
  Queue& queue = task.request.op == ControlOp::push      ? pushes_
                 : task.request.op == ControlOp::prepare ? prepares_
                                                         : others_;
  if (!queue.try_push(std::move(task)).ok()) {  // closed: we are stopping
    connection->end();
    *go_on = false;
  }
}

void Control::work(Queue& queue) {
  while (auto task = queue.pop()) run(std::move(*task));
}

void Control::upkeep_loop() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!stopping_) stop_changed_.wait_for(mutex_, kUpkeepEvery);
      if (stopping_) return;
    }
    parts_.uploads.tick();
    reap(false);
  }
}

void Control::answer(Connection& connection, const ControlReply& reply) {
  if (!reply.ok) refused_.fetch_add(1, std::memory_order_relaxed);
  connection.write(reply.encode());
}

void Control::stop() {
  {
    MutexLock lock(mutex_);
    if (stopping_) return;
    stopping_ = true;
    stop_changed_.notify_all();
    for (Reader& reader : readers_) reader.connection->cut();
  }
  stop_signal_->raise();
  pushes_.close();
  prepares_.close();
  others_.close();
  // Cancels what is being sent, so that no worker waits for a client.
  parts_.mover.stop();
  for (auto& thread : threads_) thread.join();
  reap(true);
  parts_.uploads.close();
}

ControlCounters Control::counters() const noexcept {
  ControlCounters c;
  c.connections = connections_.load(std::memory_order_relaxed);
  c.pushes = pushes_done_.load(std::memory_order_relaxed);
  c.pushed_bytes = pushed_bytes_.load(std::memory_order_relaxed);
  c.prepares = prepares_done_.load(std::memory_order_relaxed);
  c.commits = commits_.load(std::memory_order_relaxed);
  c.committed_bytes = committed_bytes_.load(std::memory_order_relaxed);
  c.refused = refused_.load(std::memory_order_relaxed);
  return c;
}

}  // namespace farlift::s3::volume
