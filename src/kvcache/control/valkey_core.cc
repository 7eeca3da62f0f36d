#include "kvcache/control/valkey_core.h"

#include "core/net/resp/slot.h"

#include <algorithm>
#include <array>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>
#include <utility>

namespace farlift::kv {
namespace {

using resp::Endpoint;
using resp::ReplyError;
using resp::Value;

constexpr std::uint64_t kConnectorId = 0;
constexpr std::uint64_t kTimerId = 1;
constexpr std::size_t kEventsMax = 64;
constexpr Duration kBackoffFirst = std::chrono::milliseconds(10);
constexpr Duration kBackoffMax = std::chrono::milliseconds(500);

Duration longer(Duration backoff) {
  return std::clamp<Duration>(backoff * 2, kBackoffFirst, kBackoffMax);
}

// Trying again would end the same way.
bool is_final(Errc code) {
  return code == Errc::permission || code == Errc::invalid_argument || code == Errc::protocol;
}

}  // namespace

ValkeyCore::ValkeyCore(const Clock& clock, ValkeyOptions options,
                       std::unique_ptr<ValkeyConnector> connector, UniqueFd poller, UniqueFd timer)
    : clock_(clock),
      options_(std::move(options)),
      connector_(std::move(connector)),
      poller_(std::move(poller)),
      timer_(std::move(timer)) {
  if (options_.mode == ValkeyOptions::Mode::standalone) primary_ = options_.connection.endpoint();
}

Result<std::unique_ptr<ValkeyCore>> ValkeyCore::open(const Clock& clock, ValkeyOptions options,
                                                     std::string* reason) {
  TRY_ASSIGN(auto connector, ValkeyConnector::open(clock, options, reason));
  UniqueFd poller(::epoll_create1(EPOLL_CLOEXEC));
  if (!poller) return Error::from_errno("epoll_create1");
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) return Error::from_errno("timerfd_create");
  std::unique_ptr<ValkeyCore> core(new ValkeyCore(clock, std::move(options), std::move(connector),
                                                  std::move(poller), std::move(timer)));
  TRY(core->start());
  return core;
}

