#include "blob/client/link.h"

#include "blob/client/client_core.h"
#include "blob/client/fabric_handle.h"
#include "blob/wire/names.h"
#include "core/base/log.h"
#include "core/codec/text.h"

#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace farlift::client {
namespace {

constexpr auto kOnWaitInterval = std::chrono::milliseconds(100);
constexpr int kWaitMs = 1000;  // a lost wake-up would cost this, not for ever
constexpr int kWaitWithHookMs = 100;

Link::Handshake refused(std::string text) {
  return {Link::Handshake::Outcome::refused, std::move(text), Error{}};
}
Link::Handshake lost(Error error) { return {Link::Handshake::Outcome::lost, {}, error}; }

}  // namespace

Link& Link::of(ClientCore& core, resp::Connection& connection) {
  if (connection.companion() == nullptr) {
    connection.set_companion(std::make_unique<Link>(core));
  }
  return static_cast<Link&>(*connection.companion());
}

Link::Link(ClientCore& core)
    : core_(core),
      spin_(core.options().rdma && core.options().rdma->provider == RdmaProvider::soft
                ? std::chrono::microseconds(core.options().rdma->spin_us)
                : std::chrono::microseconds(0)) {
  if (!core_.add_link(this)) {
    MutexLock lock(mutex_);
    cut_ = true;
  }
}

Link::~Link() {
  core_.remove_link(this);
  set_multi_open(false);
  cut_off();
}

void Link::set_multi_open(bool open) noexcept {
  if (open == multi_open_) return;
  multi_open_ = open;
  core_.counters().multis_open.fetch_add(open ? 1 : -1, std::memory_order_acq_rel);
}

void Link::cut_off() noexcept {
  fabric::TargetEndpoint* endpoint = nullptr;
  {
    MutexLock lock(mutex_);
    cut_ = true;
    endpoint = endpoint_.get();
  }
  if (endpoint == nullptr) return;
  if (const Status status = endpoint->close(); !status.ok()) {
    log(LogLevel::error, "closing a fabric endpoint failed: " + status.error().describe());
  }
}

Link::Handshake Link::open_endpoint(const resp::Connection& connection) {
  if (endpoint_ != nullptr) return {};
  const RdmaConfiguration& rdma = *core_.options().rdma;
  Expected<std::string> ip = listen_ip(rdma, local_ip_of(connection.fd()));
  if (!ip) return refused(ip.error().text);
  fabric::TargetOptions options;
  options.listen_ip = *ip;
  options.own_thread = false;
  auto endpoint = core_.fabric()->domain->open_target(options);
  if (!endpoint.ok()) {
    return refused("cannot open a fabric endpoint: " + endpoint.error().describe());
  }
  MutexLock lock(mutex_);
  if (cut_) return lost(Error::make(Errc::closed, "client"));
  endpoint_ = std::move(endpoint).value();
  return {};
}

Link::Handshake Link::ensure_bound(resp::Connection& connection) {
  if (bound_) return {};
  if (Handshake opened = open_endpoint(connection); opened.outcome != Handshake::Outcome::bound) {
    return opened;
  }
  core_.counters().handshakes.fetch_add(1, std::memory_order_relaxed);
  const std::string address = endpoint_->address().hex();
  if (const Status sent = connection.send({blob::wire::kRdmaHello, address}); !sent.ok()) {
    return lost(sent.error());
  }
  Result<resp::Value> reply = connection.receive();
  if (!reply.ok()) return lost(reply.error());
  Handshake done = take_greeting(*reply);
  bound_ = done.outcome == Handshake::Outcome::bound;
  return done;
}

Link::Handshake Link::take_greeting(const resp::Value& reply) {
  if (reply.is_error()) {
    return refused("the server refused the RDMA handshake: " + std::string(reply.text()));
  }
  if (reply.type() != resp::Type::array || reply.items().empty()) {
    return lost(Error::make(Errc::protocol, "the reply to BLOB.RDMA_HELLO has the wrong shape"));
  }
  for (const resp::Value& item : reply.items()) {
    if (item.type() != resp::Type::bulk) {
      return lost(Error::make(Errc::protocol, "the reply to BLOB.RDMA_HELLO has the wrong shape"));
    }
    const Result<std::vector<std::byte>> bytes = codec::hex_decode(item.text());
    if (!bytes.ok()) return lost(Error::make(Errc::protocol, "a server fabric address is not hex"));
    const Result<fabric::Address> address = fabric::Address::from_bytes(*bytes);
    if (!address.ok())
      return lost(Error::make(Errc::protocol, "a server fabric address is too long"));
    // Mandatory for efa-direct before the first transfer, harmless elsewhere (spec blob 3.1).
    if (const Status added = endpoint_->add_peer(*address); !added.ok()) {
      return lost(added.error());
    }
  }
  return {};
}

Result<resp::Value> Link::await_reply(resp::Connection& connection, std::uint64_t expected_bytes) {
  const bool assisted =
      expected_bytes >= kAssistedBytesMin && std::thread::hardware_concurrency() > 1;
  if (assisted) assistant_.land(*endpoint_);
  Result<resp::Value> reply = await_landing(connection, expected_bytes);
  if (assisted) assistant_.stop_landing();
  return reply;
}

// Lands what comes without sleeping; true when there may be a reply.
Result<bool> Link::poll_for_reply(resp::Connection& connection, std::uint64_t expected_bytes) {
  if (expected_bytes > kPolledBytesMax || !WaitingThread::may_poll()) return false;
  const Duration budget = spin_.budget();
  if (budget.count() == 0) return false;
  const auto until = std::chrono::steady_clock::now() + budget +
                     std::chrono::microseconds(expected_bytes / kPolledBytesPerUsec);
  for (;;) {
    TRY_ASSIGN(const bool readable, endpoint_->progress(0, connection.fd()));
    const bool over = readable || std::chrono::steady_clock::now() >= until;
    if (over) spin_.count(readable);
    if (over || !WaitingThread::may_poll()) return readable;
    AdaptiveSpin::breathe();
  }
}

Result<resp::Value> Link::await_landing(resp::Connection& connection,
                                        std::uint64_t expected_bytes) {
  const WaitingThread waiting;
  const std::function<void()>& on_wait = core_.options().on_wait;
  auto next_call = std::chrono::steady_clock::now() + kOnWaitInterval;
  bool readable = connection.has_buffered_input();
  bool fresh = true;
  for (;;) {
    if (readable) {
      TRY_ASSIGN(std::optional<resp::Value> reply, connection.try_receive());
      if (reply) return *std::move(reply);
    }
    Result<bool> progress = false;
    if (std::exchange(fresh, false)) progress = poll_for_reply(connection, expected_bytes);
    if (progress.ok() && !*progress)
      progress = endpoint_->progress(on_wait ? kWaitWithHookMs : kWaitMs, connection.fd());
    if (!progress.ok()) {
      if (!core_.closing()) return progress.error();
      // A reply that was already here counts as usual (spec blob 10.2 rule 10).
      if (Result<std::optional<resp::Value>> last = connection.try_receive();
          last.ok() && last->has_value()) {
        return **std::move(last);
      }
      core_.await_quiet();
      return Error::make(Errc::closed, "client");
    }
    readable = *progress;
    if (on_wait && std::chrono::steady_clock::now() >= next_call) {
      on_wait();
      next_call = std::chrono::steady_clock::now() + kOnWaitInterval;
    }
  }
}

}  // namespace farlift::client
