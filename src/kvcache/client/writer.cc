#include "kvcache/client/writer.h"

#include "core/base/assert.h"
#include "core/digest/crc32c.h"
#include "kvcache/client/placement.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::client {
namespace {

// Hashed in one step(), so that reads are not kept waiting by a large put.
constexpr std::size_t kHashedAtOnce = std::size_t{4} << 20;
// Of puts that are under way: few enough that each of them is far from T_op on any wire.
constexpr std::uint64_t kActiveBytesMax = std::uint64_t{256} << 20;

}  // namespace

void Writer::start(PutRequest request, std::shared_ptr<Landing> memory,
                   std::function<void(PutResult)> done) {
  auto owned = std::make_unique<Op>();
  Op& op = *owned;
  op.id = next_++;
  op.request = std::move(request);
  op.done = std::move(done);
  op.memory = std::move(memory);
  op.deadline = core_.deadline();
  ops_.emplace(op.id, std::move(owned));
  timers_.set(op.id, op.due, op.deadline);
  waiting_.push_back(op.id);
}

Writer::Op* Writer::find(OpId id) noexcept {
  const auto at = ops_.find(id);
  return at == ops_.end() ? nullptr : at->second.get();
}

bool Writer::may_begin(const Op& op) const noexcept {
  if (active_ == 0) return true;
  return active_ < core_.options.puts_active_max &&
         active_bytes_ + op.request.source.size() <= kActiveBytesMax;
}

bool Writer::admit() {
  bool any = false;
  while (!waiting_.empty()) {
    Op* const op = find(waiting_.front());  // null: its time was over
    if (op != nullptr && !may_begin(*op)) break;
    waiting_.pop_front();
    any = true;
    if (op == nullptr) continue;
    ++active_;
    active_bytes_ += op->request.source.size();
    begin(*op);
  }
  return any;
}

void Writer::begin(Op& op) {
  op.active = true;
  if (!valid_key(op.request.key)) {
    return finish(op, Outcome::bad_arg, {}, "a key has 1 to 1024 bytes");
  }
  core_.cache.drop(op.request.key);
  if (!op.request.source.empty() && op.memory == nullptr) {
    return finish(op, Outcome::bad_arg, {}, "the source is not in registered memory");
  }
  op.phase = Phase::hashing;
  hashing_.push_back(op.id);
}

bool Writer::hash_some() {
  std::size_t budget = kHashedAtOnce;
  const bool moved = !hashing_.empty();
  while (!hashing_.empty() && budget > 0) {
    Op* const op = find(hashing_.front());
    if (op == nullptr) {
      hashing_.pop_front();
      continue;
    }
    const std::size_t now = std::min(budget, op->request.source.size() - op->hashed);
    op->crc = digest::crc32c_extend(op->crc, op->request.source.subspan(op->hashed, now));
    op->hashed += now;
    budget -= now;
    if (op->hashed < op->request.source.size()) break;
    hashing_.pop_front();
    place_op(*op);
  }
  return moved;
}

void Writer::place_op(Op& op) {
  op.phase = Phase::placing;
  nodes_.ask([this, id = op.id](const Result<NodeList::Nodes>& nodes) { placed(id, nodes); });
}

void Writer::placed(OpId id, const Result<NodeList::Nodes>& nodes) {
  Op* const op = find(id);
  if (op == nullptr) return;
  if (!nodes.ok()) return finish(*op, Outcome::control_down);
  const Length length(op->request.source.size());
  op->nodes = place(op->request.key, length, *nodes, core_.options.ramp_up);
  if (op->nodes.size() > core_.options.nodes_tried_max) {
    op->nodes.resize(core_.options.nodes_tried_max);
  }
  if (op->nodes.empty() && !std::exchange(op->asked_anew, true)) {
    // Nobody, or nobody who had room: that is worth an answer of now before it is believed.
    return nodes_.ask([this, id](const Result<NodeList::Nodes>& now) { placed(id, now); },
                      core_.now());
  }
  if (op->nodes.empty()) {
    // Somebody is there, but nobody has room; or nobody is there.
    return finish(*op, nodes->empty() ? Outcome::unreachable : Outcome::full);
  }
  try_node(*op);
}