Status ValkeyCore::start() {
  for (const auto& [fd, id] :
       {std::pair(connector_->fd(), kConnectorId), std::pair(timer_.get(), kTimerId)}) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = id;
    if (::epoll_ctl(poller_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return Error::from_errno("epoll_ctl");
  }
  return {};
}

// ---- the way of a command

void ValkeyCore::submit(ValkeyCommandPtr command) {
  ++counters_.commands;
  ++pending_;
  if (closing_) return finish(std::move(command), {Error::make(Errc::closed, "directory"), false});
  if (pending_ > options_.pending_max) {
    ++counters_.refused_busy;
    return finish(std::move(command), {Error::make(Errc::busy, "directory"), false});
  }
  if (command->deadline == Instant{}) command->deadline = deadline();
  sweep_at_ = std::min(sweep_at_, command->deadline);
  route(std::move(command));
}

void ValkeyCore::finish(ValkeyCommandPtr&& command, ValkeyAnswer answer) {
  // std::function wants copies; one of these is made and used once.
  auto last = std::make_shared<std::pair<ValkeyCommandPtr, ValkeyAnswer>>(std::move(command),
                                                                          std::move(answer));
  ready_.push_back([last] { last->first->done(std::move(last->second)); });
}

const Endpoint* ValkeyCore::owner_of(const std::string& key) const {
  if (options_.mode != ValkeyOptions::Mode::cluster) return primary_ ? &*primary_ : nullptr;
  return topology_ ? topology_->owner(resp::key_slot(key)) : nullptr;
}

ValkeyLane& ValkeyCore::lane_of(const Endpoint& endpoint) {
  auto& lane = lanes_[endpoint];
  if (lane == nullptr)
    lane = std::make_unique<ValkeyLane>(endpoint, next_lane_++, poller_.get(), clock_);
  return *lane;
}

void ValkeyCore::route(ValkeyCommandPtr command) {
  const Endpoint* owner = owner_of(command->key);
  if (owner == nullptr) {
    homeless_.push_back(std::move(command));
    return want_location();
  }
  send_by(lane_of(*owner), std::move(command));
}

void ValkeyCore::send_by(ValkeyLane& lane, ValkeyCommandPtr command) {
  if (closing_) {
    const bool ran = command->may_have_run;
    return finish(std::move(command), {Error::make(Errc::closed, "directory"), ran});
  }
  const bool too_large = lane.state == ValkeyLane::State::up
                             ? command->bytes() > lane.batch_bytes_max()
                             : command->bytes() > 2048;
  if (!too_large) return lane.push(std::move(command));
  // A socket's buffer may not take it at once, and this thread does not wait.
  ++elsewhere_;
  connector_->run(lane.endpoint(), std::move(command),
                  [this, from = lane.endpoint()](ValkeyCommandPtr back, Result<Value> reply,
                                                 bool may_have_run) {
                    --elsewhere_;
                    if (reply.ok()) return on_reply(from, std::move(back), std::move(*reply));
                    if (may_have_run) return on_lost(std::move(back), reply.error());
                    finish(std::move(back), {reply.error(), false});
                  });
}

void ValkeyCore::on_reply(const Endpoint& from, ValkeyCommandPtr command, Value reply) {
  command->asking = false;
  if (!reply.is_error()) return finish(std::move(command), {std::move(reply), false});
  const ReplyError error = ReplyError::parse(reply.text());
  const ReplyFate fate = fate_of(error);
  const bool ran = fate == ReplyFate::failed || command->may_have_run;
  command->last = error_of(error);
  if (fate == ReplyFate::refused || fate == ReplyFate::failed ||
      ++command->turns > ValkeyDirectory::kTurnsMax)
    return finish(std::move(command), {error_of(error), ran});
  switch (fate) {
    case ReplyFate::no_script:
      if (command->script == nullptr || command->words[0] != "EVALSHA")
        return finish(std::move(command), {error_of(error), ran});
      ++counters_.scripts_sent;
      command->words[0] = "EVAL";
      command->words[1] = command->script->text;
      return route(std::move(command));
    case ReplyFate::redirected:
      ++counters_.redirections;
      return redirect(from, std::move(command), error);
    case ReplyFate::demoted:
      // Its connection leads to the wrong server; whoever is the right one is asked for.
      if (const auto lane = lanes_.find(from);
          lane != lanes_.end() && lane->second->state == ValkeyLane::State::up)
        lane_down(*lane->second, Error::make(Errc::unreachable, "no primary"));
      break;
    default:
      break;
  }
  ++counters_.retries;
  command->not_before =
      clock_.now() +
      std::min<Duration>(kBackoffFirst * (1 << std::min(command->turns, 6U)), kBackoffMax);
  patient_.push_back(std::move(command));
}

void ValkeyCore::redirect(const Endpoint& from, ValkeyCommandPtr command, const ReplyError& error) {
  Endpoint target = error.target;
  if (target.host.empty()) target.host = from.host;
  if (error.kind == ReplyError::Kind::moved) {
    if (topology_) topology_->move(error.slot, target);
    want_location();
  } else {
    command->asking = true;
  }
  send_by(lane_of(target), std::move(command));
}

// It was sent and there will be no reply.
void ValkeyCore::on_lost(ValkeyCommandPtr command, const Error& error) {
  if (!command->repeatable || ++command->turns > ValkeyDirectory::kTurnsMax)
    return finish(std::move(command), {error, true});
  ++counters_.retries;
  command->may_have_run = true;
  command->asking = false;
  command->last = error;
  route(std::move(command));
}

// ---- lanes

void ValkeyCore::lane_down(ValkeyLane& lane, const Error& error) {
  if (lane.state == ValkeyLane::State::up) ++counters_.losses;
  ++lane.generation;
  lane.drop();
  lane.backoff = longer(lane.backoff);
  lane.retry_at = clock_.now() + lane.backoff;
  if (options_.mode == ValkeyOptions::Mode::sentinel && primary_ == lane.endpoint())
    primary_.reset();
  if (options_.mode != ValkeyOptions::Mode::standalone) want_location();
  for (ValkeyCommandPtr& command : lane.take_lost()) on_lost(std::move(command), error);
  if (is_final(error.code)) {
    for (ValkeyCommandPtr& command : lane.take_waiting())
      finish(std::move(command), {error, command->may_have_run});
    return;
  }
  const bool homeless = !primary_ && options_.mode == ValkeyOptions::Mode::sentinel;
  for (ValkeyCommandPtr& command : lane.take_waiting()) {
    command->last = error;
    if (homeless) {
      homeless_.push_back(std::move(command));
    } else {
      lane.push(std::move(command));
    }
  }
}

void ValkeyCore::connect(ValkeyLane& lane) {
  lane.state = ValkeyLane::State::connecting;
  const std::uint64_t generation = ++lane.generation;
  connector_->connect(lane.endpoint(), [this, endpoint = lane.endpoint(), generation](auto result) {
    on_connected(endpoint, generation, std::move(result));
  });
}

void ValkeyCore::on_connected(const Endpoint& endpoint, std::uint64_t generation,
                              Result<std::unique_ptr<resp::Connection>> connection) {
  const auto found = lanes_.find(endpoint);
  if (found == lanes_.end() || found->second->generation != generation) return;
  ValkeyLane& lane = *found->second;
  if (!connection.ok()) return lane_down(lane, connection.error());
  ++counters_.connects;
  lane.open(std::move(connection).value());
}

void ValkeyCore::want_location() { location_wanted_ = true; }

void ValkeyCore::on_located(Result<ValkeyConnector::Located> located) {
  locating_ = false;
  if (!located.ok()) {
    location_wanted_ = true;
    locate_backoff_ = longer(locate_backoff_);
    locate_at_ = clock_.now() + locate_backoff_;
    for (ValkeyCommandPtr& command : homeless_) command->last = located.error();
    if (!is_final(located.code())) return;
    for (ValkeyCommandPtr& command : std::exchange(homeless_, {}))
      finish(std::move(command), {located.error(), command->may_have_run});
    return;
  }
  locate_backoff_ = longer(locate_backoff_);  // asked again soon, it is asked less often
  locate_at_ = clock_.now() + locate_backoff_;
  if (located->topology) topology_ = std::move(located->topology);
  if (located->primary) primary_ = std::move(located->primary);
  reroute();
}

void ValkeyCore::reroute() {
  std::vector<ValkeyCommandPtr> all = std::exchange(homeless_, {});
  for (auto at = lanes_.begin(); at != lanes_.end();) {
    for (ValkeyCommandPtr& command : at->second->take_waiting()) {
      if (command->asking) {
        at->second->push(std::move(command));
      } else {
        all.push_back(std::move(command));
      }
    }
    const bool known =
        topology_ ? std::ranges::find(topology_->nodes(), at->first) != topology_->nodes().end()
                  : primary_ == at->first;
    const bool gone = !known && at->second->idle();
    at = gone ? lanes_.erase(at) : std::next(at);
  }
  for (ValkeyCommandPtr& command : all) route(std::move(command));
}

// ---- time

bool ValkeyCore::expire() {
  const Instant now = clock_.now();
  if (now < sweep_at_) return false;
  std::vector<ValkeyCommandPtr> waiting, sent;
  const auto take = [now, &waiting](std::vector<ValkeyCommandPtr>& from) {
    const auto late = std::stable_partition(
        from.begin(), from.end(), [now](const ValkeyCommandPtr& c) { return c->deadline > now; });
    waiting.insert(waiting.end(), std::make_move_iterator(late),
                   std::make_move_iterator(from.end()));
    from.erase(late, from.end());
  };
  take(homeless_);
  take(patient_);
  std::vector<ValkeyLane*> hung;
  for (const auto& [endpoint, lane] : lanes_) {
    lane->take_expired(now, waiting, sent);
    if (lane->state == ValkeyLane::State::up && lane->oldest_sent() != Instant::max() &&
        now - lane->oldest_sent() >= options_.timeout)
      hung.push_back(lane.get());
  }
  counters_.timeouts += waiting.size() + sent.size();
  for (ValkeyCommandPtr& command : sent)
    finish(std::move(command), {Error::make(Errc::timeout, "directory"), true});
  for (ValkeyCommandPtr& command : waiting) {
    const Error error = command->last;
    finish(std::move(command), {error, command->may_have_run});
  }
  // A server that has answered nothing for that long is not worth waiting for.
  for (ValkeyLane* lane : hung) lane_down(*lane, Error::make(Errc::timeout, "directory"));

  sweep_at_ = Instant::max();
  for (const auto& [endpoint, lane] : lanes_)
    sweep_at_ = std::min(sweep_at_, lane->next_deadline());
  for (const auto* list : {&homeless_, &patient_}) {
    for (const ValkeyCommandPtr& command : *list)
      sweep_at_ = std::min(sweep_at_, command->deadline);
  }
  return true;
}

// Starts what is due: connections, locations, retries.
void ValkeyCore::maintain() {
  const Instant now = clock_.now();
  std::vector<ValkeyCommandPtr> due;
  std::erase_if(patient_, [&](ValkeyCommandPtr& command) {
    if (command->not_before > now) return false;
    due.push_back(std::move(command));
    return true;
  });
  for (ValkeyCommandPtr& command : due) route(std::move(command));
  if (location_wanted_ && !locating_ && now >= locate_at_) {
    location_wanted_ = false;
    locating_ = true;
    ++counters_.locates;
    connector_->locate(topology_ ? topology_->nodes() : std::vector<Endpoint>{},
                       [this](auto located) { on_located(std::move(located)); });
  }
  for (const auto& [endpoint, lane] : lanes_) {
    if (lane->state == ValkeyLane::State::down && lane->has_waiting() && now >= lane->retry_at)
      connect(*lane);
  }
}

void ValkeyCore::arm_timer() {
  Instant next = sweep_at_;
  if (location_wanted_ && !locating_) next = std::min(next, locate_at_);
  for (const ValkeyCommandPtr& command : patient_) next = std::min(next, command->not_before);
  for (const auto& [endpoint, lane] : lanes_) {
    if (lane->state == ValkeyLane::State::down && lane->has_waiting())
      next = std::min(next, lane->retry_at);
  }
  if (next != Instant::max())
    set_timer(std::max(next, clock_.now() + std::chrono::microseconds(100)));
}

// Firing too early costs one step; it is set anew then.
void ValkeyCore::set_timer(Instant when) {
  if (when >= armed_) return;
  armed_ = when;
  itimerspec spec{};
  const auto left = std::max<std::int64_t>((when - clock_.now()).count(), 1);
  spec.it_value.tv_sec = left / 1'000'000'000;
  spec.it_value.tv_nsec = left % 1'000'000'000;
  ::timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

// ---- the loop

void ValkeyCore::flush() {
  send_all();
  // Something ended here and now; step() is to be called for it.
  if (!ready_.empty()) set_timer(clock_.now());
}

void ValkeyCore::send_all() {
  maintain();
  std::vector<std::pair<ValkeyLane*, Error>> broken;
  for (const auto& [endpoint, lane] : lanes_) {
    if (const Status sent = lane->flush(); !sent.ok())
      broken.emplace_back(lane.get(), sent.error());
  }
  for (const auto& [lane, error] : broken) lane_down(*lane, error);
  arm_timer();
}

bool ValkeyCore::step() {
  std::array<epoll_event, kEventsMax> events;
  const int count = ::epoll_wait(poller_.get(), events.data(), kEventsMax, 0);
  for (int i = 0; i < count; ++i) {
    const std::uint64_t id = events[static_cast<std::size_t>(i)].data.u64;
    if (id == kConnectorId) {
      connector_->step();
      continue;
    }
    if (id == kTimerId) {
      std::uint64_t times = 0;
      static_cast<void>(::read(timer_.get(), &times, sizeof times));
      armed_ = Instant::max();
      continue;
    }
    const auto found =
        std::ranges::find_if(lanes_, [id](const auto& entry) { return entry.second->id() == id; });
    if (found == lanes_.end()) continue;
    ValkeyLane& lane = *found->second;
    const Endpoint from = lane.endpoint();
    // A reply may bring this or another lane down; none is destroyed here.
    std::vector<std::pair<ValkeyCommandPtr, Value>> replies;
    const Status status = lane.collect([&](ValkeyCommandPtr command, Value value) {
      replies.emplace_back(std::move(command), std::move(value));
    });
    for (auto& [command, value] : replies) on_reply(from, std::move(command), std::move(value));
    if (!status.ok() && lane.state == ValkeyLane::State::up) lane_down(lane, status.error());
  }
  expire();
  send_all();
  return run_ready();
}

// Only what is due now: a callback may start another operation.
bool ValkeyCore::run_ready() {
  std::deque<std::function<void()>> due = std::exchange(ready_, {});
  for (const auto& callback : due) {
    --pending_;
    callback();
  }
  return !due.empty();
}

ValkeyCore::~ValkeyCore() {
  closing_ = true;
  connector_->stop();
  connector_->step();
  const Error closed = Error::make(Errc::closed, "directory");
  const auto end = [&](std::vector<ValkeyCommandPtr> all, bool sent) {
    for (ValkeyCommandPtr& command : all) {
      const bool ran = sent || command->may_have_run;
      finish(std::move(command), {closed, ran});
    }
  };
  end(std::exchange(homeless_, {}), false);
  end(std::exchange(patient_, {}), false);
  for (const auto& [endpoint, lane] : lanes_) {
    end(lane->take_waiting(), false);
    end(lane->take_lost(), true);
  }
  while (run_ready()) {
  }
}

}  // namespace farlift::kv
