#include "kvcache/node/announcer.h"

#include <algorithm>
#include <utility>

namespace farlift::kv::node {

bool Announcer::step() {
  if (core_.room_came && state_ == State::announcing && !waiting_) {
    core_.room_came = false;
    due_ = std::min(due_, told_ + kSoonest);
  }
  if (waiting_ || core_.now() < due_ || state_ == State::retracted) return false;
  waiting_ = true;
  due_ = core_.now() + kNodeRenew;
  switch (state_) {
    case State::looking:
      look();
      break;
    case State::announcing:
      announce();
      break;
    case State::retracting:
      core_.directory().retract(core_.options.id, core_.guarded([this](const Status& status) {
        waiting_ = false;
        if (!status.ok()) return;
        state_ = State::retracted;
        if (retracted_) retracted_();
      }));
      break;
    case State::retracted:
      break;
  }
  return true;
}

void Announcer::look() {
  core_.directory().find_node(
      core_.options.id, core_.guarded([this](const Result<std::optional<NodeRecord>>& found) {
        waiting_ = false;
        if (!found.ok()) {
          // A record that cannot be read is nobody's; only a directory that is away is waited for.
          if (directory_lost(found.error())) return core_.directory_answered(false);
        } else if (found->has_value() && (*found)->incarnation != core_.incarnation) {
          last_port_ = (*found)->port;
          avoid_(last_port_);
        }
        if (state_ == State::looking) state_ = State::announcing;
        due_ = core_.now();
      }));
}

NodeRecord Announcer::record() const {
  NodeRecord record;
  record.node = core_.options.id;
  record.incarnation = core_.incarnation;
  record.host =
      core_.options.advertise_host.empty() ? core_.options.listen_ip : core_.options.advertise_host;
  record.port = port_();
  for (const Rail& rail : core_.environment.rails) record.rails.push_back({rail.provider});
  record.state = core_.draining ? NodeRecord::State::draining : NodeRecord::State::up;
  for (const auto& tenant : core_.tenants) {
    std::uint64_t used = 0;
    for (const Arena* const arena : tenant->arenas) {
      used +=
          arena->state() == ArenaState::active ? arena->slots().used().raw() : arena->size().raw();
    }
    record.free_bytes += tenant->quota().raw() - std::min(used, tenant->quota().raw());
  }
  record.last_port = last_port_;
  record.up_seconds = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::seconds>(core_.now() - started_).count());
  return record;
}

void Announcer::announce() {
  told_ = core_.now();
  core_.directory().announce(record(), core_.guarded([this](const Status& status) {
    waiting_ = false;
    announced_ = announced_ || status.ok();
    core_.directory_answered(status.ok());
  }));
}

void Announcer::retract(std::function<void()> done) {
  retracted_ = std::move(done);
  state_ = State::retracting;
  due_ = core_.now();
}

Instant Announcer::next_deadline() const noexcept {
  return waiting_ || state_ == State::retracted ? Instant::max() : due_;
}

}  // namespace farlift::kv::node