void Writer::try_node(Op& op) {
  const NodeRecord& node = op.nodes[op.at];
  if (op.incarnation.raw() == 0) core_.environment.random(op.put_id);
  op.phase = Phase::linking;
  op.link = nullptr;
  timers_.set(op.id, op.due, op.deadline);
  LinkWant want;
  want.node = node.node;
  // A repeat is for the node that may have it already; anybody else would put it a second time.
  if (op.incarnation.raw() != 0) {
    want.incarnation = op.incarnation;
  } else {
    want.record = node;
  }
  want.as_target = !op.request.push;
  core_.links.want(std::move(want), [this, id = op.id](Outcome outcome, NodeLink* link) {
    linked(id, outcome, link);
  });
}

void Writer::linked(OpId id, Outcome outcome, NodeLink* link) {
  Op* const op = find(id);
  if (op == nullptr || op->phase != Phase::linking) return;
  if (outcome != Outcome::ok) {
    nodes_.forget();
    if (op->incarnation.raw() != 0) return finish(*op, Outcome::unreachable);  // unknown
    return next_node(*op, outcome == Outcome::stale ? Outcome::unreachable : outcome);
  }
  if (op->request.push && link->fence_mode() != FenceWord::mr) {
    return finish(*op, Outcome::bad_arg, {}, "this node's rails cannot take a push back: use pull");
  }
  op->incarnation = link->incarnation();
  op->link = link;
  timers_.set(op->id, op->due,
              std::min(op->deadline, core_.now() + core_.options.operation_limit +
                                         core_.options.control_timeout));
  if (op->request.push) {
    alloc(*op, *link);
  } else {
    pull(*op, *link);
  }
}

void Writer::pull(Op& op, NodeLink& link) {
  PutPullRequest request;
  request.put_id = op.put_id;
  request.key = op.request.key;
  request.length = Length(op.request.source.size());
  request.crc = op.crc;
  request.mode = op.request.mode;
  request.expected = op.request.expected;
  if (op.memory != nullptr) {
    if (!op.memory->lend(core_.domains, core_.counters).ok()) {
      return finish(op, Outcome::bad_arg, {}, "the source cannot be registered for reading");
    }
    const auto from =
        static_cast<std::uint64_t>(op.request.source.data() - op.memory->bytes().data());
    request.source = op.memory->source(0).addr() + Offset(from);
    for (std::size_t i = 0; i < op.memory->rails(); ++i) {
      // One address serves all rails: those that count differently are left out.
      if (op.memory->source(i).addr() != op.memory->source(0).addr()) break;
      request.source_rkeys.push_back(op.memory->source(i).key());
    }
  } else {
    request.source_rkeys.assign(core_.domains.size(), RKey(0));  // nothing to read
  }
  op.phase = Phase::asked;
  link.request(FrameType::put_pull, encode(request),
               [this, id = op.id](const Result<Bytes>& body) { answered(id, body); });
}

void Writer::alloc(Op& op, NodeLink& link) {
  op.phase = Phase::asked;
  AllocRequest request;
  request.put_id = op.put_id;
  request.key = op.request.key;
  request.length = Length(op.request.source.size());
  link.request(FrameType::alloc, encode(request),
               [this, id = op.id](const Result<Bytes>& body) { allocated(id, body); });
}

void Writer::allocated(OpId id, const Result<Bytes>& body) {
  Op* const op = find(id);
  if (op == nullptr) return;
  if (!body.ok()) return lost(*op);
  const auto reply = decode_alloc_reply(*body);
  if (!reply.ok()) {
    op->link->cut("its ALLOC reply is not one");
    return finish(*op, Outcome::unreachable);
  }
  if (reply->outcome == Outcome::full) return next_node(*op, Outcome::full);
  if (reply->outcome != Outcome::ok) return finish(*op, reply->outcome);
  op->slot_id = reply->slot_id;
  if (op->request.source.empty()) return seal(*op);
  write(*op, *reply);
}

void Writer::write(Op& op, const AllocReply& slot) {
  op.phase = Phase::writing;
  Movement movement;
  movement.kind = fabric::OpKind::write;
  // A write never changes what it sends; the fabric's span is not const because reads share it.
  movement.payload = {const_cast<std::byte*>(op.request.source.data()), op.request.source.size()};
  movement.memory = op.memory;
  movement.addr = slot.payload;
  movement.rkeys = slot.grant_rkeys;
  const auto over = [this, id = op.id](const Moved& moved) { written_.emplace_back(id, moved); };
  const Status started = op.link->move(std::move(movement), over);
  if (!started.ok()) over(Moved{started, {}});
}

bool Writer::collect() {
  if (written_.empty()) return false;
  const auto now = std::move(written_);
  written_.clear();
  for (const auto& [id, moved] : now) written(id, moved);
  return true;
}

