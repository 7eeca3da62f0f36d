#include "kvcache/node/pulls.h"

#include "core/base/assert.h"
#include "core/digest/crc32c.h"
#include "kvcache/node/put_rules.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {
namespace {

constexpr std::uint64_t kStripeMin = std::uint64_t{1}
                                     << 20;  // a part shorter than this gains nothing

// A neighbour's fault, or a link that broke: worth one more try (spec kv 3).
bool retryable(const Error& error) noexcept {
  return error.code == Errc::flushed || error.code == Errc::connection_lost ||
         error.code == Errc::aborted;
}

Outcome outcome_of(const Error& error) noexcept {
  switch (error.code) {
    case Errc::access:
    case Errc::out_of_range:
      return Outcome::access;
    case Errc::timeout:
      return Outcome::timeout;
    default:
      return Outcome::unreachable;
  }
}

}  // namespace

Outcome Pulls::refusal(const Tenant& tenant, const PutPullRequest& request,
                       const std::vector<std::optional<fabric::Address>>& sources) const {
  const Outcome common = refuse_put(core_, request.key, request.length);
  if (common != Outcome::ok) return common;
  if (request.length.raw() == 0) return Outcome::ok;
  if (request.source_rkeys.size() != tenant.rails()) return Outcome::bad_arg;
  if (request.length.raw() - 1 > UINT64_MAX - request.source.raw()) return Outcome::bad_arg;
  const bool reachable = std::any_of(sources.begin(), sources.end(),
                                     [](const auto& source) { return source.has_value(); });
  return reachable ? Outcome::ok : Outcome::bad_arg;
}

void Pulls::start(Tenant& tenant, PutPullRequest request,
                  const std::vector<std::optional<fabric::Address>>& sources,
                  const Outcomes::Reply& reply) {
  core_.counters.add(Count::puts_pull);
  PutReply refused;
  if (!valid_key(request.key)) {
    refused.outcome = Outcome::bad_arg;
    return reply(refused);
  }
  const KeyHash hash = tenant.key_hash(request.key);
  switch (outcomes_.begin(tenant.name(), request.put_id, hash, reply)) {
    case Outcomes::Begun::first:
      break;
    case Outcomes::Begun::repeat:
      return core_.counters.add(Count::put_repeats);
    case Outcomes::Begun::mismatch:
      refused.outcome = Outcome::bad_arg;
      return reply(refused);
  }
  refused.outcome = refusal(tenant, request, sources);
  std::optional<SlotRef> slot;
  if (refused.outcome == Outcome::ok) {
    slot = tenant.reserve(request.key, request.length);
    if (!slot) refused.outcome = Outcome::full;  // at once: nobody waits for a rotation
  }
  if (!slot) {
    count_outcome(core_, refused.outcome);
    return outcomes_.forget(tenant.name(), request.put_id, refused);
  }
  const std::uint64_t id = next_id_++;
  Pull& pull = pulls_[id];
  pull.id = id;
  pull.tenant = &tenant;
  pull.slot = *slot;
  pull.request = std::move(request);
  pull.sources = sources;
  pull.until = core_.now() + core_.options.operation_limit;
  deadlines_.emplace_back(pull.until, id);
  cut(pull);
  if (pull.parts.empty()) return close(pull);
  for (std::size_t i = 0; i < pull.parts.size(); ++i) {
    if (pull.failure) break;
    submit(pull, i);
  }
  if (pull.open == 0) close(pull);
}

// One part a rail for what is long, else one rail in turn.
void Pulls::cut(Pull& pull) {
  std::vector<std::size_t> rails;
  for (std::size_t rail = 0; rail < pull.sources.size(); ++rail) {
    if (pull.sources[rail]) rails.push_back(rail);
  }
  const std::uint64_t length = pull.request.length.raw();
  if (length == 0) return;
  const std::uint64_t parts =
      std::clamp<std::uint64_t>(length / kStripeMin, 1, static_cast<std::uint64_t>(rails.size()));
  std::uint64_t from = 0;
  for (std::uint64_t i = 0; i < parts; ++i) {
    const std::uint64_t to = i + 1 == parts ? length : length / parts * (i + 1);
    Part part;
    part.rail = rails[(next_rail_ + i) % rails.size()];
    part.offset = Offset(from);
    part.length = Length(to - from);
    pull.parts.push_back(part);
    from = to;
  }
  next_rail_ += parts;
}

void Pulls::submit(Pull& pull, std::size_t number) {
  Part& part = pull.parts[number];
  transfer::Engine* const engine = pull.tenant->engine(part.rail);
  part.over = engine == nullptr;
  if (engine == nullptr) {
    pull.failure = Error::make(Errc::unreachable, "initiator");
    return;
  }
  transfer::Job job;
  job.kind = fabric::OpKind::read;
  job.peer = *pull.sources[part.rail];
  job.local.push_back({pull.slot.arena->payload_for_write(pull.slot.index)
                           .subspan(part.offset.raw(), part.length.raw()),
                       pull.slot.arena->registration(part.rail)});
  job.remote.push_back(
      {pull.request.source_rkeys[part.rail], pull.request.source + part.offset, part.length});
  job.compute_crc = true;
  ++pull.open;
  part.transfer = engine->submit(
      std::move(job), transfer::lend(core_.guarded(
                          [this, id = pull.id, number](const transfer::TransferOutcome& outcome) {
                            part_over(id, number, outcome);
                          })));
}

