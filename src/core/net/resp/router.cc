#include "core/net/resp/router.h"

#include "core/net/resp/router_node.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <utility>

namespace farlift::resp {
namespace {

constexpr std::uint32_t kSwiftRedirects = 3;  // followed without a pause
constexpr std::uint32_t kDoublingsMax = 20;   // of the pause

// Worth another try when nothing can have run: the way to the server failed, not the request.
bool is_connection_failure(Errc code) noexcept {
  switch (code) {
    case Errc::again:
    case Errc::timeout:
    case Errc::unreachable:
    case Errc::connection_lost:
    case Errc::exhausted:
      return true;
    default:
      return false;
  }
}

}  // namespace

// ---- opening and closing

Router::Router(RouterOptions options, const Clock& clock, std::shared_ptr<net::WakeSignal> stop)
    : options_(std::move(options)),
      clock_(clock),
      stop_(std::move(stop)),
      prng_(secure_random_u64()) {}

Router::~Router() {
  cut_off();
  MutexLock lock(mutex_);
  for (const auto& [endpoint, node] : nodes_) ASSERT(node->lent.empty());
}

Result<std::unique_ptr<Router>> Router::open(RouterOptions options, const Clock& clock,
                                             std::string* reason) {
  TRY_ASSIGN(auto stop, net::WakeSignal::make());
  options.connection.stop = stop;
  if (options.connection.tls && options.connection.tls_context == nullptr) {
    TRY_ASSIGN(options.connection.tls_context,
               net::TlsContext::make(*options.connection.tls, reason));
  }
  if (options.cluster && options.connection.database != 0) {
    if (reason != nullptr) *reason = "a cluster has database 0 only";
    return Error::make(Errc::invalid_argument, "database");
  }
  std::unique_ptr<Router> router(new Router(std::move(options), clock, std::move(stop)));
  if (router->options_.cluster) {
    TRY(router->refresh(reason));
  } else {
    const auto lease = router->lease({}, reason);
    if (!lease.ok()) return lease.error();
  }
  return router;
}

void Router::cut_off() noexcept {
  stop_->raise();
  MutexLock lock(mutex_);
  for (const auto& [endpoint, node] : nodes_) {
    for (const auto& connection : node->idle) connection->cut_off();
    for (const auto& connection : node->lent) connection->cut_off();
  }
  returned_.notify_all();
}

// ---- where a key lives

Status Router::refresh(std::string* reason) {
  MutexLock one_at_a_time(refreshing_);
  Error last = Error::make(Errc::unreachable, "cluster topology");
  for (const Endpoint& endpoint : seeds()) {
    if (stop_->raised()) return Error::make(Errc::closed, "router");
    if (reason != nullptr) reason->clear();
    Result<Topology> topology = ask_topology(endpoint, reason);
    if (topology.ok()) {
      adopt(std::move(topology).value());
      if (reason != nullptr) reason->clear();
      return {};
    }
    last = topology.error();
  }
  if (reason != nullptr && reason->empty())
    *reason = "no node told the cluster's topology: " + last.describe();
  return last;
}

// Nodes to ask, the known ones first: they are likely to be up, and the seeds may be long gone.
std::vector<Endpoint> Router::seeds() const {
  std::vector<Endpoint> all = nodes();
  const auto add = [&all](const Endpoint& endpoint) {
    if (std::ranges::find(all, endpoint) == all.end()) all.push_back(endpoint);
  };
  add(options_.connection.endpoint());
  for (const Endpoint& seed : options_.more_seeds) add(seed);
  return all;
}

// On a connection of its own: the lent ones may all be busy for long, even with their borrower
// waiting for us.
Result<Topology> Router::ask_topology(const Endpoint& endpoint, std::string* reason) const {
  TRY_ASSIGN(const auto connection, connect(endpoint, reason));
  TRY_ASSIGN(const Value reply, connection->request({"CLUSTER", "SLOTS"}));
  if (reply.is_error()) {
    if (reason != nullptr)
      *reason =
          "CLUSTER SLOTS was refused by " + endpoint.text() + ": " + std::string(reply.text());
    return Error::make(Errc::unsupported, "CLUSTER SLOTS");
  }
  TRY_ASSIGN(Topology topology, Topology::from_slots(reply, endpoint));
  if (topology.slots_covered() == 0) {
    if (reason != nullptr) *reason = endpoint.text() + " knows of no slots";
    return Error::make(Errc::again, "cluster without slots");
  }
  return topology;
}

void Router::adopt(Topology topology) {
  std::vector<std::unique_ptr<Connection>> ended;  // outside the lock, as in give_back()
  MutexLock lock(mutex_);
  topology_ = std::move(topology);
  stale_ = false;
  ++counters_.refreshes;
  for (const auto& [endpoint, node] : nodes_) {
    node->retired = std::ranges::find(topology_.nodes(), endpoint) == topology_.nodes().end();
    if (!node->retired) continue;
    node->existing -= static_cast<std::uint32_t>(node->idle.size());
    std::ranges::move(node->idle, std::back_inserter(ended));
    node->idle.clear();
  }
}

Result<Endpoint> Router::owner_of(std::string_view key, std::string* reason) {
  if (!options_.cluster) return options_.connection.endpoint();
  const std::uint16_t slot = key_slot(key);
  if (is_stale()) {
    // What is known still serves when nobody answers.
    if (const Status refreshed = refresh(reason);
        !refreshed.ok() && refreshed.error().code == Errc::closed) {
      return refreshed.error();
    }
  }
  MutexLock lock(mutex_);
  if (const Endpoint* owner = topology_.owner(slot)) return *owner;
  stale_ = true;
  if (reason != nullptr && reason->empty()) *reason = "no node serves slot " + std::to_string(slot);
  return Error::make(Errc::again, "slot without an owner");
}

Result<Router::Lease> Router::lease(std::string_view key, std::string* reason) {
  TRY_ASSIGN(const Endpoint owner, owner_of(key, reason));
  Result<Lease> lease = lease_node(owner, reason);
  if (!lease.ok()) set_stale();
  return lease;
}

void Router::on_moved(const ReplyError& moved, const Endpoint& answered_by) {
  MutexLock lock(mutex_);
  topology_.move(moved.slot, target_of(moved, answered_by));
  stale_ = true;
  ++counters_.moved;
}

Endpoint Router::target_of(const ReplyError& redirect, const Endpoint& answered_by) {
  return {redirect.target.host.empty() ? answered_by.host : redirect.target.host,
          redirect.target.port};
}

// ---- commands

Attempt Router::attempt(Connection& connection, Arguments arguments,
                        const ReceiveOptions& receive) {
  const Status sent = connection.send(arguments);
  if (!sent.ok()) return {sent.error(), false};
  Result<Value> reply = connection.receive(receive);
  const bool may_have_run = !reply.ok();
  return {std::move(reply), may_have_run};
}

Result<Value> Router::request(std::string_view key, Arguments arguments, std::string* reason) {
  return run(
      key,
      [&](Connection& connection) {
        return attempt(connection, arguments,
                       {.deadline = net::Deadline::after(clock_, connection.request_timeout()),
                        .bulk_into = {}});
      },
      reason);
}

// Where one command stands between its attempts.
struct Router::Course {
  std::uint32_t redirects = 0;
  std::uint32_t retries = 0;
  std::optional<Endpoint> target;  // from a redirection; none: the owner of the key
  bool asking = false;
};

Result<Value> Router::run(std::string_view key, const Work& work, std::string* reason) {
  Course course;
  for (;;) {
    if (reason != nullptr) reason->clear();
    Endpoint node;
    Attempt done = run_once(key, work, course, node, reason);
    if (!done.reply.ok()) {
      const Errc code = done.reply.code();
      if (is_connection_failure(code)) set_stale();
      if (done.may_have_run || !is_connection_failure(code)) return std::move(done.reply);
    } else {
      if (!done.reply->is_error()) return std::move(done.reply);
      const ReplyError error = ReplyError::parse(done.reply->text());
      if (options_.cluster && error.is_redirect()) {
        TRY(redirect(course, error, node));
        continue;
      }
      if (!error.is_retryable()) return std::move(done.reply);
      set_stale();
    }
    TRY_ASSIGN(const bool again, again_later(course));
    if (!again) return std::move(done.reply);
  }
}

// Gives the connection back before it returns, so that a pause keeps nobody waiting.
Attempt Router::run_once(std::string_view key, const Work& work, const Course& course,
                         Endpoint& node, std::string* reason) {
  Result<Endpoint> owner = course.target ? Result<Endpoint>(*course.target) : owner_of(key, reason);
  if (!owner.ok()) return {owner.error(), false};
  node = *owner;
  Result<Lease> lease = lease_node(node, reason);
  if (!lease.ok()) return {lease.error(), false};
  Connection& connection = **lease;
  if (course.asking) {
    const Result<Value> asked = connection.request({"ASKING"});
    if (!asked.ok()) return {asked.error(), false};
  }
  Attempt done = work(connection);
  if (!done.reply.ok() && reason != nullptr) *reason = connection.last_error_text();
  return done;
}

Status Router::redirect(Course& course, const ReplyError& error, const Endpoint& answered_by) {
  if (++course.redirects > options_.redirects_max)
    return Error::make(Errc::exhausted, "cluster redirections");
  course.target = target_of(error, answered_by);
  course.asking = error.kind == ReplyError::Kind::ask;
  if (course.asking) {
    MutexLock lock(mutex_);
    ++counters_.asked;
  } else {
    on_moved(error, answered_by);
  }
  // A few hops are a cluster at work; more are nodes that disagree, who need time.
  return course.redirects > kSwiftRedirects ? pause(course.redirects - kSwiftRedirects) : Status();
}

Result<bool> Router::again_later(Course& course) {
  if (++course.retries > options_.retries_max) return false;
  course.target.reset();
  course.asking = false;
  {
    MutexLock lock(mutex_);
    ++counters_.retries;
  }
  TRY(pause(course.retries));
  return true;
}

// Grows by doubling; the jitter keeps clients that failed together from coming back together.
Status Router::pause(std::uint32_t turn) {
  const std::uint32_t doublings = std::min(turn - 1, kDoublingsMax);
  const Duration whole =
      std::min(options_.backoff_max, options_.backoff_first * (std::int64_t{1} << doublings));
  const auto half = static_cast<std::uint64_t>(std::max<std::int64_t>(whole.count() / 2, 1));
  Duration wait{};
  {
    MutexLock lock(mutex_);
    wait = Duration(static_cast<std::int64_t>(half + prng_.below(half)));
  }
  const net::Deadline deadline = net::Deadline::after(clock_, wait);
  while (!deadline.expired(clock_)) {
    pollfd fd{stop_->fd(), POLLIN, 0};
    if (::poll(&fd, 1, deadline.poll_ms(clock_)) < 0 && errno != EINTR)
      return Error::from_errno("poll");
    if (stop_->raised()) return Error::make(Errc::closed, "router");
  }
  return {};
}

// ---- small things

bool Router::is_stale() const {
  MutexLock lock(mutex_);
  return stale_;
}

void Router::set_stale() {
  MutexLock lock(mutex_);
  stale_ = true;
}

Router::Counters Router::counters() const {
  MutexLock lock(mutex_);
  return counters_;
}

std::vector<Endpoint> Router::nodes() const {
  if (!options_.cluster) return {options_.connection.endpoint()};
  MutexLock lock(mutex_);
  return topology_.nodes();
}

}  // namespace farlift::resp
