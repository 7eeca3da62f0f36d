#include "kvcache/client/reader.h"

#include "core/base/assert.h"
#include "kvcache/client/validate.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::client {
namespace {

// Bytes of reads posted on one link: enough for any wire, few enough that each of them is far from
// T_op.
constexpr std::uint64_t kWindowBytes = std::uint64_t{64} << 20;
constexpr std::size_t kLeasesMax = 4096;

}  // namespace

void Reader::start(ReadPurpose purpose, GetRequest request, std::shared_ptr<Landing> memory,
                   std::function<void(GetResult)> done) {
  auto owned = std::make_unique<Op>();
  Op& op = *owned;
  op.id = next_++;
  op.purpose = purpose;
  op.request = std::move(request);
  op.done = std::move(done);
  op.memory = std::move(memory);
  op.claimed = destinations_.claim(op.request.dest);
  op.deadline = core_.deadline();
  ops_.emplace(op.id, std::move(owned));
  timers_.set(op.id, op.due, op.deadline);
  starting_.push_back(op.id);
}

Reader::Op* Reader::find(OpId id) noexcept {
  const auto at = ops_.find(id);
  return at == ops_.end() ? nullptr : at->second.get();
}

void Reader::begin(Op& op) {
  const auto refuse = [&](const char* why) {
    core_.report([done = std::move(op.done), why] { done({Outcome::bad_arg, {}, {}, why}); });
    ++core_.counters.gets[static_cast<std::size_t>(Outcome::bad_arg)];
    drop(op);
  };
  if (!valid_key(op.request.key)) return refuse("a key has 1 to 1024 bytes");
  if (!op.request.dest.empty() && op.memory == nullptr) {
    return refuse("the destination is not in registered memory");
  }
  if (!op.claimed) return refuse("the destination overlaps that of another read");
  const Cached* cached = core_.cache.find(op.request.key, core_.now());
  if (cached != nullptr && cached->descriptor.version.rev() >= op.request.min_rev) {
    ++core_.counters.cache_hits;
    op.found = *cached;
    return to_link(op);
  }
  ++core_.counters.cache_misses;
  resolve(op);
}

void Reader::resolve(Op& op) {
  op.phase = Phase::resolving;
  timers_.set(op.id, op.due, op.deadline);
  core_.resolver.ask(op.request.key,
                     [this, id = op.id](const Resolved& answer) { resolved(id, answer); });
}

void Reader::resolved(OpId id, const Resolved& answer) {
  Op* const op = find(id);
  if (op == nullptr) return;  // its time was over
  if (!answer.pair.ok()) return finish(*op, Outcome::control_down);
  const Verified verified =
      verify(core_.options, core_.keys, op->request.key, *answer.pair, op->request.min_rev);
  if (verified.outcome != Outcome::ok) return failed(*op, verified.outcome, false);
  // The node's card refused exactly this one a moment ago (9.7).
  if (op->refused && *op->refused == verified.descriptor) {
    // It outlived its generation (a fail-over, a replay): its owner alone may remove it.
    const Location& location = verified.descriptor.location;
    if (NodeLink* const link = core_.links.ready(location.node, location.incarnation)) {
      tell_stale(*op, *link, location);
    }
    return failed(*op, Outcome::access, false);
  }
  op->found = Cached{verified.descriptor, answer.asked};
  core_.cache.insert(op->request.key, verified.descriptor, answer.stamp, answer.asked);
  to_link(*op);
}

void Reader::to_link(Op& op) {
  const Location& location = op.found.descriptor.location;
  if (NodeLink* const link = core_.links.ready(location.node, location.incarnation)) {
    return at_link(op, *link);
  }
  op.phase = Phase::linking;
  core_.links.want(
      {location.node, location.incarnation, {}, false},
      [this, id = op.id](Outcome outcome, NodeLink* link) { linked(id, outcome, link); });
}

void Reader::linked(OpId id, Outcome outcome, NodeLink* link) {
  Op* const op = find(id);
  if (op == nullptr || op->phase != Phase::linking) return;
  if (outcome == Outcome::ok) return at_link(*op, *link);
  if (outcome == Outcome::stale && link != nullptr) {
    // The living incarnation alone may remove what a dead one published (9.4).
    tell_stale(*op, *link, op->found.descriptor.location);
  }
  failed(*op, outcome, false);
}

