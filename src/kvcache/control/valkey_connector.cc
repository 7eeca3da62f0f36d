#include "kvcache/control/valkey_connector.h"

#include "core/codec/text.h"
#include "core/net/tls.h"

#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace farlift::kv {
namespace {

using resp::Connection;
using resp::Endpoint;
using resp::Value;

// A server that is a replica, or a primary that does not know its own mind.
bool is_primary(const Value& role) {
  return role.is_aggregate() && !role.items().empty() && role.items()[0].is_text() &&
         role.items()[0].text() == "master";
}

}  // namespace

ValkeyConnector::ValkeyConnector(const Clock& clock, ValkeyOptions options, UniqueFd event)
    : clock_(clock), options_(std::move(options)), event_(std::move(event)), tasks_(kTasksMax) {}

Result<std::unique_ptr<ValkeyConnector>> ValkeyConnector::open(const Clock& clock,
                                                               ValkeyOptions options,
                                                               std::string* reason) {
  UniqueFd event(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!event) return Error::from_errno("eventfd");
  std::unique_ptr<ValkeyConnector> connector(
      new ValkeyConnector(clock, std::move(options), std::move(event)));
  TRY_ASSIGN(connector->stop_, net::WakeSignal::make());
  const ValkeyOptions& own = connector->options_;
  connector->tls_ = own.connection.tls_context;
  if (connector->tls_ == nullptr && own.connection.tls) {
    TRY_ASSIGN(connector->tls_, net::TlsContext::make(*own.connection.tls, reason));
  }
  if (own.sentinel_tls) connector->sentinel_tls_ = connector->tls_;
  for (std::size_t i = 0; i < kWorkers; ++i)
    connector->threads_.emplace_back([raw = connector.get()] { raw->work(); });
  return connector;
}

ValkeyConnector::~ValkeyConnector() { stop(); }