void Pulls::part_over(std::uint64_t id, std::size_t number,
                      const transfer::TransferOutcome& outcome) {
  const auto at = pulls_.find(id);
  ASSERT(at != pulls_.end());
  Pull& pull = at->second;
  Part& part = pull.parts[number];
  ASSERT(pull.open > 0 && !part.over);
  --pull.open;
  part.over = true;
  if (outcome.status.ok()) {
    part.crc = outcome.crc;
  } else if (!pull.failure && !pull.timed_out && !part.retried &&
             retryable(outcome.status.error()) && core_.now() < pull.until) {
    core_.counters.add(Count::pull_retries);
    part.retried = true;
    part.over = false;
    submit(pull, number);
  } else if (!pull.failure) {
    pull.failure = outcome.status.error();
  }
  if (pull.failure) cancel_parts(pull);
  if (pull.open == 0) close(pull);
}

void Pulls::cancel_parts(Pull& pull) {
  for (const Part& part : pull.parts) {
    if (part.over || part.transfer.raw() == 0) continue;
    if (auto* const engine = pull.tenant->engine(part.rail)) engine->cancel(part.transfer);
  }
}

// Nothing reads into the slot any more.
void Pulls::close(Pull& pull) {
  const auto node = pulls_.extract(pull.id);
  Pull& over = node.mapped();
  const SlotRef slot = over.slot;
  ASSERT(slot.valid() && slot.slot().state() == SlotState::reserved);
  digest::Crc32cStream crc;
  for (const Part& part : over.parts) crc.append(part.crc, part.length);
  PutReply refused;
  if (over.timed_out) {
    refused.outcome = Outcome::timeout;
  } else if (over.failure) {
    refused.outcome = outcome_of(*over.failure);
  } else if (crc.value() != over.request.crc) {
    refused.outcome = Outcome::bad_crc;
  }
  if (refused.outcome != Outcome::ok) {
    slot.arena->slots().release(slot.index);
    if (over.timed_out) return;  // told before
    count_outcome(core_, refused.outcome);
    return outcomes_.finish(over.tenant->name(), over.request.put_id, refused, core_.now());
  }
  core_.counters.add(Count::put_bytes, over.request.length.raw());
  PublishTask task;
  task.tenant = over.tenant;
  task.slot = slot;
  task.crc = crc.value();
  task.mode = over.request.mode;
  task.expected = over.request.expected;
  task.done = [this, tenant = over.tenant, id = over.request.put_id](const PutReply& reply) {
    count_outcome(core_, reply.outcome);
    outcomes_.finish(tenant->name(), id, reply, core_.now());
  };
  publisher_.start(std::move(task));
}

void Pulls::time_out(Pull& pull) {
  pull.timed_out = true;
  PutReply reply;
  reply.outcome = Outcome::timeout;
  count_outcome(core_, reply.outcome);
  outcomes_.finish(pull.tenant->name(), pull.request.put_id, reply, core_.now());
  patience_.emplace_back(core_.now() + kPatience, pull.id);
  cancel_parts(pull);
}

// Its peer neither answers nor goes away: the engine closes over it, so that neither the slot nor
// places in flight are held for ever. Other pulls of the rail are tried again.
void Pulls::force(Pull& pull) {
  Tenant& tenant = *pull.tenant;
  std::vector<std::size_t> rails;
  for (const Part& part : pull.parts) {
    if (!part.over) rails.push_back(part.rail);
  }
  for (const std::size_t rail : rails) tenant.replace_engine(rail);  // `pull` goes with the last
}

bool Pulls::step() {
  bool any = false;
  const Instant now = core_.now();
  while (!deadlines_.empty()) {
    const auto [until, id] = deadlines_.front();
    const auto at = pulls_.find(id);
    if (at != pulls_.end() && until > now) break;
    deadlines_.pop_front();
    if (at == pulls_.end()) continue;
    time_out(at->second);
    any = true;
  }
  while (!patience_.empty()) {
    const auto [until, id] = patience_.front();
    const auto at = pulls_.find(id);
    if (at != pulls_.end() && until > now) break;
    patience_.pop_front();
    if (at == pulls_.end()) continue;
    force(at->second);
    any = true;
  }
  return any;
}

Instant Pulls::next_deadline() const noexcept {
  Instant next = Instant::max();
  if (!deadlines_.empty()) next = std::min(next, deadlines_.front().first);
  if (!patience_.empty()) next = std::min(next, patience_.front().first);
  return next;
}

}  // namespace farlift::kv::node