void Reader::tell_stale(const Op& op, NodeLink& link, const Location& location) {
  ++core_.counters.stale_seen_sent;
  link.request(FrameType::stale_seen, encode(StaleSeenRequest{op.request.key, location}),
               [](const Result<Bytes>&) {});
}

void Reader::at_link(Op& op, NodeLink& link) {
  const Descriptor& descriptor = op.found.descriptor;
  if (descriptor.rkeys.size() > link.rails()) return failed(op, Outcome::reject_format, false);
  if (op.purpose == ReadPurpose::look) {
    lease(descriptor.location);
    return finish(op, Outcome::ok);
  }
  if (descriptor.length.raw() > op.request.dest.size())
    return failed(op, Outcome::too_small, false);
  op.phase = Phase::waiting;
  link.window().waiting.push_back(op.id);
}

bool Reader::may_post(const NodeLink::Window& window, const Op& op) const noexcept {
  if (window.posted == 0) return true;
  return window.posted < core_.options.in_flight_max &&
         window.posted_bytes + op.found.descriptor.length.raw() <= kWindowBytes;
}

bool Reader::pump(NodeLink& link) {
  bool moved = false;
  auto& window = link.window();
  while (!window.waiting.empty()) {
    Op* const op = find(window.waiting.front());
    if (op != nullptr && link.state() == NodeLink::State::up) {
      if (core_.cache.fresh(op->found.asked, core_.now())) {
        if (!may_post(window, *op) || !post(*op, link)) return moved;
      } else {
        resolve(*op);  // it waited longer than L
      }
    } else if (op != nullptr) {
      to_link(*op);  // re-HELLO before the post
    }
    window.waiting.pop_front();
    moved = true;
  }
  return moved;
}

// False: it has to wait for a place for its header.
bool Reader::post(Op& op, NodeLink& link) {
  const Descriptor& descriptor = op.found.descriptor;
  const bool framed = op.request.mode == ReadMode::framed || descriptor.length.raw() == 0;
  Movement movement;
  movement.payload = op.request.dest.first(descriptor.length.raw());
  movement.memory = op.memory;
  movement.addr = descriptor.location.addr;
  movement.rkeys = descriptor.rkeys;
  op.header = {};
  if (framed) {
    const auto header = core_.headers.take();
    if (!header) return false;
    op.header = movement.header = *header;
    movement.headers = &core_.headers;
  } else {
    movement.addr = movement.addr + Offset(kHeaderBytes);
  }
  op.phase = Phase::posted;
  op.link = &link;
  ++op.reads;
  ++core_.counters.reads_posted;
  timers_.set(op.id, op.due, std::min(core_.now() + core_.options.operation_limit, op.deadline));
  auto& window = link.window();
  ++window.posted;
  window.posted_bytes += descriptor.length.raw();
  const auto over = [this, id = op.id, at = &link,
                     bytes = descriptor.length.raw()](const Moved& moved) {
    --at->window().posted;
    at->window().posted_bytes -= bytes;
    landed_.emplace_back(id, moved);
  };
  const Status started = link.move(std::move(movement), over);
  if (!started.ok()) over(Moved{started, {}});
  return true;
}

bool Reader::step() {
  bool moved = !starting_.empty();
  while (!starting_.empty()) {
    const OpId id = starting_.front();
    starting_.pop_front();
    if (Op* const op = find(id)) begin(*op);
  }
  core_.links.each([&](NodeLink& link) { moved = pump(link) || moved; });
  while (const OpId id = timers_.due(core_.now())) {
    expire(*find(id));
    moved = true;
  }
  return touch() || moved;
}

bool Reader::collect() {
  if (landed_.empty()) return false;
  auto now = std::move(landed_);
  landed_.clear();
  for (const auto& [id, moved] : now) landed(id, moved);
  return true;
}

void Reader::landed(OpId id, const Moved& moved) {
  Op* const op = find(id);
  if (op == nullptr) return;
  NodeLink& link = *std::exchange(op->link, nullptr);
  if (!moved.status.ok()) {
    const bool refused = moved.status.code() == Errc::access;
    // Any endpoint error ends the link (9.4); of a refusal only where the connection goes with it.
    if (!refused || link.refusal_ends_link()) link.cut("a read over it failed");
    if (op->late) return failed(*op, Outcome::timeout, false);
    if (refused) op->refused = op->found.descriptor;
    return failed(*op, refused ? Outcome::access : Outcome::unreachable, true);
  }
  if (op->late) return failed(*op, Outcome::timeout, false);
  const Outcome outcome =
      validate(op->found.descriptor, {op->header, moved.crc}, planted(core_.options));
  if (outcome != Outcome::ok) return failed(*op, outcome, true);
  sample(link, op->found.descriptor.key_hash);
  finish(*op, Outcome::ok);
}