void ValkeyConnector::stop() {
  stop_->raise();
  tasks_.close();  // the workers run what is left; without connections it ends at once
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ValkeyConnector::work() {
  while (const auto task = tasks_.pop()) (*task)();
}

bool ValkeyConnector::push(std::function<void()> task) {
  return tasks_.try_push(std::move(task)).ok();
}

void ValkeyConnector::answer(std::function<void()> callback) {
  {
    const MutexLock lock(mutex_);
    answers_.push_back(std::move(callback));
  }
  const std::uint64_t one = 1;
  static_cast<void>(::write(event_.get(), &one, sizeof one));
}

bool ValkeyConnector::step() {
  std::uint64_t count = 0;
  // Emptied first: an answer that comes in between raises it again.
  if (::read(event_.get(), &count, sizeof count) < 0) return false;
  std::vector<std::function<void()>> due;
  {
    const MutexLock lock(mutex_);
    due = std::exchange(answers_, {});
  }
  for (const auto& callback : due) callback();
  return !due.empty();
}

// ---- tasks

void ValkeyConnector::connect(const Endpoint& endpoint, const OnConnected& done) {
  const bool queued = push([this, endpoint, done] {
    auto connection = std::make_shared<Result<std::unique_ptr<Connection>>>(
        open_connection(endpoint, options_.timeout, options_.timeout));
    answer([connection, done] { done(std::move(*connection)); });
  });
  if (!queued) answer([done] { done(Error::make(Errc::exhausted, "connector")); });
}

void ValkeyConnector::locate(std::vector<Endpoint> known, const OnLocated& done) {
  const bool queued = push([this, known = std::move(known), done] {
    auto located = std::make_shared<Result<Located>>(
        options_.mode == ValkeyOptions::Mode::cluster ? ask_cluster(known) : ask_sentinels());
    answer([located, done] { done(std::move(*located)); });
  });
  if (!queued) answer([done] { done(Error::make(Errc::exhausted, "connector")); });
}

void ValkeyConnector::run(const Endpoint& endpoint, ValkeyCommandPtr command,
                          const OnAnswer& done) {
  // A std::function must be copyable, a command is not.
  auto shared = std::make_shared<ValkeyCommandPtr>(std::move(command));
  const bool queued = push([this, endpoint, shared, done] {
    bool may_have_run = false;
    auto reply = std::make_shared<Result<Value>>(run_now(endpoint, **shared, may_have_run));
    answer([shared, reply, may_have_run, done] {
      done(std::move(*shared), std::move(*reply), may_have_run);
    });
  });
  if (queued) return;
  answer([shared, done] {
    done(std::move(*shared), Error::make(Errc::exhausted, "connector"), false);
  });
}

// All of it before the command's deadline: a quarter of what is left is for connecting, half for
// sending.
Result<Value> ValkeyConnector::run_now(const Endpoint& endpoint, const ValkeyCommand& command,
                                       bool& may_have_run) const {
  const Duration left = command.deadline - clock_.now();
  if (left <= Duration::zero()) return command.last;
  TRY_ASSIGN(auto connection, open_connection(endpoint, left / 4, left / 2));
  if (command.asking) {
    TRY_ASSIGN(const Value asked, connection->request({"ASKING"}));
    if (asked.is_error()) return Error::make(Errc::protocol, "ASKING");
  }
  const std::vector<std::string_view> words(command.words.begin(), command.words.end());
  TRY(connection->send(words));
  may_have_run = true;
  auto reply =
      connection->receive({.deadline = net::Deadline::at(command.deadline), .bulk_into = {}});
  if (reply.ok()) may_have_run = false;
  return reply;
}

Result<std::unique_ptr<Connection>> ValkeyConnector::open_connection(
    const Endpoint& endpoint, Duration connect_timeout, Duration request_timeout) const {
  resp::ConnectionOptions to = options_.connection;
  if (to.unix_path.empty() || options_.mode != ValkeyOptions::Mode::standalone) {
    to.unix_path.clear();
    to.host = endpoint.host;
    to.port = endpoint.port;
  }
  to.tls.reset();
  to.tls_context = tls_;
  to.stop = stop_;
  to.connect_timeout = connect_timeout;
  to.request_timeout = request_timeout;
  TRY_ASSIGN(auto connection, Connection::connect(to, clock_));
  if (options_.mode == ValkeyOptions::Mode::sentinel) {
    // Sentinels may be behind, and a name may point anywhere.
    TRY_ASSIGN(const Value role, connection->request({"ROLE"}));
    if (role.is_error()) return error_of(resp::ReplyError::parse(role.text()));
    if (!is_primary(role)) return Error::make(Errc::wrong_type, "the server is no primary");
  }
  return connection;
}

Result<std::unique_ptr<Connection>> ValkeyConnector::open_sentinel(const Endpoint& endpoint) const {
  resp::ConnectionOptions to;
  to.host = endpoint.host;
  to.port = endpoint.port;
  to.username = options_.sentinel_username;
  to.password = options_.sentinel_password;
  to.tls_context = sentinel_tls_;
  to.stop = stop_;
  to.connect_timeout = options_.timeout;
  to.request_timeout = options_.timeout;
  return Connection::connect(to, clock_);
}

Result<ValkeyConnector::Located> ValkeyConnector::ask_cluster(
    const std::vector<Endpoint>& known) const {
  std::vector<Endpoint> all{options_.connection.endpoint()};
  all.insert(all.end(), options_.more_seeds.begin(), options_.more_seeds.end());
  all.insert(all.end(), known.begin(), known.end());
  Error last = Error::make(Errc::unreachable, "cluster");
  for (const Endpoint& endpoint : all) {
    if (stop_->raised()) return Error::make(Errc::closed, "cluster");
    auto connection = open_connection(endpoint, options_.timeout, options_.timeout);
    if (!connection.ok()) {
      last = connection.error();
      continue;
    }
    const auto reply = (*connection)->request({"CLUSTER", "SLOTS"});
    if (!reply.ok() || reply->is_error()) {
      last = Error::make(reply.ok() ? Errc::protocol : reply.code(), "CLUSTER SLOTS");
      continue;
    }
    auto topology = resp::Topology::from_slots(*reply, endpoint);
    if (topology.ok() && topology->slots_covered() > 0)
      return Located{std::move(topology).value(), std::nullopt};
  }
  return last;
}

Result<ValkeyConnector::Located> ValkeyConnector::ask_sentinels() const {
  Error last = Error::make(Errc::unreachable, "sentinels");
  for (const Endpoint& endpoint : options_.sentinels) {
    if (stop_->raised()) return Error::make(Errc::closed, "sentinels");
    auto connection = open_sentinel(endpoint);
    if (!connection.ok()) {
      last = connection.error();
      continue;
    }
    const auto reply =
        (*connection)->request({"SENTINEL", "get-master-addr-by-name", options_.primary_name});
    if (!reply.ok()) {
      last = reply.error();
      continue;
    }
    if (!reply->is_aggregate() || reply->items().size() != 2 || !reply->items()[0].is_text() ||
        !reply->items()[1].is_text()) {
      last = Error::make(reply->is_null() ? Errc::not_found : Errc::protocol, "sentinel's answer");
      continue;
    }
    const auto port = codec::parse_u64(reply->items()[1].text());
    if (!port.ok() || *port == 0 || *port > 65535) continue;
    return Located{std::nullopt, Endpoint{std::string(reply->items()[0].text()),
                                          static_cast<std::uint16_t>(*port)}};
  }
  return last;
}

}  // namespace farlift::kv