void Writer::written(OpId id, const Moved& moved) {
  Op* const op = find(id);
  if (op == nullptr) return;
  NodeLink& link = *op->link;
  if (!moved.status.ok()) {
    const bool refused = moved.status.code() == Errc::access;
    if (refused && !link.refusal_ends_link()) {
      link.request(FrameType::abort, encode(AbortRequest{op->slot_id}),
                   [](const Result<Bytes>&) {});
    } else {
      link.cut("a write over it failed");
    }
    if (op->late) return finish(*op, Outcome::timeout);
    return finish(*op, refused ? Outcome::access : Outcome::unreachable);
  }
  if (op->late || link.state() != NodeLink::State::up) return finish(*op, Outcome::timeout);
  seal(*op);
}

void Writer::seal(Op& op) {
  op.phase = Phase::asked;
  SealRequest request;
  request.put_id = op.put_id;
  request.slot_id = op.slot_id;
  request.crc = op.crc;
  request.mode = op.request.mode;
  request.expected = op.request.expected;
  op.link->request(FrameType::seal, encode(request),
                   [this, id = op.id](const Result<Bytes>& body) { answered(id, body); });
}

void Writer::answered(OpId id, const Result<Bytes>& body) {
  Op* const op = find(id);
  if (op == nullptr) return;
  if (!body.ok()) return lost(*op);
  const auto reply = decode_put_reply(*body);
  if (!reply.ok()) {
    op->link->cut("its reply to a put is not one");
    return finish(*op, Outcome::unreachable);
  }
  if (reply->outcome == Outcome::full) return next_node(*op, Outcome::full);
  finish(*op, reply->outcome, reply->version);
}

// The control connection went while the node had the request. Its endpoints of ours are closed, so
// nothing reads the source any more; whether the value was published the node alone can say: it is
// asked once more, with the same put_id.
void Writer::lost(Op& op) {
  op.link = nullptr;
  if (op.resent || op.request.push || core_.now() >= op.deadline) {
    return finish(op, Outcome::unreachable);
  }
  op.resent = true;
  ++core_.counters.puts_resent;
  try_node(op);
}

void Writer::next_node(Op& op, Outcome outcome) {
  if (++op.at >= op.nodes.size() || core_.now() >= op.deadline) return finish(op, outcome);
  ++core_.counters.puts_elsewhere;
  op.incarnation = Incarnation(0);
  op.resent = false;
  try_node(op);
}

// Until now the node may read the source, or writes of ours are out. The link's endpoints are
// closed, then the put is reported (7.2a).
void Writer::expire(Op& op) {
  if (op.phase == Phase::waiting) return finish(op, Outcome::timeout);
  if (op.phase == Phase::placing) return finish(op, Outcome::control_down);
  if (op.phase == Phase::hashing) return finish(op, Outcome::timeout);
  if (op.phase == Phase::linking) return finish(op, Outcome::unreachable);
  ++core_.counters.timeouts;
  timers_.drop(op.id, op.due);
  op.late = true;
  NodeLink& link = *op.link;
  const bool writing = op.phase == Phase::writing;
  if (planted(core_.options).report_on_soft_timeout) return finish(op, Outcome::timeout);
  if (!writing) {
    finish(op, Outcome::timeout);  // reported at the end of step(), after the close below
    return link.close("a put outlived its limit");
  }
  link.close("a put outlived its limit");
  collect();
}

void Writer::finish(Op& op, Outcome outcome, Version version, const char* why) {
  PutResult result;
  result.outcome = outcome;
  result.version = version;
  result.why = why;
  if (op.at < op.nodes.size()) result.node = op.nodes[op.at].node;
  core_.cache.drop(op.request.key);
  if (outcome == Outcome::ok) core_.counters.bytes_written += op.request.source.size();
  ++core_.counters.puts[static_cast<std::size_t>(outcome)];
  if (op.active) {
    --active_;
    active_bytes_ -= op.request.source.size();
  }
  timers_.drop(op.id, op.due);
  core_.report([done = std::move(op.done), result] { done(result); });
  ops_.erase(op.id);
}

bool Writer::step() {
  const bool begun = admit();
  bool moved = hash_some() || begun;
  while (const OpId id = timers_.due(core_.now())) {
    expire(*find(id));
    moved = true;
  }
  return moved;
}

void Writer::end_all() {
  collect();
  while (!ops_.empty()) finish(*ops_.begin()->second, Outcome::timeout);
}

}  // namespace farlift::kv::client