// Every failed read drops what is cached; some may try once more with a fresh descriptor (9.7,
// 9.8).
void Reader::failed(Op& op, Outcome outcome, bool retry) {
  core_.cache.drop(op.request.key);
  if (outcome == Outcome::reject_nosig || outcome == Outcome::reject_sig ||
      outcome == Outcome::reject_format) {
    ++core_.counters.rejects;
  }
  if (!retry || op.reads >= 2 || core_.now() >= op.deadline) return finish(op, outcome);
  ++core_.counters.reads_retried;
  resolve(op);
}

void Reader::finish(Op& op, Outcome outcome) {
  GetResult result;
  result.outcome = outcome;
  if (outcome == Outcome::ok || outcome == Outcome::too_small) {
    result.length = op.found.descriptor.length;
    result.version = op.found.descriptor.version;
  }
  if (outcome == Outcome::ok && op.purpose == ReadPurpose::get) {
    core_.counters.bytes_read += result.length.raw();
  }
  ++core_.counters.gets[static_cast<std::size_t>(outcome)];
  core_.report([done = std::move(op.done), result] { done(result); });
  drop(op);
}

void Reader::drop(Op& op) {
  timers_.drop(op.id, op.due);
  if (op.claimed) destinations_.release(op.request.dest);
  ops_.erase(op.id);
}

// Its time is over. What is posted is cut off first: the caller gets its memory back only when
// nothing can land in it (quiet rule); the neighbours on the link end as flushed.
void Reader::expire(Op& op) {
  switch (op.phase) {
    case Phase::resolving:
      return failed(op, Outcome::control_down, false);
    case Phase::linking:
      return failed(op, Outcome::unreachable, false);
    case Phase::waiting:
      return failed(op, Outcome::timeout, false);
    case Phase::posted:
      break;
  }
  ++core_.counters.timeouts;
  if (planted(core_.options).report_on_soft_timeout) return failed(op, Outcome::timeout, false);
  op.late = true;
  timers_.drop(op.id, op.due);
  op.link->close("an operation outlived its limit");
  collect();
}

Instant Reader::next_deadline() const noexcept {
  return touches_wait_ ? std::min(touch_at_, timers_.next()) : timers_.next();
}

void Reader::end_all() {
  collect();
  while (!ops_.empty()) finish(*ops_.begin()->second, Outcome::timeout);
}

// Reservoir sampling: each read of the interval has the same chance to be told.
void Reader::sample(NodeLink& link, KeyHash hash) {
  constexpr std::size_t kTouchesMax = 256;
  if (!touches_wait_) {
    touches_wait_ = true;
    touch_at_ = core_.now() + core_.options.touch_every;
  }
  auto& touched = link.touched();
  const std::uint64_t seen = link.touches_seen++;
  if (touched.size() < kTouchesMax) return touched.push_back(hash);
  const std::uint64_t at = prng_.below(seen + 1);
  if (at < kTouchesMax) touched[at] = hash;
}

bool Reader::touch() {
  if (!touches_wait_ || core_.now() < touch_at_) return false;
  touches_wait_ = false;
  core_.links.each([&](NodeLink& link) {
    if (link.touched().empty()) return;
    core_.counters.touches_sent += link.touched().size();
    link.tell(FrameType::touch, encode(TouchRequest{std::move(link.touched())}));
    link.touched().clear();
    link.touches_seen = 0;
  });
  return true;
}

void Reader::lease(const Location& location) {
  const Duration time = core_.options.reader_lease;
  if (time.count() <= 0) return;
  const Instant now = core_.now();
  if (leases_.size() >= kLeasesMax) leases_.clear();
  const auto [at, fresh] =
      leases_.try_emplace({location.node, location.incarnation, location.arena}, now);
  if (!fresh && now - at->second < time / 2) return;
  at->second = now;
  ++core_.counters.leases_taken;
  core_.environment.directory.take_lease(location.node, location.incarnation, location.arena,
                                         core_.client_id, time, [](const Status&) {});
}

}  // namespace farlift::kv::client
